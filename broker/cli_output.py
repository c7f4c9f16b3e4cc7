"""What commands print: tables for people, tabs for pipes, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence


def print_json(value: object) -> None:
    """One object on a line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None
) -> None:
    """A table where somebody looks at it; tab-separated lines with headings where it is piped."""
    if not sys.stdout.isatty():
        for row in (headings, *rows):
            sys.stdout.write("\t".join(str(cell) for cell in row) + "\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold", box=None, padding=(0, 2))
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        table.add_row(
            *(Text(str(cell), justify="right" if isinstance(cell, int) else "left") for cell in row)
        )
    Console().print(table)


def print_rows(
    as_json: bool,
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str | None = None,
) -> None:
    """The same rows as a table or as JSON objects, keyed by the headings."""
    if as_json:
        for row in rows:
            print_json(dict(zip(headings, row, strict=True)))
    else:
        print_table(headings, rows, title)


def say(text: str) -> None:
    """To the person, not the pipe."""
    print(text, file=sys.stderr, flush=True)


def fail(error: object) -> int:
    """One line on standard error, and the exit status of a command that failed."""
    say(f"ottla: {error}")
    return 1


def settings_text(settings: Mapping[str, str]) -> str:
    """key=value pairs in one line."""
    return " ".join(f"{name}={value}" for name, value in sorted(settings.items()))
