"""A Parquet archive: files that every Parquet reader may read, each record in exactly one of them.

One batch goes through four steps, and a crash between any two is made good by the next run:

1. plan: ranges of offsets and the state that will hold afterwards, in one file, written atomically;
2. stage: Spark writes the ranges below `_ottla/staging`, where nobody looks;
3. publish: each file is synced and moved to its final name, unless that name is there already:
   then an earlier run of the same plan has published the same records;
4. commit: the plan file is renamed into `commits`.

A plan that is found is carried out again with its own ranges, so a file's name always means the
same records, however often a driver or an executor dies.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ottla.spark.cluster import Range
from ottla.spark.errors import JobError
from ottla.spark.layout import DataFile, State, sync, visible, write_atomically
from ottla.spark.records import COLUMNS

KEPT_COMMITS = 100  # the last one is enough; the others tell people what happened when
_PARTITIONING = ["_topic", "_partition", "_date"]


@dataclass(frozen=True)
class Plan:
    """One batch: what is read, and what is true once it is committed."""

    ranges: list[Range]
    state: State


class ParquetStore:
    """An archive on a file system that driver and executors share under one path."""

    def __init__(self, root: str | Path) -> None:
        text = str(root).removeprefix("file://")
        if "://" in text:
            raise JobError(
                f"--archive {root}: Parquet archives need a file system with atomic rename that is "
                "mounted on every machine; for object stores use --format delta"
            )
        self.root = Path(text).absolute()
        self._own = self.root / "_ottla"
        self._plans = self._own / "plans"
        self._commits = self._own / "commits"
        self._staging = self._own / "staging"

    # What is there

    def state(self) -> State:
        """The last commit; an empty state where there is no archive yet."""
        last = max(self._commits.glob("*.json"), default=None)
        return State() if last is None else State.from_json(json.loads(last.read_text()))

    def files(self, topics: Iterable[str] | None = None) -> list[DataFile]:
        """All data files by name, replaced and uncommitted ones too."""
        wanted = None if topics is None else set(topics)
        found = []
        for folder in self.root.glob("topic=*/date=*"):
            topic = folder.parent.name.removeprefix("topic=")
            if wanted is not None and topic not in wanted:
                continue
            for path in folder.iterdir():
                file = DataFile.parse(topic, folder.name.removeprefix("date="), path.name)
                if file is not None:
                    found.append(file)
        return found

    def snapshot(self, topic: str) -> list[DataFile]:
        """The files that hold what the last commit says, each record once."""
        state = self.state()  # before the listing: a file cannot be missing then
        return visible(self.files([topic]), state)

    def read(
        self,
        spark: SparkSession,
        topic: str,
        files: list[DataFile] | None = None,
        *,
        parsed: T.StructType | None = None,
    ) -> DataFrame:
        """A topic's records with the connector's columns and `date`; `parsed` adds `data` and
        `error`. Rows come in no particular order."""
        files = self.snapshot(topic) if files is None else files
        schema = T.StructType([*COLUMNS.fields, T.StructField("date", T.DateType())])
        names = [*COLUMNS.fieldNames(), "date"]
        if parsed is not None:
            schema = schema.add("data", parsed).add("error", T.StringType())
            names += ["data", "error"]
        if not files:
            return spark.createDataFrame([], T.StructType([schema[name] for name in names]))
        return (
            spark.read.schema(schema)
            .option("basePath", str(self.root))
            .parquet(*(str(self.root / file.path) for file in files))
            .select(*names)
        )

    # One writer at a time

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the archive for writing; the lock dies with the process. Raises JobError."""
        with self.locked("archive"):
            yield

    @contextmanager
    def locked(self, what: str) -> Iterator[None]:
        self._own.mkdir(parents=True, exist_ok=True)
        with (self._own / f"{what}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JobError(
                    f"--archive {self.root}: another {what} job is at work there; "
                    "one job may archive several topics"
                ) from None
            yield

    def pending(self) -> Plan | None:
        """The batch that an earlier run began and did not commit."""
        found = max(self._plans.glob("*.json"), default=None)
        if found is None:
            return None
        raw = json.loads(found.read_text())
        plan = Plan([Range(*part) for part in raw["ranges"]], State.from_json(raw))
        if plan.state.commit <= self.state().commit:
            raise JobError(f"--archive {self.root}: {found} was committed before; remove it")
        return plan

    def write(
        self, plan: Plan, rows: DataFrame, compression: str, seen: Callable[[DataFrame], None]
    ) -> int:
        """All four steps; gives the number of records. `seen` gets the batch's rows, read from
        what was staged, before any of them can be seen."""
        self.begin(plan)
        staged = self.stage(rows, compression)
        if any(staged.glob("*/*/*/part-*.parquet")):
            columns = {key[1:]: F.col(key) for key in _PARTITIONING[:1]}
            seen(rows.sparkSession.read.parquet(staged.as_uri()).withColumns(columns))
        count = self.publish(plan, staged)
        self.commit(plan)
        return count

    def begin(self, plan: Plan) -> None:
        """Step 1."""
        ranges = [[r.topic, r.partition, r.start, r.end] for r in plan.ranges]
        write_atomically(self._plan(plan), plan.state.to_json() | {"ranges": ranges})

    def stage(self, rows: DataFrame, compression: str) -> Path:
        """Step 2: one file for each partition and date, in offset order. Gives its folder."""
        shutil.rmtree(self._staging, ignore_errors=True)
        folder = self._staging / uuid.uuid4().hex
        keys = [
            F.col("topic").alias("_topic"),
            F.col("partition").alias("_partition"),
            F.to_date("timestamp").alias("_date"),
        ]
        (
            rows.select("*", *keys)
            .drop("topic")  # the path says it, and readers take it from there
            .sortWithinPartitions(*_PARTITIONING, "offset")
            .write.partitionBy(*_PARTITIONING)
            .option("compression", compression)
            .parquet(folder.as_uri())
        )
        return folder

    def publish(self, plan: Plan, staged: Path) -> int:
        """Step 3; gives the number of records in the plan's files."""
        ranges = {(r.topic, r.partition): r for r in plan.ranges}
        rows = 0
        folders = set()
        for path in sorted(staged.glob("*/*/*/part-*.parquet")):
            topic, partition, date = (part.split("=", 1)[1] for part in path.parts[-4:-1])
            part = ranges[topic, int(partition)]
            file = DataFile(topic, date, part.partition, part.start, part.end)
            final = self.root / file.path
            final.parent.mkdir(parents=True, exist_ok=True)
            rows += self.place(path, final)
            folders |= {final.parent, final.parent.parent}
        for folder in (*folders, self.root):
            sync(folder)
        return rows

    @staticmethod
    def place(staged: Path, final: Path) -> int:
        """Move one finished file to its name, unless it is there; gives its number of rows."""
        if final.exists():
            staged.unlink()
        else:
            sync(staged)
            staged.rename(final)
        return int(pq.read_metadata(final).num_rows)

    def commit(self, plan: Plan) -> None:
        """Step 4."""
        self._commits.mkdir(exist_ok=True)
        planned = self._plan(plan)
        planned.rename(self._commits / planned.name)
        sync(self._commits)
        sync(self._plans)
        shutil.rmtree(self._staging, ignore_errors=True)
        for old in sorted(self._commits.glob("*.json"))[:-KEPT_COMMITS]:
            old.unlink()

    def _plan(self, plan: Plan) -> Path:
        return self._plans / f"{plan.state.commit:020d}.json"
