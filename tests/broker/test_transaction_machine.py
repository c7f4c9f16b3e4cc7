"""Random transactions of several clients, over failed commits, kills, new instances and time.

After each step: who reads what is committed sees every record of every committed transaction once,
up to the first record of the oldest open one, and nothing of any other; offsets are those of the
committed transactions; no epoch is given twice and none goes back. At the end time passes, and
nothing is open any more.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
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

    def idle(self, data: st.DataObject, *, ready: bool = True) -> Instance | None:
        found = [one for one in self.world.instances if one.asked is None and one.ready >= ready]
        return data.draw(st.sampled_from(found)) if found else None

    @rule(name=NAMES, new=st.booleans())
    def a_new_instance(self, name: str, new: bool) -> None:
        world = self.world
        if len(world.instances) >= MOST_INSTANCES:
            gone = next((one for one in world.instances if one not in world.under_way), None)
            if gone is None:
                return
            world.instances.remove(gone)
        world.instances.append(Instance(world, name, new))
        self.init(world.instances[-1])

    @rule(data=st.data())
    def an_instance_begins_anew(self, data: st.DataObject) -> None:
        instance = self.idle(data, ready=False)
        if instance is not None:
            self.init(instance)

    @rule(data=st.data())
    def asks_again(self, data: st.DataObject) -> None:
        world = self.world
        found = [one for one in world.instances if one.asked and one not in world.under_way]
        if found:
            world.ask(data.draw(st.sampled_from(found)))

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

    @rule(data=st.data(), index=INDEX, many=st.integers(1, 3))
    def writes(self, data: st.DataObject, index: int, many: int) -> None:
        instance, world = self.idle(data), self.world
        if instance is None:
            return
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

    @rule(data=st.data(), index=INDEX)
    def moves_an_offset(self, data: st.DataObject, index: int) -> None:
        instance, world = self.idle(data), self.world
        if instance is None:
            return
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

    @rule(data=st.data(), commit=st.booleans())
    def ends(self, data: st.DataObject, commit: bool) -> None:
        instance, world = self.idle(data), self.world
        if instance is None or not (instance.wrote or (instance.new and not commit)):
            return

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

    @rule()
    def a_turn(self) -> None:
        self.world.turn()

    @rule()
    def another_turn(self) -> None:
        self.world.turn()

    @rule()
    def the_commit_fails(self) -> None:
        self.world.turn(fails=True)

    @rule(committed=st.booleans())
    def the_broker_is_killed(self, committed: bool) -> None:
        self.world.kill(committed=committed)

    @rule(ms=st.sampled_from((1000, TIMEOUT_MS // 2, TIMEOUT_MS, TIMEOUT_MS + 1)))
    def time_passes(self, ms: int) -> None:
        self.world.turn()
        self.world.pass_time(ms)

    @rule(day=st.integers(0, 9))
    def all_is_forgotten(self, day: int) -> None:
        if day == 9:
            self.world.rest()

    @invariant()
    def what_is_read_is_what_is_true(self) -> None:
        if not self.world.under_way:
            self.world.check()


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=int(os.environ.get("OTTLA_TXN_EXAMPLES", "60")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
