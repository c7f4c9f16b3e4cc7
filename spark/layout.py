"""Where an archive's files are, what they are called, and what the names promise.

    ROOT/topic=flights/date=2013-01-01/p00003-00000000000000001200-00000000000000004800.parquet
    ROOT/_ottla/commits/00000000000000000007.json      what is archived, as of the last commit
    ROOT/_ottla/plans/00000000000000000008.json        a batch that has begun
    ROOT/_ottla/staging/...                            files that nobody may see yet

A file's name says its range: it holds every record of its partition and date whose offset is in
[first, second). Two files of one partition and date never overlap, but for a compacted file and
those it replaces, which lie within its range. Readers of Spark, Arrow and DuckDB pass over names
that begin with an underscore.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.spark.errors import JobError

FORMAT = 1
_FILE = re.compile(r"p(\d{5})-(\d{20})-(\d{20})\.parquet")


@dataclass(frozen=True, order=True)
class DataFile:
    """One data file by what its name says."""

    topic: str
    date: str
    partition: int
    start: int
    end: int

    @property
    def path(self) -> str:
        """Relative to the archive."""
        name = f"p{self.partition:05d}-{self.start:020d}-{self.end:020d}.parquet"
        return f"topic={self.topic}/date={self.date}/{name}"

    @classmethod
    def parse(cls, topic: str, date: str, name: str) -> DataFile | None:
        match = _FILE.fullmatch(name)
        return None if match is None else cls(topic, date, *map(int, match.groups()))

    def covers(self, other: DataFile) -> bool:
        same = (self.topic, self.date, self.partition) == (
            other.topic,
            other.date,
            other.partition,
        )
        return same and self.start <= other.start and other.end <= self.end


@dataclass
class Archived:
    """How far one partition is archived: offsets `start` to `next`, but for those in `lost`."""

    start: int
    next: int
    lost: list[list[int]] = field(default_factory=list)


@dataclass
class State:
    """What an archive holds after a commit; complete by itself, so only the last one is read."""

    commit: int = 0
    cluster_id: str = ""
    topic_ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, dict[int, Archived]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "commit": self.commit,
            "cluster_id": self.cluster_id,
            "topic_ids": self.topic_ids,
            "partitions": {
                topic: {str(p): vars(a) for p, a in sorted(parts.items())}
                for topic, parts in sorted(self.partitions.items())
            },
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> State:
        if raw.get("format") != FORMAT:
            raise JobError(
                f"--archive: written in format {raw.get('format')}, this version knows {FORMAT}; "
                "use the version of ottla that wrote it, or a newer one"
            )
        return cls(
            raw["commit"],
            raw["cluster_id"],
            raw["topic_ids"],
            {
                topic: {int(p): Archived(**a) for p, a in parts.items()}
                for topic, parts in raw["partitions"].items()
            },
        )

    def next_offsets(self, topic: str) -> dict[int, int]:
        return {p: a.next for p, a in self.partitions.get(topic, {}).items()}


def visible(files: Iterable[DataFile], state: State) -> list[DataFile]:
    """Of the files that are there, those that a consistent reader takes: committed, and not
    replaced by a compacted one. In order of partition, date and offset."""
    chosen: list[DataFile] = []
    # Widest first at each start: whatever lies within the one before it has been replaced.
    order = sorted(files, key=lambda f: (f.topic, f.date, f.partition, f.start, -f.end))
    for file in order:
        archived = state.partitions.get(file.topic, {}).get(file.partition)
        if archived is None or file.end > archived.next:
            continue
        if not (chosen and chosen[-1].covers(file)):
            chosen.append(file)
    return chosen


def write_atomically(path: Path, document: dict[str, Any]) -> None:
    """The file is there with all of it or not at all, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w") as out:
        json.dump(document, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    partial.rename(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
