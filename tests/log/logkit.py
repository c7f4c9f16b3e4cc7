"""A store without loop, clock or luck: everything inline, crashes as copies of the folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ottla.log.folder import no_step
from ottla.log.options import Change, PartitionSettings, StoreOptions, Table
from ottla.log.partition import Partition
from ottla.log.reading import Read
from ottla.log.store import Appended, Store
from ottla.wire.records import Record, build_batch, crc_ok, read_header, walk

BOOT = "boot-1"
#: Everything tiny, so that a few appends roll and seal.
TINY = StoreOptions(
    segment_bytes=256 * 1024,
    segment_extents=200,
    max_request_bytes=1 << 20,
    max_commit_bytes=1 << 20,
    large_extent_bytes=8 * 1024,
    disk_reserve_bytes=1 << 20,
    disk_check_ms=0,
    checkpoint_ms=0,
    checkpoint_rows=1000,
    warm_segments=1,
)


def scratch(prefix: str) -> Path:
    """A folder to make stores in; in memory where there is such a place, since nothing here is
    about how long a flush takes."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 1 << 30  # containers have 64 MB
    return Path(tempfile.mkdtemp(prefix=prefix, dir=memory if roomy else None))


def make_batch(
    count: int = 1,
    *,
    size: int = 20,
    fill: int = 0,
    time: int = 1000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytearray:
    """`count` records of `size` bytes; producer: id, epoch, first sequence."""
    rows = [Record(i, time + i, None, bytes([fill % 256]) * size) for i in range(count)]
    producer_id, epoch, sequence = producer
    return build_batch(
        rows,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=attributes,
    )


def open_store(
    path: Path,
    *,
    options: StoreOptions = TINY,
    boot_id: str = BOOT,
    now_ms: int = 0,
    step: Callable[[str], None] = no_step,
) -> Store:
    return Store.open(path, options=options, now_ms=now_ms, boot_id=boot_id, step=step)


def with_options(**changes: object) -> StoreOptions:
    return replace(TINY, **changes)  # type: ignore[arg-type] # names and types are the caller's


def new_partitions(store: Store, count: int = 1) -> list[Partition]:
    numbers, changes = store.new_partitions(count, PartitionSettings())
    commit(store, changes)
    return [store.partition(number) for number in numbers]


def commit(store: Store, changes: Sequence[Change]) -> None:
    ticket = store.change(changes)
    store.flush()
    assert ticket.done
    assert ticket.error is None


def append(store: Store, partition: Partition, batch: bytearray, now_ms: int = 1) -> Appended:
    """Admit; not committed yet."""
    return store.append(partition, batch, read_header(batch), now_ms)


def put(store: Store, partition: Partition, batch: bytearray, now_ms: int = 1) -> int:
    """Append and commit; the base offset."""
    appended = append(store, partition, batch, now_ms)
    store.flush()
    assert appended.ticket.done
    assert appended.ticket.error is None
    return appended.base_offset


def row(table: Table, key: bytes, value: bytes | None) -> Change:
    return Change(table, key, value)


def read_once(
    store: Store, partition: Partition, offset: int, max_bytes: int = 1 << 20, *, end: int = 1 << 62
) -> Read:
    """One read, cold or not. Raises what the store answers."""
    found = store.read(partition, offset, max_bytes, end=end, min_one=True)
    if isinstance(found, Read):
        return found
    box: list[Read | Exception] = []
    store.read_cold(found, box.append)
    (result,) = box
    if isinstance(result, Exception):
        raise result
    return result


def read_batches(
    store: Store, partition: Partition, offset: int = -1, max_bytes: int = 1 << 20
) -> list[tuple[int, bytes]]:
    """Base offset and bytes of every batch from `offset` (log start) to the high watermark."""
    if offset < 0:
        offset = partition.log_start_offset
    found = []
    while offset < partition.high_watermark:
        result = read_once(store, partition, offset, max_bytes)
        assert result.size == sum(map(len, result.buffers)) > 0
        for buffer in result.buffers:
            for pos, header in walk(buffer):
                assert crc_ok(buffer, header, pos)
                assert header.next_offset > offset, "went back"
                found.append((header.base_offset, bytes(buffer[pos : pos + header.size])))
                offset = header.next_offset
    return found


def without_epoch(batch: bytes) -> bytes:
    """A batch but for its leader epoch, the only part that is neither under a CRC nor held against
    what surrounds it: a flipped bit there is not seen."""
    return batch[:12] + batch[16:]


def crash_copy(path: Path, to: Path) -> Path:
    """What kill -9 would leave of the folder now, as a folder of its own."""
    shutil.copytree(path, to)
    return to
