"""Where a broker's CPU goes: py-spy beside a row that runs (`pip install py-spy`), Ottla only.

py-spy samples all threads from outside, so the broker needs no option for it and runs nearly at
speed; cProfile would see one thread and slow each call down. Only the thread running Python is
sampled (`--gil`): what the kernel does for the broker (flushes, copies) shows in `perf record`.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

RATE = 250
LINE = re.compile(r":\d+\)$")


class Profiler:
    """Samples every process given to `start`; `finish` writes one text file for the row."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []

    @staticmethod
    def missing() -> str | None:
        return (
            None
            if shutil.which("py-spy")
            else "--profile needs py-spy on the PATH: pip install py-spy"
        )

    def start(self, pid: int) -> None:
        """Begin to sample a process; ends with it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        raw = self.folder / f"{pid}.raw"
        command = ["py-spy", "record", "--pid", str(pid), "--rate", str(RATE), "--gil", "--threads"]
        command += ["--format", "raw", "--output", str(raw)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._running.append((process, raw))

    def finish(self, name: str) -> Path | None:
        """Stop sampling; the samples by function as NAME.txt, or None when there were none."""
        stacks: Counter[tuple[str, ...]] = Counter()
        for process, raw in self._running:
            process.send_signal(signal.SIGINT)
            process.wait(30)
            if raw.exists():
                stacks += read_raw(raw)
                raw.unlink()
        self._running.clear()
        if not stacks:
            return None
        path = self.folder / f"{name}.txt"
        path.write_text(summary(stacks))
        return path


def read_raw(path: Path) -> Counter[tuple[str, ...]]:
    """py-spy's raw format: frames joined by ';', outermost first, a blank and the count."""
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in path.read_text().splitlines():
        frames, _, count = line.rpartition(" ")
        stacks[tuple(frames.split(";"))] += int(count)
    return stacks


def summary(stacks: Counter[tuple[str, ...]], lines: int = 40) -> str:
    """Share of samples by function: on top of the stack (self), anywhere in it (with callees)."""
    total = sum(stacks.values())
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for stack, count in stacks.items():
        functions = [LINE.sub(")", frame) for frame in stack]
        own[functions[-1]] += count
        for frame in set(functions):
            whole[frame] += count
    out = [f"{total} samples at {RATE} a second", "", "self"]
    out += [f"{count / total:7.1%}  {frame}" for frame, count in own.most_common(lines)]
    out += ["", "with callees"]
    out += [f"{count / total:7.1%}  {frame}" for frame, count in whole.most_common(lines)]
    return "\n".join(out) + "\n"
