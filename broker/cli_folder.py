"""`ottla inspect` and `ottla repair`: data folders, without a broker."""

from __future__ import annotations

import argparse
import fcntl
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ottla.broker.cli_client import ClientError
from ottla.broker.cli_output import fail, print_json, print_rows, say
from ottla.broker.metadata_rows import read_topic
from ottla.log.commit import Commit
from ottla.log.errors import Damaged
from ottla.log.folder import SealedName, parse_active
from ottla.log.options import Table
from ottla.log.segment import SealedSegment, load
from ottla.wire.codecs import Codec
from ottla.wire.records import BatchHeader, walk


class Part(NamedTuple):
    """What one file holds of one partition."""

    partition: int
    first_offset: int
    last_offset: int
    bytes: int
    max_timestamp: int


class Place(NamedTuple):
    """Where the batches of one extent lie."""

    partition: int
    data: memoryview


class Segment:
    """One file of the log, read without LMDB and without a lock on anything but the folder."""

    def __init__(self, path: Path) -> None:
        """Raises Damaged, NewerFormat."""
        self.path = path
        self.size = path.stat().st_size
        self.parts: dict[int, Part] = {}
        self.names: dict[int, str] = {}
        """Topics and partitions made in this file, by the log's number."""
        self._places: list[Place] = []
        name = SealedName.parse(path.name)
        if name is None:
            first = parse_active(path.name)
            assert first is not None
            self.kind = "active"
            self.first_commit = first
            self.last_commit = load(path, first, None, self._commit).last
        else:
            self.kind = "sealed"
            self.first_commit, self.last_commit = name.first, name.last
            self._read_index(SealedSegment(path, name))

    def batches(self, partition: int) -> Iterator[BatchHeader]:
        """The headers of a partition's batches."""
        for place in self._places:
            if place.partition == partition:
                for _, header in walk(place.data):
                    yield header

    def _read_index(self, segment: SealedSegment) -> None:
        segment.check()
        for totals in segment.index.partitions():
            self.parts[totals.partition] = Part(
                totals.partition, totals.first, totals.last, totals.length, totals.max_timestamp
            )
            for row in range(totals.start, totals.start + totals.rows):
                self._places.append(Place(totals.partition, segment.extent(row)))
        with suppress(Damaged):  # a rewritten file has no commits of its own: no names in it
            load(self.path, segment.first, None, lambda commit, *_: self._topics(commit))

    def _commit(self, commit: Commit, file: memoryview, slots: dict[int, int]) -> None:
        for row in commit.rows:
            part = self.parts.get(row.partition, Part(row.partition, row.first, -1, 0, -1))
            self.parts[row.partition] = Part(
                row.partition,
                part.first_offset,
                row.last,
                part.bytes + row.length,
                max(part.max_timestamp, row.max_timestamp),
            )
            start = slots[row.slot] + row.position
            self._places.append(Place(row.partition, file[start : start + row.length]))
        self._topics(commit)

    def _topics(self, commit: Commit) -> None:
        for change in commit.changes():
            if change.table == Table.TOPICS and change.value is not None:
                key = bytes(change.key)
                _, numbers = read_topic(key, bytes(change.value))
                for index, number in enumerate(numbers):
                    self.names[number] = f"{key.decode()}-{index}"


def inspect(args: argparse.Namespace) -> int:
    """Print what a folder holds; gives the exit status."""
    folder = Path(args.folder)
    segments = folder / "log"
    if not segments.is_dir():
        raise ClientError(f"{folder} is no data folder of Ottla: it has no folder named log")
    with open(folder / "lock", "rb") as lock:
        running = not _alone(lock.fileno())
        found, status = _segments(segments, running)
    if running and not args.json:
        say("the broker is running: only sealed files are read")
    names = {number: name for segment in found for number, name in segment.names.items()}
    if args.records:
        return _print_batches(args, found) or status
    _print_files(args, found)
    _print_partitions(args, found, names)
    return status


def _alone(lock: int) -> bool:
    """Whether no broker has the folder; none can start while the lock is held by us."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _segments(folder: Path, running: bool) -> tuple[list[Segment], int]:
    """What can be read, by commit; 1 when something cannot."""
    found, status = [], 0
    for path in sorted(folder.iterdir()):
        sealed = SealedName.parse(path.name) is not None
        active = parse_active(path.name) is not None and not running
        if path.name.endswith(".bad"):
            status = fail(f"{path} is set aside as damaged: `ottla repair` reads it")
        elif sealed or active:
            try:
                found.append(Segment(path))
            except Damaged as error:
                status = fail(error)
            except FileNotFoundError:
                continue  # the broker has just replaced or dropped it
    return found, status


def _print_files(args: argparse.Namespace, found: list[Segment]) -> None:
    rows = [
        (
            segment.path.name,
            segment.kind,
            segment.first_commit,
            segment.last_commit,
            segment.size,
            len(segment.parts),
        )
        for segment in found
    ]
    headings = ("file", "kind", "first_commit", "last_commit", "bytes", "partitions")
    print_rows(args.json, headings, rows, "Files")


def _print_partitions(
    args: argparse.Namespace, found: list[Segment], names: dict[int, str]
) -> None:
    rows = [
        (
            part.partition,
            names.get(part.partition, "?"),
            segment.path.name,
            part.first_offset,
            part.last_offset,
            part.bytes,
            _time(part.max_timestamp),
        )
        for segment in found
        for part in sorted(segment.parts.values())
    ]
    headings = (
        *("partition", "topic", "file", "first_offset", "last_offset", "bytes"),
        "max_timestamp",
    )
    print_rows(args.json, headings, sorted(rows), "Partitions")


def _print_batches(args: argparse.Namespace, found: list[Segment]) -> int:
    if args.partition is None:
        return fail("--records needs --partition, a number from the list without --records")
    headings = (
        *("offset", "last_offset", "records", "bytes", "codec", "max_timestamp"),
        *("producer_id", "base_sequence", "leader_epoch", "file"),
    )
    rows = [
        (
            header.base_offset,
            header.last_offset,
            header.record_count,
            header.size,
            Codec(header.codec).name,
            _time(header.max_timestamp),
            header.producer_id,
            header.base_sequence,
            header.partition_leader_epoch,
            segment.path.name,
        )
        for segment in found
        for header in segment.batches(args.partition)
    ]
    print_rows(args.json, headings, rows, f"Batches of partition {args.partition}")
    return 0


def _time(timestamp: int) -> str:
    """ISO 8601, UTC; a timestamp that no calendar has as its number."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp)


def repair(args: argparse.Namespace) -> int:
    """Rescue a folder; gives the exit status: 1 when something is lost."""
    from ottla.log.repair import repair as rescue

    report = rescue(Path(args.folder))
    if args.json:
        print_json(report.as_dict())
    else:
        for line in report.lines():
            print(line)
    return 1 if report.lost else 0
