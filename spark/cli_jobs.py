"""From the command's options to the jobs, and what they print."""

from __future__ import annotations

import argparse
import atexit
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from ottla.spark.errors import JobError, install

console = Console(stderr=True)
NEEDED = ("pyspark", "pyarrow", "confluent_kafka")


def run(args: argparse.Namespace) -> int:
    """Run the job that was asked for; gives the exit status. Raises JobError."""
    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        raise JobError(f"{', '.join(lacking)} not installed: {install('spark')}")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return _JOBS[args.job](args)
    except (PySparkException, Py4JError) as error:
        # Pages of Java follow the lines that say something.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = [line for line in lines if not line.startswith(("at ", "..."))]
        raise JobError("Spark failed: " + " ".join(said[:6])[:2000]) from error
    except OSError as error:
        raise JobError(f"{error.strerror or error}: {error.filename}") from error


def _session(
    args: argparse.Namespace, *extras: str, check: Callable[[], None] = lambda: None
) -> Any:
    """Start Spark, once everything that can be checked without it is; `check` is the job's own."""
    from ottla.spark import cli_checks
    from ottla.spark.records import key_values
    from ottla.spark.session import session

    with console.status("looking at the options"):
        cli_checks.check(args)
        check()

    if getattr(args, "format", "") == "delta":
        extras = (*extras, "delta")
    settings = key_values(args.conf, "--conf")
    # A line, not a spinner: Java writes to the terminal meanwhile.
    console.print("starting Spark")
    spark = session(args.job, master=args.master, extras=extras, settings=settings)
    # Executors that are told to stop do not report that they were lost.
    atexit.register(spark.stop)
    return spark


def _kafka(args: argparse.Namespace) -> dict[str, str]:
    from ottla.spark.records import key_values

    return key_values(args.kafka, "--kafka")


