"""The transaction coordinator: judges by what is admitted, answers by what is committed.

    request or deadline -> transaction_states -> one row, and the markers -> (committed) -> answer

A transaction's end is one atomic group of the log: a marker in each of its partitions, the offsets
of its groups, its row. Kafka writes these one after the other and answers CONCURRENT_TRANSACTIONS
to whoever asks in between, which costs nearly every transaction of an older client a pause; here a
request that comes before the commit is judged by what will be true and its answer waits, so nobody
is told to come back. The one exception is Kafka's own: InitProducerId during a transaction aborts
it and says CONCURRENT_TRANSACTIONS, and the client comes back for its epoch.

A failed commit takes everything back: the rows are read anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.coordinator import TopicCatalog
from ottla.broker.loggers import shown
from ottla.broker.slices import answer_in_slices
from ottla.broker.transaction_hanging import Hanging
from ottla.broker.transaction_states import (
    Producer,
    Transaction,
    Version,
    added,
    check_expected,
    check_producer,
    ended,
    fresh,
    initialized,
    may_end,
)
from ottla.broker.transaction_table import TransactionTable
from ottla.log.options import Change
from ottla.log.transactions import Marker, MarkerRefused
from ottla.wire.errors import Error, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Broker, Context, Parked
    from ottla.log.tickets import Ticket
    from ottla.wire.schema import Message

_logger = logging.getLogger(__name__)

COORDINATOR_EPOCH: Final = 0
"""In Kafka the leader epoch of the coordinator's partition. There is one node, and no other
coordinator can have been before it."""

_FAILED: Final = KafkaError(Error.COORDINATOR_NOT_AVAILABLE)
"""What a request is told whose commit failed: clients look for the coordinator and ask again."""

_NAMED: Final = 50


def known_as(error: Error, ctx: Context, fenced_from: int) -> Error:
    """PRODUCER_FENCED is newer than these APIs: to clients of before `fenced_from` it is
    INVALID_PRODUCER_EPOCH (KIP-588)."""
    if error is Error.PRODUCER_FENCED and ctx.header.api_version < fenced_from:
        return Error.INVALID_PRODUCER_EPOCH
    return error


class Transactions:
    """All transactional ids of this node."""

    def __init__(self, broker: Broker) -> None:
        """Reads the rows, or the first of them: the rest follows in the turns to come."""
        self._broker = broker
        self._store = broker.store
        self._config = broker.config
        self._catalog = TopicCatalog(broker.topics)
        self._table = TransactionTable(broker, time_is_up=self._time_is_up)
        self._hanging = Hanging(broker, self._table, self._names)
        self._table.load(self._hanging.look)
        broker.store.on_reset(self._table.reset)

    # -- answering --------------------------------------------------------------------------------

    def answer(
        self,
        ctx: Context,
        transactional_ids: Iterable[str],
        decide: Callable[[], Message],
        fenced_from: int = 0,
    ) -> Message | Parked:
        """Answer with what `decide` gives or raises, once all it was judged by is committed.

        Also an error waits: PRODUCER_FENCED because of an epoch that then was never raised would
        end a producer for nothing. `fenced_from`: the version that knows this error (`known_as`).
        Raises KafkaError.
        """
        answer: Message | KafkaError
        try:
            answer = decide()
        except KafkaError as refused:
            answer = KafkaError(known_as(refused.error, ctx, fenced_from), refused.message)
        if not all(map(self._table.settled, transactional_ids)):
            return self._when_true(ctx, answer)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def answer_in_slices(
        self, ctx: Context, steps: Iterator[object], finish: Callable[[], Message]
    ) -> Message | Parked:
        """`answer` with what `finish` gives after many steps (slices.py), each of which looks at
        what is admitted by then. Raises KafkaError."""
        self.check_loaded()
        begun = self._table.resets

        def finished() -> Parked:
            if self._table.resets != begun:
                raise _FAILED  # some of what was looked at never was
            return self._when_true(ctx, finish())

        return answer_in_slices(ctx, steps, finished)

    def _when_true(self, ctx: Context, answer: Message | KafkaError) -> Parked:
        """Answer when all that is admitted is committed."""
        ctx.park()

        def settled(ticket: Ticket) -> None:
            if ticket.error is not None:
                ctx.fail(_FAILED)
            elif isinstance(answer, KafkaError):
                ctx.fail(answer)
            else:
                ctx.reply(answer)

        self._store.settled().then(settled)
        return ctx

    def check_loaded(self) -> None:
        """Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS."""
        if self._table.loading:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)

    # -- requests, for `answer` -------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None
    ) -> Producer:
        """The id and epoch of a producer that begins, or goes on after an error (KIP-360).

        Raises KafkaError INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS (its open transaction is being aborted: ask again).
        """
        txn = self._known(transactional_id)
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise KafkaError(Error.INVALID_TRANSACTION_TIMEOUT)
        now = self._table.now_ms()
        if txn is None:
            txn = fresh(transactional_id, self._new_producer_id(), now)
        check_expected(txn, expected)
        if txn.ongoing:
            self._end(txn, False, 2)
            raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
        txn = initialized(txn, expected, timeout_ms, now, self._new_producer_id)
        self._write(txn)
        return Producer(txn.producer_id, txn.producer_epoch)

    def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[int] = (),
        groups: Iterable[str] = (),
    ) -> None:
        """Add partitions (the log's numbers) and groups to the transaction, which this may begin.

        Raises KafkaError INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
        """
        txn = check_producer(self._known(transactional_id), producer)
        after = added(txn, partitions, groups, self._table.now_ms())
        if after is not txn:
            self._write(after)

    def contents(
        self, transactional_id: str, producer: Producer
    ) -> tuple[frozenset[int], frozenset[str]]:
        """The partitions and groups of the producer's transaction, for one who verifies. Raises
        KafkaError as `add` does."""
        txn = check_producer(self._known(transactional_id), producer)
        return txn.partitions, txn.groups

    def end(
        self, transactional_id: str, producer: Producer, committed: bool, version: Version
    ) -> Producer:
        """Commit or abort; gives the id and epoch to go on with (version 2 raises it).

        Raises KafkaError INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        INVALID_TXN_STATE.
        """
        known = self._known(transactional_id)
        txn = may_end(known, producer, committed, version)
        if txn is not None:
            known = self._end(txn, committed, version)
        assert known is not None
        return Producer(known.producer_id, known.producer_epoch)

    def _known(self, transactional_id: str) -> Transaction | None:
        self.check_loaded()
        if not transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        return self.get(transactional_id)

    def get(self, transactional_id: str) -> Transaction | None:
        """As it is admitted; use it within `answer`."""
        return self._table.get(transactional_id)

    def each(self) -> Iterator[Transaction]:
        """Those that are known now, each as it is admitted when its turn comes; use it within
        `answer_in_slices`."""
        return self._table.each()

    # -- writes of a transaction ------------------------------------------------------------------

    def produce(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        partition: int,
        api_version: int,
        others: Collection[int] = (),
    ) -> None:
        """Whether a transactional batch may go into a partition (the log's number); to be called
        in the same turn as Store.append. From Produce v12 on it adds the partition by itself, in
        the commit that the batch is part of (KIP-890); before, the client must have done so.

        Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, NOT_ENOUGH_REPLICAS
        while transactions are loaded (clients try again), KAFKA_STORAGE_ERROR,
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED where the request names no transactional id,
        INVALID_TXN_STATE (v11: TRANSACTION_ABORTABLE) for a partition that was not added.
        Source: AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend.
        """
        txn = None if transactional_id is None else self._table.get(transactional_id)
        if (
            txn is not None
            and txn.ongoing
            and txn.producer_epoch == producer_epoch
            and txn.producer_id == producer_id
            and partition in txn.partitions
        ):
            return
        if transactional_id is None:
            raise KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if self._table.loading:
            raise KafkaError(Error.NOT_ENOUGH_REPLICAS, "transactions are being loaded")
        producer = Producer(producer_id, producer_epoch)
        implicit, abortable = api_version >= 12, api_version == 11
        partitions = (partition, *others)
        self._write_into(transactional_id, producer, partitions, (), implicit, abortable)

    def commit_offsets(
        self, transactional_id: str, producer: Producer, group_id: str, api_version: int
    ) -> None:
        """Whether a TxnOffsetCommit may go into a group; from v5 on it adds the group by itself.

        Raises KafkaError as `produce` does, COORDINATOR_LOAD_IN_PROGRESS (which crashed clients
        before v2, so those are told COORDINATOR_NOT_AVAILABLE: KAFKA-7296).
        """
        if self._table.loading and api_version < 2:
            raise _FAILED
        self.check_loaded()
        implicit, abortable = api_version >= 5, api_version == 4
        self._write_into(transactional_id, producer, (), (group_id,), implicit, abortable)

    def _write_into(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[int],
        groups: Collection[str],
        implicit: bool,
        abortable: bool,
    ) -> None:
        if not implicit and not self._config.transaction_partition_verification_enable:
            return
        if not transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        try:
            txn = check_producer(self.get(transactional_id), producer)
        except KafkaError as error:
            if error.error is Error.PRODUCER_FENCED:
                # What producers expect of a write; the other code is for their coordinator calls.
                raise KafkaError(Error.INVALID_PRODUCER_EPOCH) from None
            raise
        if implicit:
            after = added(txn, partitions, groups, self._table.now_ms())
            if after is not txn:
                self._write(after, Error.KAFKA_STORAGE_ERROR)
        elif not (txn.partitions.issuperset(partitions) and txn.groups.issuperset(groups)):
            raise KafkaError(
                Error.TRANSACTION_ABORTABLE if abortable else Error.INVALID_TXN_STATE,
                "Partition was not added to the transaction",
            )

    # -- writing ----------------------------------------------------------------------------------

    def _write(self, txn: Transaction, refused: Error = Error.COORDINATOR_NOT_AVAILABLE) -> None:
        """Admit the row. Raises KafkaError `refused` while the log takes no writes."""
        try:
            self._table.write(txn)
        except KafkaError as error:
            raise KafkaError(refused, error.message) from None

    def _end(self, txn: Transaction, committed: bool, version: Version) -> Transaction:
        """Admit the end as one atomic group: markers, offsets, the row; gives what comes after.
        Raises KafkaError COORDINATOR_NOT_AVAILABLE while the log takes no writes,
        COORDINATOR_LOAD_IN_PROGRESS while groups are loaded."""
        if self._store.refusing is not None:
            raise _FAILED
        now = self._table.now_ms()
        after, epoch = ended(txn, committed, version, now, self._new_producer_id)
        markers = self._markers(txn, epoch, committed, version)
        moves, admitted = self._broker.coordinator.end_transaction(
            txn.producer_id, txn.groups, committed
        )
        try:
            ticket = self._write_markers(markers, [*moves, self._table.row(after)])
        except KafkaError as error:
            admitted(None)
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, error.message) from None
        admitted(ticket)
        self._table.install(after, ticket)
        return after

    def _markers(
        self, txn: Transaction, epoch: int, committed: bool, version: Version
    ) -> list[Marker]:
        """One in each partition that still exists."""
        markers = []
        for number in sorted(txn.partitions):
            try:
                partition = self._store.partition(number)
            except KeyError:
                continue  # its topic has been deleted
            markers.append(
                Marker(partition, txn.producer_id, epoch, COORDINATOR_EPOCH, committed, version)
            )
        return markers

    def _write_markers(self, markers: list[Marker], changes: Sequence[Change]) -> Ticket:
        """A marker that its partition refuses does not hold up the others, and the transaction
        with them, for ever."""
        while True:
            try:
                return self._store.write_markers(markers, changes, self._broker.clock.wall_ms())
            except MarkerRefused as refused:
                wrong = {marker.partition.number: error for marker, error in refused.refused}
                judged = [(one, wrong.get(one.partition.number)) for one in markers]
                markers = [
                    one if error is None else self._renewed(one)
                    for one, error in judged
                    if error is None or error.error is Error.TRANSACTION_COORDINATOR_FENCED
                ]
                # Where somebody else writes under this id with a newer epoch, which can only be
                # without a transaction of ours, there is nothing to end.
                newer = [n for n, e in wrong.items() if e.error is Error.INVALID_PRODUCER_EPOCH]
                if newer:
                    _logger.warning("no marker written to %s: %s", self._names(newer), refused)

    def _renewed(self, marker: Marker) -> Marker:
        """With the coordinator epoch of the marker that was written past this coordinator
        (WriteTxnMarkers): the next one may not be older."""
        newest = self._store.coordinator_epoch(marker.partition, marker.producer_id)
        return marker._replace(coordinator_epoch=newest)

    def _new_producer_id(self) -> int:
        # The row that names it is admitted behind the block it comes from, so is true after it.
        try:
            return self._broker.producer_ids.take()[0]
        except KafkaError:
            raise _FAILED from None

    # -- by itself --------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The time by which transactions are judged."""
        return self._table.now_ms()

    def _time_is_up(self, txn: Transaction) -> None:
        if txn.ongoing:
            places = self._names(txn.partitions)
            self._end(txn, False, 2)
            _logger.warning(
                "transaction %s of producer %d, epoch %d, was open for more than its %d ms and is"
                " aborted: %s",
                shown(txn.transactional_id),
                txn.producer_id,
                txn.producer_epoch,
                txn.timeout_ms,
                places,
            )
        else:
            self._table.forget(txn)

    def place(self, partition: int) -> tuple[str, int] | None:
        """Topic and index of a partition; None where the topic has been deleted."""
        place = self._catalog.place(partition)
        return None if place is None else (place.topic, place.index)

    def _names(self, partitions: Iterable[int]) -> str:
        """Partitions for a log line: some of them where they are many."""
        places = sorted(place for number in partitions if (place := self.place(number)))
        named = [f"{topic}-{index}" for topic, index in places[:_NAMED]]
        if len(places) > _NAMED:
            named.append(f"and {len(places) - _NAMED} more")
        return ", ".join(named) or "no partitions"
