"""What a transactional id can be in, what each request makes of it, and nothing else: no log, no
clock, no waiting.

Source: Kafka 4.3's TransactionState, TransactionMetadata and TransactionCoordinator (KIP-98,
KIP-360, KIP-890). A `Transaction` never changes: each step gives a new one, which becomes true when
its row is committed.

    state           InitProducerId     adding something   EndTxn v0-4, v5   its time is up
    (none)          Empty, epoch 0     INVALID_PRODUCER_ID_MAPPING          -
    Empty           Empty, epoch + 1   Ongoing            see _ENDS         gone
    Ongoing         CompleteAbort *    Ongoing            Complete...       CompleteAbort, epoch + 1
    CompleteCommit  Empty, epoch + 1   Ongoing            see _ENDS         gone
    CompleteAbort   Empty, epoch + 1   Ongoing            see _ENDS         gone

* with epoch + 1, and CONCURRENT_TRANSACTIONS: the client asks again for an epoch of its own.
"Time is up": the transaction's own timeout when Ongoing, transactional.id.expiration.ms otherwise.
Kafka's other states, Prepare..., PrepareEpochFence and Dead, last from one write to the next there;
here both writes are one commit, so they have names (ListTransactions may ask for them) and nobody
is ever in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from ottla.wire.errors import Error, KafkaError

NO_ID: Final = -1
NO_EPOCH: Final = -1
LAST_EPOCH: Final = 32766
"""The last epoch a client is given; the one behind it is left for a marker that fences it."""
NO_TIME: Final = -1

Version = Literal[1, 2]
"""Transaction version of a request: 2 raises the epoch at each end (KIP-890)."""


class State(IntEnum):
    """Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """As DescribeTransactions and ListTransactions spell it."""
        return _TITLES[self]


_TITLES: Final = {
    state: "".join(word.capitalize() for word in state.name.split("_")) for state in State
}
_ONGOING: Final = State.ONGOING  # asked for each write: quicker than by the class
STATE_OF: Final = {title: state for state, title in _TITLES.items()}


