"""`ottla consume`: records become lines."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from ottla.broker.cli_client import Cluster
from ottla.broker.cli_errors import ClientError
from ottla.broker.cli_groups import committed
from ottla.broker.cli_member import Member
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
        reader = Reader(cluster, topic, _ISOLATION[args.isolation], args.timeout)
        if args.group is not None:
            return _consume_as_member(cluster, args, reader)
        there = sorted(partition.partition_index for partition in topic.partitions)
        reader.positions = _positions(cluster, args, there)
        reader.after_each_fetch = _flush
        _set_ends(cluster, args, reader)
        return _print_all(args, reader, iter(reader), {})


def _consume_as_member(cluster: Cluster, args: argparse.Namespace, reader: Reader) -> int:
    if args.partition or by_partition(args.start or "", "--from"):
        raise ClientError("with --group the group decides about partitions: leave them out")
    check_where(args.start or "earliest", "--from")
    member = Member(cluster, args.group, args.topic, args.timeout)
    printed: dict[int, int] = {}  # the next offset by partition

    def after_fetch() -> bool:
        sys.stdout.flush()
        printed.update(reader.positions)
        return member.commit(printed) and not member.must_rejoin()

    def records() -> Iterator[tuple[int, Record]]:
        while True:
            printed.clear()
            owned = member.join()
            reader.positions = _committed_or(cluster, args, owned)
            _set_ends(cluster, args, reader)
            yield from reader
            if args.exit and all(
                reader.positions[index] >= end for index, end in (reader.ends or {}).items()
            ):
                return
            while not reader.positions and not member.must_rejoin():
                time.sleep(0.2)

    reader.after_each_fetch = after_fetch
    try:
        status = _print_all(args, reader, records(), printed)
        member.commit(printed)
        return status
    finally:
        with suppress(ClientError, KafkaError):
            member.leave()


def _committed_or(cluster: Cluster, args: argparse.Namespace, owned: list[int]) -> dict[int, int]:
    """What the group has committed; where it has nothing, --from."""
    offsets = committed(cluster, args.group)
    fresh = [index for index in owned if (args.topic, index) not in offsets]
    isolation = _ISOLATION[args.isolation]
    where = args.start or "earliest"
    begin = start_offsets(cluster, args.topic, fresh, where, "--from", isolation) if fresh else {}
    return {index: offsets.get((args.topic, index), begin.get(index, 0)) for index in owned}


def _set_ends(cluster: Cluster, args: argparse.Namespace, reader: Reader) -> None:
    """With --exit the reader ends at what is now the end."""
    if args.exit:
        isolation = _ISOLATION[args.isolation]
        reader.ends = list_offsets(cluster, args.topic, reader.positions, LATEST, isolation)
        if isolation == READ_COMMITTED:
            _say_what_is_hidden(cluster, args.topic, reader)


def _flush() -> bool:
    sys.stdout.flush()
    return True


def _print_all(
    args: argparse.Namespace,
    reader: Reader,
    records: Iterator[tuple[int, Record]],
    done: dict[int, int],
) -> int:
    """`done` gets the offset behind each record that was printed, by partition."""
    printed = 0
    try:
        if args.max_records != 0:
            for partition, record in records:
                _print(args, partition, record)
                done[partition] = record.offset + 1
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
        hint = f"; go on with --from {where}" if where and args.group is None else ""
        say(f"{count(printed, 'record')} {verb} printed{hint}")
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
