"""One story, cut again and again: what each image must show, and what is done with it."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Final

from tests.powercut.cuts import Moment, choose, drawn, moments
from tests.powercut.disk import Cut, Disk
from tests.powercut.life import Known, Lived, live
from tests.powercut.rescue import rescue
from tests.powercut.trace import Event, read
from tests.powercut.worker import Worker

NOTHING: Final = Known([], 0, {})


class Explorer:
    """A store's life, and the lives that begin with a cut of it."""

    def __init__(self, worker: Worker, root: Path, seed: int) -> None:
        self.worker = worker
        self.root = root
        self.seed = seed
        self.random = random.Random(f"explorer {seed}")
        #: Images by the log's step at which they were cut.
        self.steps: Counter[str] = Counter()
        #: Images that were repaired; cuts in the middle of a start.
        self.repaired = self.second = 0
        self._count = 0

    def story(self, deeds: int, *, threads: bool = False) -> tuple[Disk, list[Event], Lived]:
        """A first life on an empty folder, recorded."""
        place = self.root / f"story-{self.seed}"
        (place / "data").mkdir(parents=True)
        disk = Disk(place)
        trace = self.root / f"story-{self.seed}.trace"
        lived = self.worker.call(
            live, place / "data", NOTHING, self.seed, "boot-0", trace, deeds, threads
        )
        events = list(read(trace))
        trace.unlink()
        shutil.rmtree(place)
        return disk, events, lived

    def explore(
        self,
        disk: Disk,
        events: list[Event],
        before: Known,
        lived: Lived,
        count: int,
        *,
        again: int,
        boot: str = "boot-0",
    ) -> None:
        """Cut a life at `count` moments; of every fifth image cut the start at `again` moments."""
        wanted = set(choose(events, count, self.random))
        for moment in moments(disk, events, before, lived.deeds, wanted, lived.now_ms):
            self._try(moment, boot, again if self.random.random() < 0.2 else 0)

    def _try(self, moment: Moment, boot: str, again: int) -> None:
        rng = random.Random(f"{self.seed} {self._count}")
        cut = drawn(rng)
        # kill -9: the machine goes on, so nothing of what was written is gone.
        killed = rng.random() < 0.1
        if killed:
            cut = Cut()
        # A disk, or a server that has it, can lose what it was given while the machine goes on.
        next_boot = boot if killed or rng.random() < 0.2 else f"{boot}+"
        self._count += 1
        image = self.root / f"image-{self.seed}-{self._count}"
        about = (
            f"seed {self.seed}, image {self._count}: cut behind event {moment.events} at step"
            f" `{moment.step}`, {'kill -9' if killed else cut}, boot {next_boot}"
        )
        try:
            self.steps[moment.step.partition(":")[0]] += 1
            self._look(moment, cut, image, next_boot, again, rng.random() < 0.15)
        except AssertionError as error:
            raise AssertionError(f"{about}\n{error}") from None
        finally:
            shutil.rmtree(image, ignore_errors=True)

    def _look(
        self, moment: Moment, cut: Cut, image: Path, boot: str, again: int, repair: bool
    ) -> None:
        data = moment.image(image, cut)
        if repair and (data / "log").is_dir():
            aside = image.with_name(image.name + "-repaired")
            shutil.copytree(image, aside)
            try:
                self.worker.call(rescue, aside / "data", moment.known)
                self.repaired += 1
            finally:
                shutil.rmtree(aside)
        seed = self.random.randrange(1 << 30)
        if not again:
            self.worker.call(live, data, moment.known, seed, boot, None, 4)
            return
        disk = Disk(image)
        trace = image.with_suffix(".trace")
        lived = self.worker.call(live, data, moment.known, seed, boot, trace, 6)
        events = list(read(trace))
        trace.unlink()
        self.second += again
        self.explore(disk, events, moment.known, lived, again, again=0, boot=boot)
