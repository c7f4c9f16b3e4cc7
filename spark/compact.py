"""compact: many small files of an archive become few, while others read and write it.

A compacted file takes the range of offsets of those it replaces, so that whoever sees both knows
which ones to pass over (`layout.visible`). It appears complete, by a rename, and then at once the
replaced files are removed; a crash in between leaves replaced files, which the next run removes.

Readers that list the folder by themselves may see both in between. No file system on which archives
live can exchange several files for one at a stroke; the other order would hide records from them.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ottla.spark.layout import DataFile, sync, visible
from ottla.spark.store import ParquetStore

TARGET_BYTES = 128 * 1024 * 1024


@dataclass
class Compacted:
    """What a run did, in files."""

    replaced: int = 0
    written: int = 0
    removed: int = 0


def compact(
    spark: SparkSession,
    store: ParquetStore,
    *,
    target_bytes: int = TARGET_BYTES,
    grace: float = 0.0,
    compression: str = "zstd",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Compacted:
    """Merge files of one partition and date up to about `target_bytes`.

    Replaced files stay for `grace` seconds after the run that replaced them (a later run removes
    them): for readers that hold a list of files. Raises JobError when another one is at work."""
    done = Compacted()
    with store.locked("compact"):
        state = store.state()
        files = store.files()
        chosen = visible(files, state)
        done.removed += _remove_replaced(store, files, chosen, grace)
        sizes = {file: (store.root / file.path).stat().st_size for file in chosen}
        todo = groups(chosen, sizes, target_bytes)
        folder = store.root / "_ottla" / "compacting"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        merging = zip(todo, _merged(spark, store.root, folder, todo, compression), strict=True)
        for number, (group, merged) in enumerate(merging, 1):
            for file, staged in merged:
                final = store.root / file.path
                store.place(staged, final)
                sync(final.parent)
                done.written += 1
                # At once: until then readers that go by what is there see these records twice.
                parts = [part for part in group if file.covers(part)]
                done.replaced += len(parts)
                done.removed += _remove_replaced(store, parts, [file], grace)
            progress(number, len(todo))
        shutil.rmtree(folder, ignore_errors=True)
    return done


def groups(
    files: Iterable[DataFile], sizes: dict[DataFile, int], target: int
) -> list[list[DataFile]]:
    """Runs of neighbours of one partition and date that together stay within the target."""
    found: list[list[DataFile]] = []
    for _, same in groupby(files, key=lambda f: (f.topic, f.date, f.partition)):
        run: list[DataFile] = []
        for file in same:
            if run and sum(sizes[f] for f in run) + sizes[file] > target:
                found.append(run)
                run = []
            run.append(file)
        found.append(run)
    return [run for run in found if len(run) > 1]


def _merged(
    spark: SparkSession,
    root: Path,
    folder: Path,
    todo: list[list[DataFile]],
    compression: str,
) -> Iterable[list[tuple[DataFile, Path]]]:
    """Have the executors merge each group, some groups at a time; gives what they wrote."""
    at_once = max(1, spark.sparkContext.defaultParallelism) * 4
    for first in range(0, len(todo), at_once):
        some = todo[first : first + at_once]
        tasks = spark.sparkContext.parallelize(some, len(some))
        yield from tasks.map(lambda group: merge(root, folder, group, compression)).collect()


def merge(
    root: Path, folder: Path, group: list[DataFile], compression: str
) -> list[tuple[DataFile, Path]]:
    """Write one file for each run of files of one schema; runs of one file are left alone.

    The schema changes within a partition and date when values began to be parsed that day."""
    written = []
    for schema, same in groupby(group, key=lambda f: pq.read_schema(root / f.path)):
        run = list(same)
        if len(run) == 1:
            continue
        path = folder / f"{uuid.uuid4().hex}.parquet"
        with pq.ParquetWriter(path, schema, compression=compression) as writer:
            for file in run:
                for batch in pq.ParquetFile(root / file.path).iter_batches():
                    writer.write_batch(batch)
        written.append((replace(run[0], end=run[-1].end), path))
    return written


def _remove_replaced(
    store: ParquetStore, files: list[DataFile], kept: list[DataFile], grace: float
) -> int:
    removed = 0
    covering: dict[tuple[str, str, int], list[DataFile]] = {}
    for file in kept:
        covering.setdefault((file.topic, file.date, file.partition), []).append(file)
    for file in set(files) - set(kept):
        for wide in covering.get((file.topic, file.date, file.partition), ()):
            if wide.covers(file):
                age = time.time() - (store.root / wide.path).stat().st_ctime
                if age >= grace:
                    (store.root / file.path).unlink(missing_ok=True)
                    removed += 1
    return removed
