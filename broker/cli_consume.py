"""`ottla consume`: records become lines."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta

from ottla.broker.cli_client import Cluster
from ottla.broker.cli_errors import ClientError
from ottla.broker.cli_offsets import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    by_partition,
    check_where,
    list_offsets,
    start_offsets,
)
from ottla.broker.cli_output import count, print_json, say
from ottla.broker.cli_reader import Reader, moved
from ottla.broker.cli_records import to_json
from ottla.wire.errors import KafkaError
from ottla.wire.records import Record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISOLATION = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}


def consume(args: argparse.Namespace) -> int:
    """Print what is there and what comes; gives the exit status."""
    with Cluster(args.bootstrap_server) as cluster:
        topic = cluster.topic(args.topic)
        there = sorted(partition.partition_index for partition in topic.partitions)
        isolation = _ISOLATION[args.isolation]
        reader = Reader(cluster, topic, isolation, args.timeout)
        reader.positions = _positions(cluster, args, there)
        reader.after_each_fetch = sys.stdout.flush
        if args.exit:
            reader.ends = list_offsets(cluster, args.topic, reader.positions, LATEST, isolation)
            if isolation == READ_COMMITTED:
                _say_what_is_hidden(cluster, args.topic, reader)
        return _print_all(args, reader)


def _print_all(args: argparse.Namespace, reader: Reader) -> int:
    printed = 0
    try:
        if args.max_records != 0:
            for partition, record in reader:
                _print(args, partition, record)
                printed += 1
                if printed == args.max_records:
                    break
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stdout.flush()
        say(count(printed, "record"))
        return 130
    except (ClientError, KafkaError):
        sys.stdout.flush()
        where = ",".join(f"{index}:{at}" for index, at in sorted(reader.positions.items()))
        verb = "was" if printed == 1 else "were"
        say(f"{count(printed, 'record')} {verb} printed; go on with --from {where}")
        raise
    if not args.json:
        say(count(printed, "record"))
    return 0


def _positions(cluster: Cluster, args: argparse.Namespace, there: list[int]) -> dict[int, int]:
    """Where to begin in each partition that is wanted, within its log. Raises ClientError."""
    where = "earliest" if args.start is None else args.start
    places = by_partition(where, "--from")
    if places is None:
        places = dict.fromkeys(args.partition or there, where)
    elif args.partition:
        raise ClientError("--from names partitions, and so does --partition: leave one of them out")
    for index, text in places.items():
        if index not in there:
            raise ClientError(f"{args.topic} has no partition {index}, but 0 to {len(there) - 1}")
        check_where(text, "--from")
    positions: dict[int, int] = {}
    for text in dict.fromkeys(places.values()):
        indexes = [index for index, own in places.items() if own == text]
        positions |= start_offsets(
            cluster, args.topic, indexes, text, "--from", _ISOLATION[args.isolation]
        )
    if set(places.values()) <= {"earliest", "latest"}:
        return positions
    starts = list_offsets(cluster, args.topic, places, EARLIEST)
    ends = list_offsets(cluster, args.topic, places, LATEST)
    return {
        index: moved(args.topic, index, at, starts[index], ends[index])
        for index, at in positions.items()
    }


def _say_what_is_hidden(cluster: Cluster, topic: str, reader: Reader) -> None:
    """One line about what --exit leaves out: it ends at the last stable offset."""
    ends = list_offsets(cluster, topic, reader.positions, LATEST)
    stable = reader.ends or {}
    hidden = sum(
        max(0, end - max(stable[index], reader.positions[index])) for index, end in ends.items()
    )
    if hidden:
        say(
            f"the last {count(hidden, 'offset')}, at and behind an open transaction,"
            f" {'is' if hidden == 1 else 'are'} not shown: --isolation read_uncommitted does"
        )


# ---------------------------------------------------------------------------------------- printing


def _print(args: argparse.Namespace, partition: int, record: Record) -> None:
    if args.json:
        print_json(to_json(partition, record))
        return
    null: bytes = args.null
    key = null if record.key is None else record.key
    value = null if record.value is None else record.value
    if args.fields is not None:
        line = b"\t".join(_field(name, partition, record, null) for name in args.fields)
    elif args.key_separator is not None:
        line = key + args.key_separator + value
    else:
        line = value
    sys.stdout.buffer.write(line + b"\n")


def _field(name: str, partition: int, record: Record, null: bytes) -> bytes:
    match name:
        case "partition":
            return b"%d" % partition
        case "offset":
            return b"%d" % record.offset
        case "timestamp":
            return _time(record.timestamp).encode()
        case "headers":
            pairs = (
                name + b"=" + (null if value is None else value) for name, value in record.headers
            )
            return b",".join(pairs)
        case _:
            data = record.key if name == "key" else record.value
            return null if data is None else data


def _time(timestamp_ms: int) -> str:
    """ISO 8601 in UTC; the number itself where no calendar reaches."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    if timestamp_ms < 0:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
