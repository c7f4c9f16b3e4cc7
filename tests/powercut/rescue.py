"""`ottla repair` of an image: it must say that nothing is lost, and be right."""

from __future__ import annotations

from pathlib import Path

from tests.powercut.life import Known, live

from ottla.log.repair import repair


def rescue(folder: Path, known: Known) -> None:
    """Repair what a power cut left of a folder, then start on it. Runs in a worker."""
    report = repair(folder)
    told = "\n  ".join(report.lines())
    assert not report.lost, f"a repair says that something is lost:\n  {told}"
    try:
        live(folder, known, 1, "boot after a repair", None, 1)
    except AssertionError as error:
        raise AssertionError(f"after a repair that said\n  {told}\n{error}") from None
