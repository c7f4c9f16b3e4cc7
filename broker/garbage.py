"""Keeps the garbage collector from looking at the same objects again and again.

Ten thousand groups are some hundred thousand objects, and a full collection that looks at all of
them holds up the loop for 35 ms, though none of them is garbage. What has survived a collection
that took long is therefore set aside (`gc.freeze`): the next one only looks at what came since.
What is set aside is freed as ever when nothing refers to it, unless it is part of a circle, as a
connection and its transport are: so now and then everything is looked at.

The same holds for what a request of thousands of things is read into: it is set aside after each
slice of work (slices.py), or one collection would look at all of it in one piece.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Final

LONG_MS: Final = 3.0
"""A collection that takes as much CPU time sets aside what survives it."""
THOROUGH: Final = 100
"""After so many of these one looks at everything again."""
SLICES: Final = 5000
"""The same after so many slices."""


class Tenure:
    """What Python calls before and after each collection."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        """`clock`: CPU time of this thread in seconds."""
        self._clock = clock
        self._began = 0.0
        self._times = 0
        self._slices = 0

    def start(self) -> None:
        """What there is now lives as long as the process: never worth looking at again."""
        gc.freeze()
        gc.callbacks.append(self)

    def stop(self) -> None:
        gc.callbacks.remove(self)

    def after_slice(self) -> None:
        """Long work goes on later: what it has made so far is not looked at before it ends."""
        self._slices += 1
        gc.freeze()

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] != 2:
            return
        if phase == "start":
            if self._times >= THOROUGH or self._slices >= SLICES:
                self._times = self._slices = 0
                gc.unfreeze()
            self._began = self._clock()
        elif (self._clock() - self._began) * 1000 >= LONG_MS:
            self._times += 1
            gc.freeze()
