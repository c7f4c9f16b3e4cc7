"""`ottla docs`: the pages of the documentation that come with the package."""

from __future__ import annotations

import argparse
import sys
from difflib import get_close_matches
from pathlib import Path

import ottla
from ottla.broker.cli_output import fail, print_json, print_rows

#: Beside the packages: `docs` of the repository, without the notes on single changes.
FOLDER = Path(ottla.__file__).parent / "docs"
_UNPUBLISHED = "changes"


def docs(args: argparse.Namespace) -> int:
    """List the pages, or print one: formatted in a terminal, as Markdown into a pipe."""
    found = pages()
    if args.page is None:
        print_rows(args.json, ("page", "title"), ((name, title(found[name])) for name in found))
        return 0
    name = args.page.removeprefix("docs/").removesuffix(".md")
    if name not in found:
        close = get_close_matches(name, found, n=3) or [p for p in found if p.endswith(f"/{name}")]
        hint = f"did you mean {' or '.join(close)}?" if close else "`ottla docs` lists them"
        return fail(f"there is no page {args.page}; {hint}")
    text = found[name].read_text(encoding="utf-8")
    if args.json:
        print_json({"page": name, "title": title(found[name]), "text": text})
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text, hyperlinks=False))
    else:
        sys.stdout.write(text)
    return 0


def pages() -> dict[str, Path]:
    """The file of each page by its name, such as `spark/start`."""
    files = {file.relative_to(FOLDER).with_suffix("").as_posix(): file for file in _files()}
    return dict(sorted(files.items(), key=lambda item: ("/" in item[0], item[0])))


def _files() -> list[Path]:
    return [
        file
        for folder in (FOLDER, *(path for path in FOLDER.iterdir() if path.is_dir()))
        if folder.name != _UNPUBLISHED
        for file in folder.glob("*.md")
    ]


def title(page: Path) -> str:
    """The text of the page's first heading."""
    with page.open(encoding="utf-8") as lines:
        return next((line[2:].strip() for line in lines if line.startswith("# ")), page.stem)
