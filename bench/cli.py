"""The command line: which rows, which brokers, how large; runs them in turn and reports."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka

import bench.rows  # noqa: F401  (registers the rows)
from bench import disk, process, report
from bench.profile import Profiler
from bench.report import FigureResult, Report, RowResult
from bench.run import ROWS, NotServed, Row, Run
from bench.targets import ALL, Variant, variants

ROOT = Path(__file__).parent.parent
MIB = 1024 * 1024


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Ottla and Apache Kafka in turn: same client, same durability.",
        epilog="Apache Kafka: OTTLA_APACHE_HOME, or fetched once with Maven.",
    )
    out.add_argument(
        "rows", nargs="*", metavar="ROW", help="rows to run, or their beginnings (default: all)"
    )
    out.add_argument("--list", action="store_true", help="list the rows and leave")
    out.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that a row works, measures nothing"
    )
    out.add_argument(
        "--targets", default=",".join(ALL), help="variants, comma-separated (default: %(default)s)"
    )
    out.add_argument(
        "--repeat", type=int, default=3, help="measured passes a row (default: %(default)s)"
    )
    out.add_argument(
        "--data",
        type=Path,
        default=Path("/var/tmp"),
        help="where the brokers' folders go: the disk that is measured (default: %(default)s)",
    )
    out.add_argument(
        "--json", type=Path, help="write every value to this file (default: build/bench/TIME.json)"
    )
    out.add_argument(
        "--markdown", type=Path, metavar="PAGE", help="put the table between the marks of this page"
    )
    out.add_argument(
        "--from-json",
        type=Path,
        metavar="FILE",
        help="run nothing; print the table of an earlier run",
    )
    out.add_argument(
        "--profile",
        action="store_true",
        help="sample Ottla with py-spy, a file a row beside the JSON",
    )
    return out


def main(arguments: list[str] | None = None) -> int:
    """Run the bench. 0: all rows ran; 1: one failed; 2: nothing could be run."""
    options = parser().parse_args(arguments)
    # unwinds, so that no broker outlives a bench that was told to stop
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if options.list:
        for one in ROWS.values():
            print(f"{one.name:20} {one.title}")
        return 0
    if options.from_json:
        result = report.read_json(options.from_json)
        failed = False
    else:
        rows, chosen = pick_rows(options.rows), pick_variants(options.targets)
        if not rows or not chosen:
            return 2
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        target = options.json or ROOT / "build/bench" / f"{stamp}.json"
        result, failed = run_all(rows, chosen, options, target)
        print(f"\nevery value: {target}")
    print("\n" + report.table(result))
    if options.markdown:
        report.write_markdown(result, options.markdown)
    return 1 if failed else 0


def pick_rows(names: list[str]) -> list[Row]:
    """Rows whose name is, or begins with, one of `names`; all rows for none."""
    if not names:
        return list(ROWS.values())
    picked = []
    for name in names:
        found = (
            [ROWS[name]] if name in ROWS else [r for r in ROWS.values() if r.name.startswith(name)]
        )
        if not found:
            print(f"no row is called {name!r}; `--list` shows them", file=sys.stderr)
            return []
        picked += [one for one in found if one not in picked]
    return picked


def pick_variants(names: str) -> list[Variant]:
    """The variants asked for that can run here; says which cannot, and why."""
    table = variants()
    picked = []
    told: set[str] = set()
    for name in names.split(","):
        if name not in table:
            print(f"no variant is called {name!r}: {', '.join(table)}", file=sys.stderr)
            return []
        software = table[name].software
        if reason := software.missing():
            if software.name not in told:
                print(f"{software.name} is left out: {reason}", file=sys.stderr)
            told.add(software.name)
            continue
        picked.append(table[name])
    return picked


def run_all(
    rows: list[Row], chosen: list[Variant], options: argparse.Namespace, target: Path
) -> tuple[Report, bool]:
    """All rows, variants in turn within each. The JSON is written after every row."""
    profiler = Profiler(target.with_suffix("")) if options.profile else None
    if profiler and (reason := profiler.missing()):
        raise SystemExit(reason)
    process.raise_file_limit()
    failed = False
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=options.data) as name:
        folder = Path(name)
        result = Report(machine(folder, chosen, options))
        for one in rows:
            # sizes that measure nothing are not held against an aim
            aims = {f.name: None if options.quick else f.aim for f in one.figures}
            figures = [FigureResult(f.name, f.unit, aims[f.name]) for f in one.figures]
            done = RowResult(one.name, one.title, figures)
            result.rows.append(done)
            for variant in chosen:
                if variant.name in one.variants:
                    failed |= not run_one(one, variant, done, folder, options, profiler)
            result.write_json(target)
    return result, failed


def run_one(
    one: Row, variant: Variant, done: RowResult, folder: Path, options: argparse.Namespace,
    profiler: Profiler | None,
) -> bool:  # fmt: skip
    """One row on one variant into `done`; False when it failed."""
    flushes = disk.flush_times(folder, 0.1 if options.quick else 0.5)
    done.flush[variant.name] = statistics.median(flushes)
    sampled = profiler if profiler and variant.software.name == "Ottla" else None
    run = Run(variant, folder / "run", options.quick, 1 if options.quick else options.repeat)
    if sampled:
        run.on_start = sampled.start
    begin = time.perf_counter()
    try:
        one.measure(run)
    except NotServed as reason:
        done.notes[variant.name] = str(reason)
    except Exception as error:
        last = run.brokers[-1].last_lines() if run.brokers else ""
        done.notes[variant.name] = f"failed: {type(error).__name__}: {error}"
        print(f"{one.name} on {variant.title} failed: {error!r}\n{last}", file=sys.stderr)
        return False
    finally:
        if sampled:
            sampled.finish(f"{one.name}-{variant.name}")
        run.close()
    for figure in done.figures:
        if figure.name in run.values:
            figure.values[variant.name] = run.values[figure.name]
    print(progress(one, variant, done, time.perf_counter() - begin), flush=True)
    return True


def progress(one: Row, variant: Variant, done: RowResult, seconds: float) -> str:
    """A line as each variant ends."""
    if variant.name in done.notes:
        return f"{one.name:20} {variant.title:14} {done.notes[variant.name]}"
    shown = ", ".join(
        f"{figure.name} {report.number(figure.median(variant.name))} {figure.unit}"
        for figure in done.figures
    )
    return f"{one.name:20} {variant.title:14} {shown}  ({seconds:.0f} s)"


def machine(folder: Path, chosen: list[Variant], options: argparse.Namespace) -> dict[str, str]:
    """What a reader must know to compare this run with another."""
    software = {v.software.name: v.software.version() for v in chosen}
    out = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{cpu_model()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "software": ", ".join(f"{name} {version}" for name, version in software.items()),
        "client": f"librdkafka {confluent_kafka.libversion()[0]}",
        "Python": platform.python_version(),
        "file system": disk.filesystem(folder),
        "writing a file": write_costs(folder, 8 * MIB if options.quick else 256 * MIB),
        "load before the run": f"{process.load_average():.2f}",
        "passes": "1, quick sizes: not a measurement"
        if options.quick
        else f"median of {options.repeat}",
    }
    if out["file system"] == "tmpfs":
        out["warning"] = (
            "the data lies in memory: flushes cost nothing, durable figures mean nothing"
        )
    return out


def write_costs(folder: Path, volume: int) -> str:
    """The kernel's part of every produced GB, in small and in large writes."""
    small, large = (disk.write_cost(folder, block, volume) for block in (64 * 1024, MIB))
    return f"{small:.2f} CPU s/GB in 64 KiB blocks, {large:.2f} in 1 MiB blocks"


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
