"""The disk met in this run: what a flush costs now, and what a folder takes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

BLOCK = b"\0" * 4096


def flush_times(folder: Path, seconds: float = 0.5) -> list[float]:
    """Seconds of each 4 KiB append + fdatasync, in a row for `seconds`, at least 10."""
    path = folder / "flush-time"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    sync = getattr(os, "fdatasync", os.fsync)
    times: list[float] = []
    try:
        end = time.perf_counter() + seconds
        while len(times) < 10 or time.perf_counter() < end:
            os.write(handle, BLOCK)
            begin = time.perf_counter()
            sync(handle)
            times.append(time.perf_counter() - begin)
    finally:
        os.close(handle)
        path.unlink()
    return times


def write_cost(folder: Path, block: int, volume: int) -> float:
    """CPU seconds a GB of writing `volume` bytes to a new file in blocks, without a flush.

    The kernel's copy alone, which every broker pays: from 0.2 to over 3 s/GB, worst in virtual
    machines that give free memory back, where each fresh page costs the host a fault.
    """
    path = folder / "write-cost"
    data = b"\x01" * block
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        begin = time.process_time()
        for _ in range(volume // block):
            os.write(handle, data)
        used = time.process_time() - begin
    finally:
        os.close(handle)
        path.unlink()
    return used / (volume // block * block / 1e9)


def bytes_on_disk(folder: Path) -> int:
    """Bytes of the blocks that the files below `folder` take: holes do not count."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def filesystem(folder: Path) -> str:
    """Type of the file system that holds `folder`, such as ext4; tmpfs makes every flush free."""
    best = ("", "unknown")
    resolved = str(folder.resolve())
    for part in psutil.disk_partitions(all=True):
        inside = resolved == part.mountpoint or resolved.startswith(
            part.mountpoint.rstrip("/") + "/"
        )
        if inside and len(part.mountpoint) > len(best[0]):
            best = (part.mountpoint, part.fstype)
    return best[1]


def free_bytes(folder: Path) -> int:
    return int(psutil.disk_usage(str(folder)).free)
