"""Results as a table, as JSON and as Markdown. The JSON holds every value."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.targets import ALL, KAFKA, KAFKA_FLUSH1, OTTLA, OTTLA_OS

TITLES = {
    OTTLA: "Ottla fsync",
    KAFKA_FLUSH1: "Kafka flush=1",
    OTTLA_OS: "Ottla os",
    KAFKA: "Kafka default",
}
# Ottla over Kafka with the same promise, and over Kafka as people run it.
RATIOS = {
    "fsync / flush=1": (OTTLA, KAFKA_FLUSH1),
    "fsync / default": (OTTLA, KAFKA),
    "os / default": (OTTLA_OS, KAFKA),
}
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


@dataclass
class FigureResult:
    """One figure: every value by variant, in the order measured."""

    name: str
    unit: str
    aim: float | None
    values: dict[str, list[float]] = field(default_factory=dict)

    def median(self, variant: str) -> float | None:
        values = self.values.get(variant)
        return statistics.median(values) if values else None


@dataclass
class RowResult:
    """One row; `notes` says by variant why a figure is missing, `flush` what a flush cost then."""

    name: str
    title: str
    figures: list[FigureResult]
    notes: dict[str, str] = field(default_factory=dict)
    flush: dict[str, float] = field(default_factory=dict)


@dataclass
class Report:
    """A whole run. `machine` holds what a reader must know to compare it with another run."""

    machine: dict[str, str]
    rows: list[RowResult] = field(default_factory=list)

    def write_json(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def read_json(path: Path) -> Report:
    """A report written by `write_json`. Raises KeyError or ValueError when it is none."""
    data = json.loads(path.read_text())
    rows = [
        RowResult(
            one["name"],
            one["title"],
            [FigureResult(**figure) for figure in one["figures"]],
            one["notes"],
            one["flush"],
        )
        for one in data["rows"]
    ]
    return Report(data["machine"], rows)


def number(value: float | None) -> str:
    """Three significant digits, no exponent."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return (
        f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.2f}"
        if abs(value) >= 1
        else f"{value:.3f}"
    )


def flush_text(report: Report) -> str:
    """Flush time over the whole run: lowest, median and highest of what the rows met."""
    met = sorted(value for one in report.rows for value in one.flush.values())
    if not met:
        return "not measured"
    low, middle, high = met[0], statistics.median(met), met[-1]
    return f"{middle * 1e3:.2f} ms (from {low * 1e3:.2f} to {high * 1e3:.2f}, by row)"


def _columns(report: Report) -> list[str]:
    present = {v for r in report.rows for f in r.figures for v in f.values}
    present |= {v for r in report.rows for v in r.notes}
    return [variant for variant in TITLES if variant in present and variant in ALL]


def _ratios(columns: list[str]) -> list[str]:
    return [name for name, (top, bottom) in RATIOS.items() if top in columns and bottom in columns]


def _ratio(figure: FigureResult, name: str) -> str:
    top, bottom = (figure.median(variant) for variant in RATIOS[name])
    return "-" if top is None or not bottom else f"{top / bottom:.2f}"


def _aim(figure: FigureResult) -> str:
    """The aim, marked when the durable Ottla misses it."""
    if figure.aim is None:
        return ""
    measured = figure.median(OTTLA)
    missed = measured is not None and measured > figure.aim
    return f"< {number(figure.aim)}" + (" MISSED" if missed else "")


def cells(report: Report) -> list[list[str]]:
    """Heading and lines of the table: row, figure, aim, medians, ratios."""
    columns = _columns(report)
    ratios = _ratios(columns)
    table = [["row", "figure", "aim", *(TITLES[column] for column in columns), *ratios]]
    for one in report.rows:
        for place, figure in enumerate(one.figures):
            medians = [number(figure.median(column)) for column in columns]
            label = f"{figure.name} [{figure.unit}]"
            lead = [one.name if not place else "", label, _aim(figure)]
            table.append([*lead, *medians, *(_ratio(figure, name) for name in ratios)])
    return table


def table(report: Report) -> str:
    """The table as text, with the machine and the flush time above it."""
    rows = cells(report)
    widths = [max(len(line[at]) for line in rows) for at in range(len(rows[0]))]
    out = [f"{key}: {value}" for key, value in report.machine.items()]
    out += [f"flush (4 KiB append and fdatasync): {flush_text(report)}", ""]
    for place, line in enumerate(rows):
        left = [cell.ljust(width) for cell, width in zip(line[:3], widths[:3], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(line[3:], widths[3:], strict=True)]
        out.append("  ".join(left + right).rstrip())
        if not place:
            out.append("  ".join("-" * width for width in widths))
    out += ["", *notes(report)]
    return "\n".join(out)


def notes(report: Report) -> list[str]:
    """Why a figure is missing, a line each."""
    return [
        f"{one.name}, {TITLES[variant]}: {text.splitlines()[0]}"
        for one in report.rows
        for variant, text in one.notes.items()
    ]


def markdown(report: Report) -> str:
    """The same table in Markdown."""
    rows = cells(report)
    out = [f"- {key}: {value}" for key, value in report.machine.items()]
    out += [f"- flush (4 KiB append and fdatasync): {flush_text(report)}", ""]
    out.append("| " + " | ".join(rows[0]) + " |")
    out.append("| " + " | ".join(["---"] * 3 + ["---:"] * (len(rows[0]) - 3)) + " |")
    out += ["| " + " | ".join(line) + " |" for line in rows[1:]]
    if missing := notes(report):
        out += ["", *(f"- {line}" for line in missing)]
    return "\n".join(out)


def write_markdown(report: Report, path: Path) -> None:
    """Put the table between the marks of a page. Raises ValueError when the page has none."""
    page = path.read_text()
    if BEGIN not in page or END not in page:
        raise ValueError(f"{path} has no lines {BEGIN} and {END} to put the figures between")
    head, rest = page.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    path.write_text(f"{head}{BEGIN}\n{markdown(report)}\n{END}{tail}")