class Producer(NamedTuple):
    """Who a request says it is."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """All that is known of one transactional id. Times in ms since 1970; partitions are the log's
    numbers."""

    transactional_id: str
    producer_id: int
    updated_ms: int
    state: State = State.EMPTY
    producer_epoch: int = NO_EPOCH
    #: The producer id before the last step: who asks with it may have missed the new one.
    previous_producer_id: int = NO_ID
    #: The epoch before, where its owner raised it: a repeated InitProducerId is known by it.
    last_producer_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    #: When the transaction, or the one that ended last, began.
    start_ms: int = NO_TIME
    partitions: frozenset[int] = frozenset()
    groups: frozenset[str] = frozenset()

    @property
    def ongoing(self) -> bool:
        return self.state is _ONGOING


class _Verdict(IntEnum):
    END = 0
    DONE = 1  # it has ended so already, and this is the same request once more
    INVALID = 2  # INVALID_TXN_STATE
    FENCED = 3  # PRODUCER_FENCED


_END, _DONE, _INVALID, _FENCED = _Verdict
_COMMIT, _ABORT = True, False

_ENDS: Final[dict[Version, dict[tuple[State, bool], tuple[_Verdict, _Verdict]]]] = {
    # (state, commit?): what the epoch before this one gets (a repeated request), what this one gets
    1: {
        (State.EMPTY, _COMMIT): (_FENCED, _INVALID),
        (State.EMPTY, _ABORT): (_FENCED, _INVALID),
        (State.ONGOING, _COMMIT): (_FENCED, _END),
        (State.ONGOING, _ABORT): (_FENCED, _END),
        (State.COMPLETE_COMMIT, _COMMIT): (_FENCED, _DONE),
        (State.COMPLETE_COMMIT, _ABORT): (_FENCED, _INVALID),
        (State.COMPLETE_ABORT, _COMMIT): (_FENCED, _INVALID),
        (State.COMPLETE_ABORT, _ABORT): (_FENCED, _DONE),
    },
    # Under version 2 a client may abort without knowing whether anything was written, and gets an
    # epoch that nothing late can have.
    2: {
        (State.EMPTY, _COMMIT): (_FENCED, _INVALID),
        (State.EMPTY, _ABORT): (_FENCED, _END),
        (State.ONGOING, _COMMIT): (_FENCED, _END),
        (State.ONGOING, _ABORT): (_FENCED, _END),
        (State.COMPLETE_COMMIT, _COMMIT): (_DONE, _INVALID),
        (State.COMPLETE_COMMIT, _ABORT): (_INVALID, _END),
        (State.COMPLETE_ABORT, _COMMIT): (_INVALID, _INVALID),
        (State.COMPLETE_ABORT, _ABORT): (_DONE, _END),
    },
}


# ---------------------------------------------------------------------------------- InitProducerId


def fresh(transactional_id: str, producer_id: int, now_ms: int) -> Transaction:
    """One nobody has heard of yet: without an epoch."""
    return Transaction(transactional_id, producer_id, now_ms)


def check_expected(txn: Transaction, expected: Producer | None) -> None:
    """Who says which producer it was (KIP-360) must be this one, or the one before whose epochs
    were used up. Raises KafkaError PRODUCER_FENCED."""
    if expected is None or txn.producer_epoch == NO_EPOCH or expected.id == txn.producer_id:
        return
    if expected.id == txn.previous_producer_id and expected.epoch >= LAST_EPOCH:
        return
    raise KafkaError(Error.PRODUCER_FENCED)


def initialized(
    txn: Transaction,
    expected: Producer | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Transaction:
    """The next epoch, for a producer that begins or goes on after an error; the present one for a
    repeated request. `txn` is not Ongoing. Raises KafkaError PRODUCER_FENCED."""
    epoch = txn.producer_epoch
    producer_id, last_epoch = txn.producer_id, NO_EPOCH
    if expected is None or epoch == NO_EPOCH or expected.epoch == epoch:
        if expected is not None:
            last_epoch = epoch
        if epoch >= LAST_EPOCH:
            producer_id, epoch = new_producer_id(), 0
        else:
            epoch += 1
    elif expected.epoch == txn.last_producer_epoch:
        last_epoch = txn.last_producer_epoch
    else:
        raise KafkaError(Error.PRODUCER_FENCED)
    return replace(
        txn,
        state=State.EMPTY,
        producer_id=producer_id,
        previous_producer_id=txn.producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        start_ms=NO_TIME,
        updated_ms=now_ms,
        partitions=frozenset(),
        groups=frozenset(),
    )


# -------------------------------------------------------------------------------- during, and ends


def check_producer(txn: Transaction | None, producer: Producer) -> Transaction:
    """Raises KafkaError INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED."""
    if txn is None or txn.producer_id != producer.id:
        raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
    if txn.producer_epoch != producer.epoch:
        raise KafkaError(Error.PRODUCER_FENCED)
    return txn


def added(
    txn: Transaction, partitions: Iterable[int], groups: Iterable[str], now_ms: int
) -> Transaction:
    """With these partitions and groups in it; the same object when they are."""
    if txn.ongoing and txn.partitions.issuperset(partitions) and txn.groups.issuperset(groups):
        return txn
    return replace(
        txn,
        state=State.ONGOING,
        previous_producer_id=txn.producer_id,
        start_ms=txn.start_ms if txn.ongoing else now_ms,
        updated_ms=now_ms,
        partitions=txn.partitions.union(partitions),
        groups=txn.groups.union(groups),
    )


def may_end(
    txn: Transaction | None, producer: Producer, committed: bool, version: Version
) -> Transaction | None:
    """The transaction that an EndTxn ends; None when it has done so already. Raises KafkaError
    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE."""
    if txn is None:
        raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
    if version == 2 and _rolled_over(txn, producer):
        repeated = True
    elif txn.producer_id != producer.id:
        raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
    elif txn.producer_epoch not in (producer.epoch, producer.epoch + 1):
        raise KafkaError(Error.PRODUCER_FENCED)
    else:
        repeated = txn.producer_epoch != producer.epoch
    verdict = _ENDS[version][txn.state, committed][0 if repeated else 1]
    if verdict is _FENCED:
        raise KafkaError(Error.PRODUCER_FENCED)
    if verdict is _INVALID:
        raise KafkaError(Error.INVALID_TXN_STATE)
    return txn if verdict is _END else None


def _rolled_over(txn: Transaction, producer: Producer) -> bool:
    """The end before gave a new producer id, its answer was lost, and this is the same request."""
    return (
        txn.previous_producer_id == producer.id != txn.producer_id
        and producer.epoch == LAST_EPOCH
        and txn.producer_epoch == 0
    )


def ended(
    txn: Transaction,
    committed: bool,
    version: Version,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> tuple[Transaction, int]:
    """What comes of it, and the epoch that its markers carry.

    Under version 2, and so whenever the coordinator ends a transaction by itself, that is the next
    epoch, which is also the producer's from now on; behind the last one it begins anew with another
    producer id.
    """
    producer_id, marker_epoch = txn.producer_id, txn.producer_epoch
    epoch, last_epoch = txn.producer_epoch, txn.last_producer_epoch
    if version == 2:
        last_epoch = txn.producer_epoch
        epoch = marker_epoch = min(txn.producer_epoch, LAST_EPOCH) + 1
        if txn.producer_epoch >= LAST_EPOCH:
            producer_id, epoch = new_producer_id(), 0
    after = replace(
        txn,
        state=State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT,
        producer_id=producer_id,
        previous_producer_id=txn.producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        start_ms=txn.start_ms if txn.ongoing else now_ms,
        updated_ms=now_ms,
        partitions=frozenset(),
        groups=frozenset(),
    )
    return after, marker_epoch
