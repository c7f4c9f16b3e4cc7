"""Conversations that nobody thought of: what producers say is drawn at random, by a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from compat_tests.transactions.protocols import NEW, OLD, OLDEST, Protocol
from compat_tests.transactions.scenarios.registry import SCENARIOS, Scenario
from compat_tests.transactions.script import Producer, Script

STEPS = 50
AT_REST = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")
WALKS = {
    "oldest": (OLDEST,),
    "old": (OLD,),
    "new": (NEW,),
    "mixed": (OLD, NEW),
}
SEEDS = range(1, 5)


class Walk:
    """Three names, two partitions and a group; a new instance takes over from the one before it,
    which goes on talking now and then."""

    def __init__(self, script: Script, dice: random.Random, protocols: Sequence[Protocol]) -> None:
        self.script = script
        self.dice = dice
        self.protocols = protocols
        self.living = [script.producer(name, dice.choice(protocols)) for name in "abc"]
        self.dead: list[Producer] = []
        self.offset = 0
        self.steps: dict[Callable[[Producer], object], int] = {
            self.replace: 2,
            self.init_known: 1,
            self.add: 5,
            self.produce: 12,
            self.produce_with_another_epoch: 1,
            self.commit_offsets: 3,
            self.end: 7,
            self.look: 2,
        }

    def run(self) -> None:
        for one in self.living:
            self.init(one)
        for _ in range(STEPS):
            (step,) = self.dice.choices(list(self.steps), list(self.steps.values()))
            who = self.dead if self.dead and self.dice.random() < 0.1 else self.living
            step(self.dice.choice(who))
        for one in self.living:
            self.replace(one)  # which ends what is open
        for partition in (0, 1):
            self.script.both(partition=partition)
        self.script.committed(stable=True)

    def replace(self, one: Producer) -> None:
        if one in self.living:
            self.living.remove(one)
            self.dead.append(one)
            one = self.script.producer(one.name, self.dice.choice(self.protocols))
            self.living.append(one)
        self.init(one)

    def init(self, one: Producer) -> None:
        """Again when it was in the way of a transaction."""
        if one.init().error_code:
            one.settle()
            one.init()
        one.settle()

    def init_known(self, one: Producer) -> None:
        if one.protocol.init >= 3:
            one.init(known=True)
            one.settle(*AT_REST)

    def add(self, one: Producer) -> None:
        if one.protocol.adds:
            one.add(self.dice.randrange(2))

    def produce(self, one: Producer) -> None:
        self.offset += 1
        one.produce(f"{one.name}{self.offset}", partition=self.dice.randrange(2))

    def produce_with_another_epoch(self, one: Producer) -> None:
        epoch = one.epoch + self.dice.choice((-1, 1))
        one.produce("wrong", partition=self.dice.randrange(2), producer_epoch=max(0, epoch))

    def commit_offsets(self, one: Producer) -> None:
        self.offset += 1
        if one.protocol.adds and self.dice.random() < 0.8:
            one.add_offsets()
        one.commit_offsets({self.dice.randrange(2): self.offset})

    def end(self, one: Producer) -> None:
        one.end(self.dice.choice(("commit", "commit", "abort")))
        one.settle(*AT_REST)

    def look(self, one: Producer) -> None:
        self.script.both(partition=self.dice.randrange(2))
        self.script.describe(one.name)
        self.script.describe_producers(0, 1)
        self.script.committed(stable=self.dice.random() < 0.5)


def _walk(seed: int, protocols: Sequence[Protocol]) -> Scenario:
    return lambda script: Walk(script, random.Random(seed), protocols).run()


SCENARIOS.update(
    (f"walk_{seed}-{name}", _walk(seed, protocols))
    for name, protocols in WALKS.items()
    for seed in SEEDS
)
