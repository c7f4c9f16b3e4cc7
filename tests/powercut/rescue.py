"""`ottla repair` of an image: it must say that nothing is lost, and be right."""

from __future__ import annotations

from pathlib import Path

from tests.powercut.life import Known, live
from tests.powercut.world import Create

from ottla.log.repair import Report, repair


def lost(report: Report, compacted: set[int]) -> bool:
    """Whether a report tells of losses. Those of compacted partitions do not count here: in the
    middle of a pass they are told of wrongly, which a test of test_single_cuts.py says by itself
    (test_a_repair_in_the_middle_of_a_compaction_says_that_nothing_is_lost)."""
    return bool(report.notes) or any(gap.partition not in compacted for gap in report.gaps)


def rescue(folder: Path, known: Known) -> None:
    """Repair what a power cut left of a folder, then start on it. Runs in a worker."""
    report = repair(folder)
    told = "\n  ".join(report.lines())
    compacted = {
        fact.partition
        for deed in known.deeds
        for fact in deed
        if isinstance(fact, Create) and fact.kind == "compact"
    }
    assert not lost(report, compacted), f"a repair says that something is lost:\n  {told}"
    try:
        live(folder, known, 1, "boot after a repair", None, 1)
    except AssertionError as error:
        raise AssertionError(f"after a repair that said\n  {told}\n{error}") from None