def _cluster(args: argparse.Namespace) -> Any:
    from ottla.spark.cluster import Cluster

    return Cluster(args.bootstrap_server, _kafka(args))


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on the terminal; gives a function that takes what is done and what there is in all."""
    with steps() as show:
        show(title, 0, None)
        yield lambda done, total: show(title, done, total)


@contextmanager
def steps() -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar for each title; gives a function that takes one, what is done and what there is."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        tasks: dict[str, TaskID] = {}

        def show(title: str, done: int, total: int | None) -> None:
            if title not in tasks:
                tasks[title] = bar.add_task(title, total=total)
            bar.update(tasks[title], completed=done, total=total)

        yield show


def archive(args: argparse.Namespace) -> int:
    from ottla.spark.archive import ArchiveOptions, open_store, topic_pattern
    from ottla.spark.archive import archive as run_archive
    from ottla.spark.values import ValueSchema

    if not args.topic and not args.pattern:
        raise JobError("--topic or --pattern: which topics?")
    if args.pattern:
        topic_pattern(args.pattern)
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
    spark = _session(args)
    with progress("merging groups of files") as show:
        done = run_compact(
            spark,
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


def replay(args: argparse.Namespace) -> int:
    from ottla.spark.archive import open_store
    from ottla.spark.records import key_values
    from ottla.spark.replay import ReplayOptions, bounds
    from ottla.spark.replay import replay as run_replay

    for text, option in ((args.start, "--from"), (args.end, "--until")):
        if text is not None:
            bounds(text, option)
    options = ReplayOptions(
        topic=args.topic,
        target=args.to,
        start=args.start,
        end=args.end,
        rate=args.rate,
        append=args.append,
        compression=args.compression,
        topic_configs=key_values(args.topic_config, "--topic-config"),
    )
    if args.format == "delta" and args.state is None:
        raise JobError("--state is needed with --format delta: where may the plan be kept?")
    folder = Path(args.state or Path(args.archive) / "_ottla" / "replays")
    spark = _session(args)
    store = open_store(spark, args.archive, args.format)
    with progress("records in the target") as show:
        done = run_replay(spark, _cluster(args), store, options, folder, show)
    before = f" ({done.held:,} were there from an earlier run)" if done.held else ""
    console.print(f"{done.sent:,} records sent to {args.to}{before}")
    return 0


def backfill(args: argparse.Namespace) -> int:
    from ottla.spark.archive import open_store
    from ottla.spark.backfill import BackfillOptions, folder_sink, topic_sink
    from ottla.spark.backfill import backfill as run_backfill

    if bool(args.to_folder) == bool(args.to_topic):
        raise JobError("--to-folder or --to-topic: exactly one of them")
    spark = _session(args)
    if args.to_folder:
        sink = folder_sink(args.to_folder)
    else:
        sink = topic_sink(args.bootstrap_server, args.to_topic, _kafka(args))
    with progress("records handed over") as show:
        done = run_backfill(
            spark,
            _cluster(args),
            open_store(spark, args.archive, args.format),
            sink,
            BackfillOptions(
                topic=args.topic,
                checkpoint=args.checkpoint,
                follow=args.follow,
                batch_size=args.batch_size,
                settings=_kafka(args),
            ),
            lambda count: show(count, None),
        )
    console.print(f"{done.archived:,} records from the archive, {done.live:,} from the topic")
    return 0


def audit(args: argparse.Namespace) -> int:
    from ottla.spark.archive import open_store
    from ottla.spark.audit import archive_side, topic_side
    from ottla.spark.audit import audit as run_audit
    from ottla.spark.audit_report import verdict, write_report
    from ottla.spark.cluster import Cluster

    if bool(args.archive) == bool(args.other_topic):
        raise JobError("--archive or --other-topic: exactly one of them, to compare with")
    spark = _session(args)
    settings = _kafka(args)
    left = topic_side(spark, _cluster(args), args.topic, settings)
    if args.archive:
        name = args.archive_topic or args.topic
        right = archive_side(
            spark, open_store(spark, args.archive, args.format), name, args.archive
        )
    else:
        name = None
        other = Cluster(args.other_bootstrap_server or args.bootstrap_server, settings)
        right = topic_side(spark, other, args.other_topic, settings)
    align = args.align or ("offsets" if name == args.topic else "order")
    with console.status("comparing") as status:
        result = run_audit(left, right, align=align, stage=status.update)
    if args.report:
        write_report(result, args.report)
    if args.json:
        print_json(asdict(result) | {"same": result.same})
    console.print(verdict(result), style="green" if result.same else "red")
    return 0 if result.same else 1


def profile(args: argparse.Namespace) -> int:
    from ottla.spark.profile import profile as run_profile
    from ottla.spark.profile import write_report

    spark, cluster = _session(args), _cluster(args)
    with console.status("reading") as status:
        found = [
            run_profile(
                spark,
                cluster,
                topic,
                buckets=args.buckets,
                sample=args.sample,
                settings=_kafka(args),
                stage=status.update,
            )
            for topic in args.topic
        ]
    write_report(found, args.report)
    if args.json:
        print_json([asdict(one) for one in found])
    for one in found:
        console.print(f"{one.topic}: {one.records:,} records, {one.bytes:,} bytes")
    console.print(f"report: {args.report}")
    return 0


def lag(args: argparse.Namespace) -> int:
    from ottla.spark.cli_checks import check
    from ottla.spark.lag import GroupCommits, Offsets, committed, follow

    def say(batch: int, offsets: Offsets) -> None:
        places = ", ".join(f"{topic}-{p} at {at}" for (topic, p), at in sorted(offsets.items()))
        console.print(f"batch {batch} to group {args.group}: {places}", soft_wrap=True)

    with console.status("looking at the options"):
        committed(Path(args.checkpoint))  # is it one?
        check(args)
    commits = GroupCommits(args.group, args.bootstrap_server, _kafka(args))
    try:
        if not follow(Path(args.checkpoint), commits, every=args.follow, say=say):
            console.print(f"no finished batch yet in {args.checkpoint}")
    finally:
        commits.close()
    return 0


def flights(args: argparse.Namespace) -> int:
    from ottla.spark.flights import FlightsOptions, check_topics
    from ottla.spark.flights import flights as run_flights

    options = FlightsOptions(
        folder=args.folder,
        prefix=args.prefix,
        days=args.days,
        batch_size=args.batch_size,
        settings=_kafka(args),
    )
    spark = _session(args, check=lambda: check_topics(_cluster(args), options))
    with steps() as show:
        flown = run_flights(spark, _cluster(args), options, show)
    console.print(
        f"{flown.flights:,} flights and {flown.weather:,} weather reports became {flown.rows:,} "
        f"delays by carrier and hour, in topic {options.topic('delays')} and {args.folder}/delays"
    )
    console.print(f"plot: {flown.plot}")
    return 0


_JOBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "archive": archive,
    "compact": compact,
    "replay": replay,
    "backfill": backfill,
    "audit": audit,
    "profile": profile,
    "lag": lag,
    "flights": flights,
}


def print_json(document: object) -> None:
    json.dump(document, sys.stdout, indent=1, default=str)
    print()
