"""An audit on a page: the verdict, a table of partitions, plots, examples of differences."""

from __future__ import annotations

from matplotlib import pyplot
from matplotlib.figure import Figure

from ottla.spark.audit import Audit, PartitionAudit
from ottla.spark.report import Report


def write_report(audit: Audit, path: str) -> None:
    """Raises JobError when the file cannot be written."""
    report = Report(f"Audit: {audit.left} and {audit.right}")
    report.text(verdict(audit), "good" if audit.same else "bad")
    report.table(("side", "what it is"), [("left", audit.left), ("right", audit.right)])
    report.heading("Partitions")
    head = ("partition", "records left", "records right", "first offset left", "last offset left")
    report.table(
        (*head, "offsets twice, both sides", "offsets missing left", "the same"),
        [
            (
                row.partition,
                row.left.records,
                row.right.records,
                row.left.first,
                row.left.last,
                row.left.duplicates + row.right.duplicates,
                row.left.missing_offsets,
                "yes" if row.same else "no",
            )
            for row in audit.partitions
        ],
    )
    report.text("The sums of the records' hashes, 128 bits in hexadecimal:")
    report.table(
        ("partition", "left", "right"),
        [(row.partition, row.left.hash, row.right.hash) for row in audit.partitions],
    )
    if audit.partitions:
        report.plot(_records_plot(audit), "records of each partition on both sides")
    notes = [(row.partition, *note) for row in audit.partitions for note in _notes(row)]
    if notes:
        report.heading("What is not on both sides, and why")
        report.table(("partition", "what", "how many", "explained"), notes)
        report.plot(_notes_plot(notes), "differences and gaps by reason")
    if audit.examples:
        report.heading("Some of the differences")
        names = list(audit.examples[0])
        report.table(names, [[row[name] for name in names] for row in audit.examples])
    report.write(path)


def verdict(audit: Audit) -> str:
    """One sentence."""
    if audit.same:
        return (
            f"The same: {audit.records:,} records in {len(audit.partitions)} partitions, compared "
            f"by {audit.align}; key, value, headers and timestamp agree, none missing, none twice."
        )
    bad = [row for row in audit.partitions if not row.same]
    what = "; ".join(
        f"partition {row.partition}: " + ", ".join(f"{n:,} {w}" for w, n in row.differences.items())
        for row in bad[:5]
    )
    return f"Not the same in {len(bad)} of {len(audit.partitions)} partitions. {what}."


def _notes(row: PartitionAudit) -> list[tuple[str, int, str]]:
    found = [(what, count, "no") for what, count in row.differences.items()]
    found += [(what, count, "yes") for what, count in row.explained.items()]
    for side, figure in (("left", row.left), ("right", row.right)):
        found += [
            (f"offsets without a record, {side}: {reason}", count, "yes")
            for reason, count in figure.gaps.items()
        ]
    return found


def _records_plot(audit: Audit) -> Figure:
    figure, axes = pyplot.subplots(figsize=(9, 3))
    places = range(len(audit.partitions))
    axes.bar([x - 0.2 for x in places], [p.left.records for p in audit.partitions], 0.4)
    axes.bar([x + 0.2 for x in places], [p.right.records for p in audit.partitions], 0.4)
    axes.set_xticks(list(places), [str(p.partition) for p in audit.partitions])
    axes.set_xlabel("partition")
    axes.set_ylabel("records")
    # Above the plot, where no bar can be.
    axes.legend(["left", "right"], frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _notes_plot(notes: list[tuple[int, str, int, str]]) -> Figure:
    totals: dict[tuple[str, str], int] = {}
    for _, what, count, explained in notes:
        totals[what, explained] = totals.get((what, explained), 0) + count
    figure, axes = pyplot.subplots(figsize=(9, 0.6 + 0.4 * len(totals)))
    colours = ["#b42318" if explained == "no" else "#888888" for _, explained in totals]
    axes.barh([what for what, _ in totals], list(totals.values()), color=colours)
    axes.set_xlabel("offsets or records (red: not explained)")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    return figure
