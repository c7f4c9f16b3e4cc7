"""`ottla inspect` and `ottla repair`: data folders, without a broker."""

from __future__ import annotations

import argparse
import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ottla.broker.cli_errors import ClientError
from ottla.broker.cli_output import fail, print_json, print_rows, say
from ottla.broker.folder_errors import named, unusable
from ottla.broker.metadata_rows import read_topic
from ottla.log.commit import Commit
from ottla.log.errors import Damaged, NotALog
from ottla.log.folder import SealedName, parse_active
from ottla.log.options import Table
from ottla.log.outside import Outside
from ottla.log.segment import SealedSegment, load
from ottla.wire.codecs import Codec
from ottla.wire.records import BatchHeader, CorruptBatch, walk


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
        """Raises Damaged, NewerFormat, OSError."""
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
                try:
                    for _, header in walk(place.data):
                        yield header
                except CorruptBatch as error:
                    raise Damaged(self.path, str(error)) from None

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
                self.names |= _numbered(key, bytes(change.value))


def _numbered(key: bytes, value: bytes) -> dict[int, str]:
    """TOPIC-N by the log's number, of a row of table TOPICS."""
    _, numbers = read_topic(key, value)
    return {number: f"{key.decode()}-{index}" for index, number in enumerate(numbers)}


class Contents(NamedTuple):
    """What was read of a folder."""

    found: list[Segment]
    #: Files that a running broker is still writing: their sizes by name.
    written: dict[str, int]
    #: TOPIC-N by the log's number.
    names: dict[int, str]
    #: 1 when something cannot be read.
    status: int


def inspect(args: argparse.Namespace) -> int:
    """Print what a folder holds; gives the exit status."""
    folder = Path(args.folder)
    with named(folder):
        contents = _read(folder)
    if contents.written:
        for name, size in contents.written.items():
            say(
                f"{name} ({size:,} bytes) is being written by the broker: what is in it can be read"
                " from outside once the file is sealed, or the broker stopped"
            )
    number = _number(args.partition, contents)
    if args.records:
        if number is None:
            raise ClientError("--records needs --partition TOPIC-N")
        _print_batches(args, contents, number)
    else:
        if number is None:
            _print_files(args, contents)
        _print_partitions(args, contents, number)
    return contents.status


def _read(folder: Path) -> Contents:
    """Raises ClientError, LogError, OSError."""
    segments = folder / "log"
    if not folder.is_dir():
        raise ClientError(f"{folder}: there is no such folder")
    if not segments.is_dir():
        raise ClientError(f"{folder} is not an Ottla data folder (no log/ in it)")
    names: dict[int, str] = {}
    status = 0
    try:
        for key, value in Outside(folder).scan(Table.TOPICS):
            names |= _numbered(key, value)
    except NotALog as error:
        if not any(_is_segment(path.name) for path in segments.iterdir()):
            raise
        status = fail(f"{error}; `ottla repair` makes it again")
    except (Damaged, FileNotFoundError) as error:
        status = fail(f"{error}; `ottla repair` makes it again")
    with _lock(folder) as running:
        found, written, failed = _segments(segments, running)
    for segment in found:
        names = segment.names | names
    return Contents(found, written, names, status or failed)


def _is_segment(name: str) -> bool:
    return (
        name.endswith(".bad")
        or SealedName.parse(name) is not None
        or parse_active(name) is not None
    )


def _number(partition: str | None, contents: Contents) -> int | None:
    """The log's own number for --partition, which is TOPIC-N or that number. Raises ClientError."""
    if partition is None:
        return None
    for number, name in contents.names.items():
        if name == partition:
            return number
    held = {number for segment in contents.found for number in segment.parts}
    if partition.isascii() and partition.isdigit() and len(partition) < 20:
        number = int(partition)
        if number in held or number in contents.names:
            return number
    raise ClientError(f"{partition}: no such partition in this folder; give TOPIC-N, like orders-0")


@contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Whether a broker has the folder; if not, none can start meanwhile."""
    try:
        lock = open(folder / "lock", "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        yield False
        return
    with lock:
        yield not _alone(lock.fileno())


def _alone(lock: int) -> bool:
    """Whether no broker has the folder; none can start while the lock is held by us."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _segments(folder: Path, running: bool) -> tuple[list[Segment], dict[str, int], int]:
    """What can be read, by commit; files being written, by name; 1 when something cannot."""
    found: list[Segment] = []
    written: dict[str, int] = {}
    status = 0
    for path in sorted(folder.iterdir()):
        if path.name.endswith(".bad"):
            status = fail(f"{path} is set aside as damaged: `ottla repair` reads it")
            continue
        if not _is_segment(path.name):
            continue
        try:
            if running and parse_active(path.name) is not None:
                written[path.name] = path.stat().st_size
            else:
                found.append(Segment(path))
        except Damaged as error:
            status = fail(error)
        except FileNotFoundError:
            continue  # the broker has just replaced or dropped it
        except OSError as error:
            status = fail(unusable(path, error))
    return found, written, status


def _print_files(args: argparse.Namespace, contents: Contents) -> None:
    rows: list[tuple[object, ...]] = [
        (
            _file(args, segment.path.name),
            segment.kind,
            segment.first_commit,
            segment.last_commit,
            segment.size,
            len(segment.parts),
        )
        for segment in contents.found
    ]
    rows += [
        (_file(args, name), "written", parse_active(name), None, size, None)
        for name, size in contents.written.items()
    ]
    headings = ("file", "kind", "first_commit", "last_commit", "bytes", "partitions")
    print_rows(args.json, headings, rows, "Files", optional=("first_commit", "last_commit"))


def _file(args: argparse.Namespace, name: str) -> str:
    """A file's name; for people without the zeros that make names sort."""
    return name if args.json else re.sub(r"(?<![0-9])0+(?=[0-9])", "", name)


def _print_partitions(args: argparse.Namespace, contents: Contents, only: int | None) -> None:
    rows = [
        (
            part.partition,
            contents.names.get(part.partition, "?"),
            _file(args, segment.path.name),
            part.first_offset,
            part.last_offset,
            part.bytes,
            _time(part.max_timestamp),
        )
        for segment in contents.found
        for part in sorted(segment.parts.values())
        if only is None or part.partition == only
    ]
    headings = (
        *("partition", "topic", "file", "first_offset", "last_offset", "bytes"),
        "max_timestamp",
    )
    rows.sort(key=lambda row: (row[0], row[3]))
    optional = ("max_timestamp", "partition", "file")
    print_rows(args.json, headings, rows, "Partitions", optional=optional)


def _print_batches(args: argparse.Namespace, contents: Contents, number: int) -> None:
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
            _file(args, segment.path.name),
        )
        for segment in contents.found
        for header in segment.batches(number)
    ]
    title = f"Batches of {contents.names.get(number, f'partition {number}')}"
    optional = ("leader_epoch", "file", "base_sequence", "producer_id", "max_timestamp")
    print_rows(args.json, headings, rows, title, optional=optional)


def _time(timestamp: int) -> str:
    """ISO 8601, UTC; a timestamp that no calendar has as its number."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp)


def repair(args: argparse.Namespace) -> int:
    """Rescue a folder; gives the exit status: 1 when something is lost."""
    from ottla.log.repair import repair as rescue

    folder = Path(args.folder)
    with named(folder):
        if not folder.is_dir():
            raise ClientError(f"{folder}: there is no such folder")
        report = rescue(folder)
    if args.json:
        print_json(report.as_dict())
    else:
        for line in report.lines():
            print(line)
    return 1 if report.lost else 0
