"""Conversations that nobody thought of: what producers say is drawn at random, by a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from compat_tests.transactions.scenarios.registry import SCENARIOS, Scenario
from compat_tests.transactions.script import NEW, OLD, OLDEST, Producer, Protocol, Script

STEPS = 45
WALKS = {
    "oldest": (OLDEST,),
    "old": (OLD,),
    "new": (NEW,),
    "mixed": (OLD, NEW),
}
SEEDS = range(1, 6)


class Walk:
    """Two names with two instances each, two partitions and a group."""

    def __init__(
        self, script: Script, dice: random.Random, protocols: tuple[Protocol, ...]
    ) -> None:
        self.script = script
        self.dice = dice
        self.producers = [
            script.producer(name, dice.choice(protocols)) for name in ("a", "a", "b", "b")
        ]
        self.offset = 0
        self.steps: dict[Callable[[Producer], object], int] = {
            self.init: 2,
            self.init_known: 1,
            self.add: 6,
            self.produce: 10,
            self.produce_with_another_epoch: 1,
            self.commit_offsets: 3,
            self.end: 6,
            self.look: 2,
        }

    def run(self) -> None:
        for one in self.producers:
            self.init(one)
        for _ in range(STEPS):
            (step,) = self.dice.choices(list(self.steps), list(self.steps.values()))
            step(self.dice.choice(self.producers))
        for name in ("a", "b"):
            last = self.script.producer(name, NEW)
            self.init(last)  # which ends what is open
        for partition in (0, 1):
            self.script.both(partition=partition)
        self.script.committed(stable=True)

    def init(self, one: Producer) -> None:
        one.init()
        one.settle()

    def init_known(self, one: Producer) -> None:
        if one.protocol.init >= 3:
            one.init(known=True)
            one.settle()

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
        one.settle("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")

    def look(self, one: Producer) -> None:
        self.script.both(partition=self.dice.randrange(2))
        self.script.describe(one.name)
        self.script.describe_producers(0, 1)
        self.script.committed(stable=self.dice.random() < 0.5)


def _walk(seed: int, protocols: tuple[Protocol, ...]) -> Scenario:
    return lambda script: Walk(script, random.Random(seed), protocols).run()


SCENARIOS.update(
    (f"walk_{seed}-{name}", _walk(seed, protocols))
    for name, protocols in WALKS.items()
    for seed in SEEDS
)
