"""What the log costs without broker or socket: admission, commits, reads, restarts.

    python bench/log_micro.py [FOLDER]

CPU is that of the whole process (loop and committing thread). "simulated" replaces the device's
flush by a sleep of 1 ms in the committing thread, so that runs can be compared; "real" prints the
flush that the device gave. FOLDER should be on the disk in question (default: the current one).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ottla.log.options import PartitionSettings, StoreOptions
from ottla.log.partition import Partition
from ottla.log.reading import Cold, Read
from ottla.log.store import Store
from ottla.wire.records import Record, build_batch, read_header

BOOT = "bench"
GB = 1e9


def make(path: Path, options: StoreOptions, post: Callable[..., object] | None) -> Store:
    return Store.open(path, options=options, now_ms=0, boot_id=BOOT, post=post)


def new_partitions(store: Store, count: int) -> list[int]:
    numbers, changes = store.new_partitions(count, PartitionSettings())
    store.change(changes)
    store.flush()
    return numbers


def batch_of(size: int, count: int = 1) -> bytearray:
    each = max(1, (size - 61) // count - 8)
    return build_batch([Record(i, 1000, None, os.urandom(each)) for i in range(count)])


async def settle(store: Store) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    store.settled().then(lambda _: ready.set_result(None))
    await ready


def simulate_flush(store: Store, seconds: float) -> None:
    """Commits under `os` durability pay no flush; this one is paid in the committing thread."""
    committer = store.pipeline.committer
    assert committer is not None
    commit = committer.commit

    def slow(groups: list) -> object:  # type: ignore[type-arg] # a bench
        outcome = commit(groups)
        if seconds:
            time.sleep(seconds)
        return outcome

    committer.commit = slow  # type: ignore[method-assign,assignment] # a bench
    # os keeps commits on the loop: put them on the thread as fsync does.
    store.pipeline.options = replace(store.options, durability="fsync")
    store.pipeline.start_writer()


class Rate:
    def __init__(self) -> None:
        self.wall = time.perf_counter()
        self.cpu = time.process_time()

    def stop(self) -> tuple[float, float]:
        return time.perf_counter() - self.wall, time.process_time() - self.cpu


async def small_appends(folder: Path, simulated: float | None, in_flight: int, total: int) -> None:
    """`in_flight` producers, each sends its next small batch when the last is committed."""
    loop = asyncio.get_running_loop()
    options = StoreOptions(durability="fsync" if simulated is None else "os")
    path = Path(tempfile.mkdtemp(dir=folder))
    store = make(path, options, loop.call_soon_threadsafe)
    if simulated is not None:
        simulate_flush(store, simulated)
    numbers = new_partitions(store, in_flight)
    await settle(store)
    batches = [batch_of(200) for _ in numbers]
    headers = [read_header(b) for b in batches]
    partitions = [store.partition(n) for n in numbers]
    left = total
    finished: asyncio.Future[None] = loop.create_future()
    waiting = False
    first = store.committed

    def turn() -> None:
        nonlocal waiting
        waiting = False
        store.flush()

    def send(index: int) -> None:
        nonlocal left, waiting
        left -= 1
        if left < 0:
            if not finished.done():
                finished.set_result(None)
            return
        appended = store.append(partitions[index], batches[index], headers[index], 1)
        appended.ticket.then(lambda _: send(index))
        if not waiting:
            waiting = True
            loop.call_soon(turn)

    rate = Rate()
    for index in range(in_flight):
        send(index)
    await finished
    wall, cpu = rate.stop()
    commits = store.committed - first
    name = "real flush" if simulated is None else f"simulated {simulated * 1e3:.0f} ms"
    print(
        f"small appends, {in_flight:4d} in flight, {name}: {total / wall:9,.0f}/s"
        f" {cpu / total * 1e6:6.1f} us CPU each, {commits / wall:7,.0f} commits/s"
        f" ({wall / commits * 1e3:.2f} ms, {total / commits:.0f} a commit)"
    )
    store.close()
    shutil.rmtree(path)


async def large_appends(folder: Path, size: int, total: float) -> None:
    loop = asyncio.get_running_loop()
    path = Path(tempfile.mkdtemp(dir=folder))
    store = make(path, StoreOptions(), loop.call_soon_threadsafe)
    numbers = new_partitions(store, 4)
    await settle(store)
    template = batch_of(size)
    header = read_header(template)
    partitions = [store.partition(n) for n in numbers]
    rate = Rate()
    count = int(total / size)
    for index in range(count):
        store.append(partitions[index % 4], bytearray(template), header, 1)
        if store.pending_bytes > 64 << 20:
            store.flush()
            while store.pending_bytes > 32 << 20:
                await asyncio.sleep(0.001)
        elif index % 8 == 7:
            store.flush()
            await asyncio.sleep(0)
    store.flush()
    await settle(store)
    wall, cpu = rate.stop()
    gb = count * size / GB
    files = sum(p.stat().st_blocks * 512 for p in path.rglob("*"))
    print(
        f"append {size:>8,} B: {gb / wall:5.2f} GB/s, {cpu / gb:5.2f} CPU s/GB,"
        f" {files / (gb * GB):.2f} bytes on disk per byte"
    )
    await settle_seals(store)
    for name, warm in (("loop", 1000), ("reader thread", 0)):
        store.options = replace(store.options, warm_segments=warm)
        await read_all(store, partitions, name)
    store.close()
    shutil.rmtree(path)


async def settle_seals(store: Store) -> None:
    while store.layout.rolled:
        await asyncio.sleep(0.01)


async def read_all(store: Store, partitions: list[Partition], name: str) -> None:
    loop = asyncio.get_running_loop()
    rate = Rate()
    size = reads = 0
    for partition in partitions:
        offset = 0
        end = partition.high_watermark
        while offset < end:
            found = store.read(partition, offset, 1 << 20, end=end, min_one=True)
            if isinstance(found, Cold):
                ready: asyncio.Future[Read | Exception] = loop.create_future()
                store.read_cold(found, ready.set_result)
                result = await ready
                assert isinstance(result, Read), result
                found = result
            size += found.size
            reads += 1
            last = found.buffers[-1]
            pos, header = 0, read_header(last)
            while pos + header.size < len(last):
                pos += header.size
                header = read_header(last, pos)
            offset = header.next_offset
    wall, cpu = rate.stop()
    print(
        f"  read back by 1 MiB, {name}: {size / GB / wall:6.2f} GB/s,"
        f" {cpu / (size / GB):5.2f} CPU s/GB, {wall / reads * 1e6:6.0f} us a read"
    )


def restart(folder: Path, partitions: int, appends: int) -> None:
    path = Path(tempfile.mkdtemp(dir=folder))
    store = make(path, StoreOptions(durability="os"), None)
    numbers = new_partitions(store, partitions)
    batch = batch_of(200)
    header = read_header(batch)
    for index in range(appends):
        store.append(store.partition(numbers[index % partitions]), batch, header, 1)
        if index % 16 == 0:
            store.flush()
    store.flush()
    killed = path.with_name(path.name + "-killed")
    shutil.copytree(path, killed)
    store.close()
    rate = Rate()
    store = make(killed, StoreOptions(durability="os"), None)
    wall, _ = rate.stop()
    ends = sum(store.partition(n).high_watermark for n in numbers)
    every, _ = rate.stop()
    assert ends == appends
    print(
        f"restart after kill -9, {partitions:,} partitions, {appends:,} extents: {wall * 1e3:6.1f}"
        f" ms, with every partition touched {every * 1e3:6.1f} ms"
    )
    store.close()
    shutil.rmtree(path)
    shutil.rmtree(killed)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    for in_flight, total in ((1, 2_000), (16, 30_000), (128, 100_000)):
        asyncio.run(small_appends(folder, 0.001, in_flight, total))
        asyncio.run(small_appends(folder, None, in_flight, total))
    asyncio.run(small_appends(folder, 0.0, 16, 50_000))
    for size in (1 << 20, 16 << 10, 1 << 10):
        asyncio.run(large_appends(folder, size, 1e9 if size > 1 << 10 else 1e8))
    for partitions, appends in ((1_000, 20_000), (5_000, 100_000)):
        restart(folder, partitions, appends)


if __name__ == "__main__":
    main()
