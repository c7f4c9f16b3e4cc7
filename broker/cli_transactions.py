"""`ottla transactions`: list, describe, abort; on any Kafka cluster.

An open transaction whose coordinator knows it is aborted by asking for its transactional id, as a
new instance of its producer would: that ends it and fences the producer. One that hangs, open in a
partition while no coordinator is going to end it, is ended in the partition itself (KIP-664).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ottla.broker.cli_client import Cluster
from ottla.broker.cli_errors import ClientError, problem, raise_for
from ottla.broker.cli_output import print_json, print_rows, print_table, say
from ottla.wire.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.wire.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.api.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.wire.api.list_transactions import TransactionState as ListedTransaction
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.errors import Error

TRANSACTION: Final = 1
"""FindCoordinator's key type."""
PATIENCE_S: Final = 30.0
"""How long an abort may take at its coordinator."""
LONGEST_S: Final = 1e12
LONGEST_ID: Final = 32_767
_SEE_LIST: Final = "`ottla transactions list` shows those that there are"
_SEE_HANGING: Final = "`ottla transactions list --hanging` shows what hangs, and where"
_UNDER_WAY: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Open(NamedTuple):
    """A transaction that is open in a partition, as its leader tells; times in ms."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp: int
    coordinator_epoch: int


def transactions(args: argparse.Namespace) -> int:
    """Run one action of the command."""
    actions: dict[str, Callable[[Cluster, argparse.Namespace], int]] = {
        "list": _list,
        "describe": _describe,
        "abort": _abort,
    }
    with Cluster(args.bootstrap_server) as cluster:
        return actions[args.action](cluster, args)


# ------------------------------------------------------------------------------------------ looking


def _list(cluster: Cluster, args: argparse.Namespace) -> int:
    if args.hanging:
        if (args.state, args.longer_than, args.pattern) != (None, None, None):
            raise ClientError(
                "--hanging looks in partitions, of which --state, --longer-than and --pattern say"
                " nothing: leave them out"
            )
        return _list_hanging(cluster, args)
    request = ListTransactionsRequest(
        state_filters=[] if args.state is None else [args.state],
        duration_filter=-1 if args.longer_than is None else _milliseconds(args.longer_than),
        transactional_id_pattern=args.pattern,
    )
    found = sorted(_listed(cluster, request), key=lambda listed: listed.transactional_id)
    rows = [
        (listed.transactional_id, listed.producer_id, listed.transaction_state) for listed in found
    ]
    print_rows(args.json, ("transactional_id", "producer_id", "state"), rows)
    return 0


def _milliseconds(longer_than: float) -> int:
    if not 0 <= longer_than <= LONGEST_S:
        raise ClientError(f"--longer-than {longer_than:g} is not a number of seconds, 0 or more")
    return int(longer_than * 1000)


def _listed(cluster: Cluster, request: ListTransactionsRequest) -> Iterator[ListedTransaction]:
    for answer in cluster.call_all(request, ListTransactionsResponse):
        if answer.error_code == Error.INVALID_REGULAR_EXPRESSION:
            raise ClientError(
                f"--pattern {request.transactional_id_pattern!r} is not a valid regular expression"
            )
        raise_for(answer.error_code, "the list of transactions")
        if answer.unknown_state_filters:
            raise ClientError(
                f"--state: there is no state {answer.unknown_state_filters[0]!r}: it is Empty,"
                " Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort"
            )
        yield from answer.transaction_states


def _describe(cluster: Cluster, args: argparse.Namespace) -> int:
    for transactional_id in args.ids:
        _print(_described(cluster, transactional_id), args.json)
    return 0


def _described(cluster: Cluster, transactional_id: str) -> TransactionState:
    _check_id(transactional_id)
    (found,) = cluster.call_coordinator(
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        DescribeTransactionsResponse,
        key_type=TRANSACTION,
    ).transaction_states
    if found.error_code == Error.TRANSACTIONAL_ID_NOT_FOUND:
        raise ClientError(f"there is no transactional id {transactional_id!r}: {_SEE_LIST}")
    raise_for(found.error_code, transactional_id)
    return found


def _check_id(transactional_id: str) -> None:
    """Raises ClientError for what cannot be one."""
    try:
        size = len(transactional_id.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= LONGEST_ID:
        raise ClientError(f"a transactional id has 1 to {LONGEST_ID} bytes of UTF-8: {_SEE_LIST}")


def _print(found: TransactionState, as_json: bool) -> None:
    under_way = found.transaction_state in _UNDER_WAY
    age_ms = int(time.time() * 1000) - found.transaction_start_time_ms if under_way else None
    places = [(topic.topic, index) for topic in found.topics for index in topic.partitions]
    if as_json:
        print_json(
            {
                "transactional_id": found.transactional_id,
                "state": found.transaction_state,
                "producer_id": found.producer_id,
                "producer_epoch": found.producer_epoch,
                "timeout_ms": found.transaction_timeout_ms,
                "open_ms": age_ms,
                "partitions": [{"topic": topic, "partition": index} for topic, index in places],
            }
        )
        return
    age = "" if age_ms is None else f"  open for {age_ms / 1000:.1f} s"
    print(
        f"{found.transactional_id}  {found.transaction_state}"
        f"  producer {found.producer_id} epoch {found.producer_epoch}"
        f"  timeout {found.transaction_timeout_ms} ms{age}"
    )
    if places:
        print_table(("topic", "partition"), places)


# ------------------------------------------------------------------------------------------ hanging


def _list_hanging(cluster: Cluster, args: argparse.Namespace) -> int:
    rows = [
        (found.topic, found.partition, found.producer_id, found.first_offset, found.last_timestamp)
        for found in _hanging(cluster, _everything(cluster))
    ]
    headings = ("topic", "partition", "producer_id", "first_offset", "last_timestamp")
    print_rows(args.json, headings, rows)
    return 0


def _everything(cluster: Cluster) -> list[tuple[str, int]]:
    """All partitions of all topics."""
    return [
        (topic.name, partition.partition_index)
        for topic in cluster.topics()
        if topic.name is not None
        for partition in topic.partitions
    ]


def _hanging(cluster: Cluster, places: list[tuple[str, int]]) -> list[Open]:
    """What is open there and in no coordinator's transaction."""
    found = [each for topic, index in places for each in _open(cluster, topic, index)]
    if not found:
        return []
    asked = ListTransactionsRequest(
        state_filters=list(_UNDER_WAY),
        producer_id_filters=sorted({each.producer_id for each in found}),
    )
    known = {
        (listed.producer_id, topic.topic, index)
        for listed in list(_listed(cluster, asked))
        for topic in _described(cluster, listed.transactional_id).topics
        for index in topic.partitions
    }
    return [each for each in found if (each.producer_id, each.topic, each.partition) not in known]


