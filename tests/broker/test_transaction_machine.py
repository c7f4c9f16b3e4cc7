"""Random transactions of several clients, over failed commits, kills, new instances and time.

After each step: who reads what is committed sees every record of every committed transaction once,
up to the first record of the oldest open one, and nothing of any other; offsets are those of the
committed transactions; no epoch is given twice and none goes back. At the end time passes, and
nothing is open any more.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.broker.txnkit import TIMEOUT_MS
from tests.broker.txnworld import GROUP, PARTITIONS, TOPIC, Asked, Instance, World

from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NAMES = st.sampled_from(("x", "y"))
INDEX = st.integers(0, PARTITIONS - 1)
ACTS = st.one_of(
    st.tuples(st.just("writes"), st.tuples(INDEX, st.integers(1, 3))),
    st.tuples(st.just("writes"), st.tuples(INDEX, st.just(1))),
    st.tuples(st.just("moves_an_offset"), st.tuples(INDEX)),
    st.tuples(st.just("ends"), st.tuples(st.sampled_from((True, True, False)))),
)
EVENTS = (
    *("killed before", "fails") * 2,  # what finds most
    *("new instance", "killed after", "time", "forgotten"),
)
MOST_INSTANCES = 5


def nothing(answer: Any) -> None:
    pass


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def teardown(self) -> None:
        world = self.world
        try:
            if sys.exc_info()[0] is None:  # else what went wrong is known already
                world.rest()
                world.check()
        finally:
            world.close()

    @initialize(new=st.booleans(), other=st.booleans())
    def somebody_is_there(self, new: bool, other: bool) -> None:
        for name, version in (("x", new), ("y", other)):
            self.world.instances.append(Instance(self.world, name, version))
            self.init(self.world.instances[-1])
        self.world.turn()

    # -- who does something -----------------------------------------------------------------------

    @rule(data=st.data())
    def somebody_acts(self, data: st.DataObject) -> None:
        """The next thing of one instance: what it still waits for, an epoch, or a request."""
        world = self.world
        instance = data.draw(st.sampled_from(world.instances))
        if instance in world.under_way:
            world.turn()
        elif instance.asked is not None:
            world.ask(instance)
        elif not instance.ready:
            self.init(instance)
        else:
            act, arguments = data.draw(ACTS)
            getattr(self, act)(instance, *arguments)

    @rule(data=st.data())
    def somebody_else_acts(self, data: st.DataObject) -> None:
        self.somebody_acts(data)

    @rule(data=st.data())
    def and_somebody_else(self, data: st.DataObject) -> None:
        self.somebody_acts(data)

    def _a_new_instance(self, name: str, new: bool) -> None:
        world = self.world
        if len(world.instances) >= MOST_INSTANCES:
            gone = next((one for one in world.instances if one not in world.under_way), None)
            if gone is None:
                return
            world.instances.remove(gone)
        world.instances.append(Instance(world, name, new))
        self.init(world.instances[-1])

    # -- requests ---------------------------------------------------------------------------------

    def init(self, instance: Instance) -> None:
        world = self.world
        request = InitProducerIdRequest(
            transactional_id=instance.name, transaction_timeout_ms=TIMEOUT_MS
        )

        def true(answer: Any) -> None:
            assert instance.name not in world.open
            world.raised(instance.name, answer)
            world.owner[instance.name] = instance

        version = 5 if instance.new else 4
        asked = Asked(request, version, true=true, learn=instance.is_now, once=False)
        world.ask(instance, asked)

    def writes(self, instance: Instance, index: int, many: int) -> None:
        world = self.world
        if not instance.new and index not in instance.added:
            self.adds_a_partition(instance, index)
            return
        kit = instance.kit
        values = [b"%d" % next(world.numbers) for _ in range(many)]
        request = kit.produce_request(TOPIC, index, *values)

        def true(answer: Any) -> None:
            world.opened(instance).records.extend((index, value) for value in values)

        def learn(answer: Any) -> None:
            instance.wrote = True
            kit.sequences[TOPIC, index] = kit.sequences.get((TOPIC, index), 0) + many

        version = 12 if instance.new else 9
        world.ask(instance, Asked(request, version, true=true, learn=learn, once=True))

    def adds_a_partition(self, instance: Instance, index: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=instance.name,
            v3_and_below_producer_id=instance.kit.id,
            v3_and_below_producer_epoch=instance.kit.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[index])],
        )
        self.adds(instance, request, index)

    def adds(
        self,
        instance: Instance,
        request: AddPartitionsToTxnRequest | AddOffsetsToTxnRequest,
        what: int | str,
    ) -> None:
        def true(answer: Any) -> None:
            self.world.opened(instance)

        def learn(answer: Any) -> None:
            instance.wrote = True
            instance.added.add(what)

        self.world.ask(instance, Asked(request, 3, true=true, learn=learn, once=True))

    def moves_an_offset(self, instance: Instance, index: int) -> None:
        world = self.world
        kit = instance.kit
        if not instance.new and GROUP not in instance.added:
            request = AddOffsetsToTxnRequest(
                transactional_id=instance.name,
                producer_id=kit.id,
                producer_epoch=kit.epoch,
                group_id=GROUP,
            )
            self.adds(instance, request, GROUP)
            return
        offset = next(world.numbers)
        partition = TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        commit = TxnOffsetCommitRequest(
            transactional_id=instance.name,
            group_id=GROUP,
            producer_id=kit.id,
            producer_epoch=kit.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )

        def true(answer: Any) -> None:
            world.opened(instance).offsets[index] = (next(world.numbers), offset)

        def learn(answer: Any) -> None:
            instance.wrote = True

        version = 5 if instance.new else 3
        world.ask(instance, Asked(commit, version, true=true, learn=learn, once=False))

    def ends(self, instance: Instance, commit: bool) -> None:
        world = self.world
        if not (instance.wrote or (instance.new and not commit)):
            return  # clients do not ask for that

        def true(answer: Any) -> None:
            ended = world.open.pop(instance.name, None)
            if instance.new:
                world.raised(instance.name, answer)
            if ended is None or not commit:
                return
            for index, value in ended.records:
                world.committed[index].append(value)
            for index, moved in ended.offsets.items():
                world.offsets[index] = max(world.offsets.get(index, moved), moved)

        def learn(answer: Any) -> None:
            if instance.new:
                instance.is_now(answer)
            else:
                instance.begins()

        request = instance.kit.end_request(commit)
        version = 5 if instance.new else 4
        world.ask(instance, Asked(request, version, true=true, learn=learn, once=True))

    # -- what becomes of them ---------------------------------------------------------------------

    @rule(what=st.sampled_from(EVENTS), name=NAMES, new=st.booleans())
    def something_happens(self, what: str, name: str, new: bool) -> None:
        if what == "new instance":
            self._a_new_instance(name, new)
        else:
            self.something_happens_to_it(what)

    def something_happens_to_it(self, what: str) -> None:
        world = self.world
        if what == "fails":
            world.turn(fails=True)
        elif what.startswith("killed"):
            world.kill(committed=what == "killed after")
        elif what == "forgotten":
            world.rest()
        else:
            world.turn()
            world.pass_time(TIMEOUT_MS // 2)
            world.check()
            world.pass_time(TIMEOUT_MS // 2 + 1)

    @precondition(lambda self: any(self.may_end(one) for one in self.world.instances))
    @rule(data=st.data(), what=st.sampled_from(("killed before", "killed after", "fails")))
    def an_end_goes_wrong(self, data: st.DataObject, what: str) -> None:
        """Where most can go wrong, and chance comes seldom."""
        found = [one for one in self.world.instances if self.may_end(one)]
        self.ends(data.draw(st.sampled_from(found)), True)
        self.something_happens_to_it(what)

    def may_end(self, instance: Instance) -> bool:
        return instance.ready and instance.wrote and instance.asked is None

    @invariant()
    def what_is_read_is_what_is_true(self) -> None:
        if not self.world.under_way:
            self.world.check()


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.long
class TestManyTransactions(TransactionMachine.TestCase):
    settings = settings(
        max_examples=2000,
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
