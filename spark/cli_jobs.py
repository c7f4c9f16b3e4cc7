"""From the command's options to the jobs, and what they print."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ottla.spark.errors import JobError

console = Console(stderr=True)
NEEDED = ("pyspark", "pyarrow", "confluent_kafka")


def run(args: argparse.Namespace) -> int:
    """Run the job that was asked for; gives the exit status. Raises JobError."""
    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        raise JobError(f"{', '.join(lacking)} not installed: pip install 'ottla[spark]'")
    return _JOBS[args.job](args)


def _session(args: argparse.Namespace, *extras: str) -> Any:
    from ottla.spark.records import key_values
    from ottla.spark.session import session

    if getattr(args, "format", "") == "delta":
        extras = (*extras, "delta")
    settings = key_values(args.conf, "--conf")
    with console.status("starting Spark"):
        return session(args.job, master=args.master, extras=extras, settings=settings)


def _kafka(args: argparse.Namespace) -> dict[str, str]:
    from ottla.spark.records import key_values

    return key_values(args.kafka, "--kafka")


def _cluster(args: argparse.Namespace) -> Any:
    from ottla.spark.cluster import Cluster

    return Cluster(args.bootstrap_server, _kafka(args))


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on the terminal; gives a function that takes what is done and what there is in all."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=None)

        def show(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield show


def archive(args: argparse.Namespace) -> int:
    from ottla.spark.archive import ArchiveOptions, open_store
    from ottla.spark.archive import archive as run_archive
    from ottla.spark.values import ValueSchema

    if not args.topic and not args.pattern:
        raise JobError("--topic or --pattern: which topics?")
    if args.dead_letter_topic and not args.schema:
        raise JobError("--dead-letter-topic needs --schema: without one, no value is bad")
    schema = ValueSchema.load(args.value_format, args.schema) if args.schema else None
    options = ArchiveOptions(
        topics=args.topic,
        pattern=args.pattern,
        batch_size=args.batch_size,
        committed=args.isolation == "read_committed",
        allow_gaps=args.allow_gaps,
        follow=args.follow,
        schema=schema,
        dead_letter_topic=args.dead_letter_topic,
        compression=args.compression,
        settings=_kafka(args),
    )
    avro = ("avro",) if schema is not None and schema.format != "json" else ()
    spark = _session(args, *avro)
    store = open_store(spark, args.archive, args.format)
    with store.writing(), progress("archiving records") as show:
        done = run_archive(
            spark, _cluster(args), store, options, lambda done, more: show(done, done + more)
        )
    after = " (of which some finish a batch that was cut off)" if done.recovered else ""
    console.print(f"{done.records:,} records in {done.batches} batches{after}: {args.archive}")
    return 0


def compact(args: argparse.Namespace) -> int:
    from ottla.spark.compact import compact as run_compact
    from ottla.spark.store import ParquetStore

    store = ParquetStore(args.archive)
    with progress("merging groups of files") as show:
        done = run_compact(
            _session(args),
            store,
            target_bytes=args.target_mib * 1024 * 1024,
            grace=args.grace,
            compression=args.compression,
            progress=show,
        )
    console.print(
        f"{done.replaced} files became {done.written}; {done.removed} replaced files removed"
    )
    return 0


_JOBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "archive": archive,
    "compact": compact,
}


def print_json(document: object) -> None:
    json.dump(document, sys.stdout, indent=1, default=str)
    print()
