"""What commands print: tables for people, tabs for pipes, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence


def print_json(value: object) -> None:
    """One object on a line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str | None = None,
    optional: Sequence[str] = (),
) -> None:
    """A table on a terminal; tab-separated lines with headings in a pipe. None is shown as "-".

    Nothing is cut: where the terminal is too narrow, the columns named in `optional` are left out,
    the first ones first, and after them lines are long.
    """
    cells = [["-" if cell is None else str(cell) for cell in row] for row in (headings, *rows)]
    if not sys.stdout.isatty():
        for row in cells:
            sys.stdout.write("\t".join(row) + "\n")
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    shown = list(range(len(headings)))
    left_out = []
    for name in optional:
        if sum(widths[at] + 2 for at in shown) - 2 <= console.width or len(shown) == 1:
            break
        shown.remove(list(headings).index(name))
        left_out.append(name)
    numeric = [
        all(cell == "-" or cell.lstrip("-").isdigit() for cell in column[1:])
        for column in zip(*cells, strict=True)
    ]
    if title:
        console.print(Text(title, style="italic"))
    for number, row in enumerate(cells):
        line = "  ".join(_aligned(row[at], widths[at], numeric[at], cell_len) for at in shown)
        console.print(Text(line.rstrip(), style="" if number else "bold"))
    if left_out:
        say(f"too narrow for: {', '.join(left_out)} (--json shows all)")


def _aligned(text: str, width: int, right: bool, length: Callable[[str], int]) -> str:
    padding = " " * (width - length(text))
    return padding + text if right else text + padding


def print_rows(
    as_json: bool,
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str | None = None,
    optional: Sequence[str] = (),
) -> None:
    """The same rows as a table or as JSON objects, keyed by the headings."""
    if as_json:
        for row in rows:
            print_json(dict(zip(headings, row, strict=True)))
    else:
        print_table(headings, rows, title, optional)


def say(text: str) -> None:
    """To the person, not the pipe."""
    print(text, file=sys.stderr, flush=True)


def fail(error: object) -> int:
    """One line on standard error, and the exit status of a command that failed."""
    say(f"ottla: {error}")
    return 1


def count(number: int, noun: str) -> str:
    """1 record, 2,000 records."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def settings_text(settings: Mapping[str, str]) -> str:
    """key=value pairs in one line."""
    return " ".join(f"{name}={value}" for name, value in sorted(settings.items()))
