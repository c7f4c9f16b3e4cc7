"""`ottla docs`: pages by name, and what the pages and messages refer to is there."""

from __future__ import annotations

import json
import re

import pytest

from ottla.broker.cli import main
from ottla.broker.cli_docs import FOLDER, pages


def test_without_a_name_the_pages_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "page\ttitle"
    assert "configuration\tConfiguration" in lines
    assert "spark/start\tSpark, from nothing to a running stream" in lines
    assert not any(line.startswith("changes/") for line in lines)


@pytest.mark.parametrize("name", ["configuration", "configuration.md", "docs/configuration.md"])
def test_a_page_is_printed_as_it_is_into_a_pipe(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["docs", name]) == 0
    assert capsys.readouterr().out == (FOLDER / "configuration.md").read_text()


def test_json_holds_the_text_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "--json", "spark/jobs"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["page"] == "spark/jobs"
    assert printed["text"].startswith(f"# {printed['title']}\n")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("configurations", "did you mean configuration?"),
        ("start", "did you mean spark/start?"),
        ("../../pyproject", "`ottla docs` lists them"),
        ("zzz", "`ottla docs` lists them"),
    ],
)
def test_an_unknown_page_is_an_error_with_the_nearest(
    name: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["docs", name]) == 1
    assert capsys.readouterr().err == f"ottla: there is no page {name}; {hint}\n"


def test_links_between_pages_lead_to_pages_that_are_installed() -> None:
    for name, page in pages().items():
        for link in re.findall(r"\]\((?!https?:|#)([^)#]*)", page.read_text()):
            target = (page.parent / link).resolve()
            assert target.is_file(), f"{name}: {link}"
            assert target.is_relative_to(FOLDER.resolve()), f"{name}: {link}"


def test_pages_that_help_and_messages_name_exist() -> None:
    package = FOLDER.parent
    text = " ".join(
        file.read_text()
        for part in ("broker", "log", "spark")
        for file in (package / part).rglob("*.py")
    )
    named = set(re.findall(r"`ottla docs ([a-z/]+)`", text))
    assert "configuration" in named
    assert named <= set(pages())