def _open(cluster: Cluster, topic: str, index: int) -> list[Open]:
    """The transactions that are open in a partition. Raises KafkaError."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    answer = cluster.call_leader(topic, index, request, DescribeProducersResponse)
    (found,) = answer.topics[0].partitions
    raise_for(found.error_code, f"{topic} partition {index}", found.error_message)
    return [
        Open(
            topic,
            index,
            producer.producer_id,
            producer.producer_epoch,
            producer.current_txn_start_offset,
            producer.last_timestamp,
            producer.coordinator_epoch,
        )
        for producer in found.active_producers
        if producer.current_txn_start_offset >= 0
    ]


# ------------------------------------------------------------------------------------------- ending


def _abort(cluster: Cluster, args: argparse.Namespace) -> int:
    in_a_partition = (args.topic, args.partition, args.producer_id)
    if args.id is not None:
        if in_a_partition != (None, None, None):
            raise ClientError("give a transactional id, or --topic, --partition and --producer-id")
        return _abort_id(cluster, args.id)
    if None in in_a_partition:
        raise ClientError(
            "give a transactional id; for a transaction that hangs, --topic, --partition and"
            " --producer-id, which `ottla transactions list --hanging` shows"
        )
    return _abort_hanging(cluster, args.topic, args.partition, args.producer_id)


def _abort_id(cluster: Cluster, transactional_id: str) -> int:
    found = _described(cluster, transactional_id)
    if found.transaction_state != "Ongoing":
        raise ClientError(
            f"{transactional_id} has no transaction open: it is {found.transaction_state}"
        )
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=found.transaction_timeout_ms
    )
    answer = cluster.call_coordinator(
        transactional_id, request, InitProducerIdResponse, key_type=TRANSACTION
    )
    if answer.error_code != Error.CONCURRENT_TRANSACTIONS:  # what is said while it is aborted
        raise_for(answer.error_code, transactional_id)
    deadline = time.monotonic() + PATIENCE_S
    while found.transaction_state in _UNDER_WAY:
        if time.monotonic() > deadline:
            raise ClientError(f"{transactional_id} is still {found.transaction_state}")
        time.sleep(0.05)
        found = _described(cluster, transactional_id)
    say(f"{transactional_id} is aborted and its producer fenced")
    return 0


def _abort_hanging(cluster: Cluster, topic: str, index: int, producer_id: int) -> int:
    (described,) = cluster.topics([topic])
    if described.error_code:
        raise problem(described.error_code, f"--topic {topic}", f"there is none; {_SEE_HANGING}")
    count = len(described.partitions)
    if not any(partition.partition_index == index for partition in described.partitions):
        raise ClientError(f"--partition: {topic} has no partition {index}, but 0 to {count - 1}")
    there = [each for each in _open(cluster, topic, index) if each.producer_id == producer_id]
    if not there:
        raise ClientError(
            f"--producer-id: producer {producer_id} has no transaction open in {topic}-{index};"
            f" {_SEE_HANGING}"
        )
    if there[0] not in _hanging(cluster, [(topic, index)]):
        raise ClientError(
            f"the transaction of producer {producer_id} does not hang: its coordinator is going to"
            " end it; abort it by its transactional id"
        )
    (found,) = there
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=found.producer_epoch,
        coordinator_epoch=max(0, found.coordinator_epoch),
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    answer = cluster.call_leader(topic, index, request, WriteTxnMarkersResponse)
    code = answer.markers[0].topics[0].partitions[0].error_code
    raise_for(code, f"{topic} partition {index}")
    say(f"the transaction of producer {producer_id} in {topic}-{index} is aborted")
    return 0
