"""HTML reports of one file: tables, and plots drawn with matplotlib as pictures within the page."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("agg")  # no window, wherever the job runs

from matplotlib import pyplot
from matplotlib.figure import Figure

from ottla.spark.errors import JobError

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #222 }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }}
td, th {{ padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right }}
td:first-child, th:first-child {{ text-align: left }}
img {{ max-width: 100%; margin: .5rem 0 }}
.good {{ color: #1a7f37 }} .bad {{ color: #b42318 }}
</style></head><body><h1>{title}</h1>
{body}
</body></html>
"""


class Report:
    """A page that grows from top to bottom."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str, kind: str = "") -> None:
        """A paragraph; `kind` is "good", "bad" or nothing."""
        self._parts.append(f'<p class="{kind}">{html.escape(text)}</p>')

    def table(self, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
        lines = [f"<tr>{cells}</tr>"]
        for row in rows:
            cells = "".join(f"<td>{html.escape(cell(value))}</td>" for value in row)
            lines.append(f"<tr>{cells}</tr>")
        self._parts.append(f"<table>{''.join(lines)}</table>")

    def plot(self, figure: Figure, alt: str) -> None:
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=110, bbox_inches="tight")
        pyplot.close(figure)
        data = base64.b64encode(picture.getvalue()).decode()
        self._parts.append(f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}">')

    def write(self, path: str) -> None:
        """Raises JobError when the file cannot be written."""
        page = _PAGE.format(title=html.escape(self._title), body="\n".join(self._parts))
        try:
            Path(path).write_text(page)
        except OSError as error:
            raise JobError(f"--report {path}: {error.strerror}") from error


def cell(value: object) -> str:
    """A value as people read it."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return str(value)
