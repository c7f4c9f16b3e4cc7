"""Power cuts, as a disk may leave them: nothing acknowledged is lost, nothing comes from nowhere.

How it works, and where:

- `recorder.c` is preloaded into a process (LD_PRELOAD). It puts every write, flush, rename, unlink
  and the like below one folder into a trace, with the data and in order; `trace.py` builds it and
  reads the trace. Applying a whole trace gives the real folder, byte for byte (test_recorder.py).
- `disk.py` is the disk: from the trace it knows at any moment what is certain and what is not, and
  makes an image of it with any choice of what is not.
- `life.py` drives a store through deeds of all kinds and puts marks into the trace before each is
  asked for and after it is acknowledged; `world.py` says what the deeds come to.
- `cuts.py` draws moments (some at each of the log's own steps) and choices; `explore.py` makes the
  images and sees that each opens and shows exactly the first n deeds, n between those acknowledged
  and those asked for. Then more is written, and the life that began so is cut, too: in the middle
  of its start, and behind it. Some images are given to `ottla repair` first.
- `worker.py` is the process in which all that runs: a crash of it is a failure, not the end.

All is drawn from seeds. A failure names its seed and image, and the same test finds it again (but
for those with threads, whose order is the machine's).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.powercut.explore import NOTHING, Explorer
from tests.powercut.worker import Worker

#: All of the log's steps that are cut in a short story.
STEPS = {"mark", "roll", "commit", "checkpoint", "seal", "copy", "rewrite"}


def explore(
    worker: Worker, root: Path, seed: int, deeds: int, images: int, again: int, threads: bool
) -> Explorer:
    explorer = Explorer(worker, root, seed)
    disk, events, lived = explorer.story(deeds, threads=threads)
    explorer.explore(disk, events, NOTHING, lived, images, again=again)
    return explorer


@pytest.mark.parametrize("seed", [1, 2])
def test_a_store_is_cut(worker: Worker, root: Path, seed: int) -> None:
    explorer = explore(worker, root, seed, deeds=70, images=70, again=5, threads=False)
    assert set(explorer.steps) >= STEPS
    assert explorer.second
    assert explorer.repaired


def test_a_store_with_its_threads_is_cut(worker: Worker, root: Path) -> None:
    explorer = explore(worker, root, 1001, deeds=90, images=70, again=5, threads=True)
    assert set(explorer.steps) >= STEPS - {"copy", "rewrite"}
    assert explorer.second


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 140))
def test_stores_are_cut_for_long(worker: Worker, root: Path, seed: int) -> None:
    explore(worker, root, seed, deeds=250, images=1000, again=20, threads=seed % 2 == 1)
