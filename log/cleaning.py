"""Which records of a compacted partition stay: the latest of each key.

Kafka's rules (`Cleaner.buildOffsetMap`, `shouldRetainRecord`, `checkBatchRetention`):

- What lies between `cleaned` and `end` is learned: the last offset of each key. Up to `end` a
  record stays if nothing later was learned for its key; one without a key goes.
- A tombstone (null value) that is the latest of its key stays until its batch's delete horizon:
  the time of the compaction that found it first, and delete.retention.ms.
- A batch that loses all its records goes, unless it ends at `end` (so that the log still ends
  where it did) or is the last of a producer (so that its sequence can still be told).
- All records of an aborted transaction go; those of a committed one are like any others.
- A transaction's marker stays as long as one of its batches does, and from then until its own
  delete horizon (as if it were a tombstone); a marker that is all the log knows of a producer's
  epoch stays without its record.
- Nothing is looked at behind the first offset of a transaction that is open, and of batches that
  cannot be opened (their producer's doing) nothing goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import blake2b
from itertools import compress
from typing import Final, NamedTuple

from ottla.log.commit import IDEMPOTENT, Extent
from ottla.log.outcomes import Outcomes
from ottla.log.readers import bring_in
from ottla.log.segment import SealedSegment
from ottla.log.transactions import Aborted
from ottla.wire.codecs import Buffer
from ottla.wire.errors import KafkaError
from ottla.wire.records import BatchHeader, open_records, record_heads, walk
from ottla.wire.retain import delete_horizon, is_tombstone, keep_header, keep_records

#: What one key takes in `Cleaner.latest`, about: a digest, an offset, their place in the table.
KEY_BYTES: Final = 200
#: Records looked at between two pauses: about a millisecond.
SLICE_RECORDS: Final = 256

_DIGEST_SIZE: Final = 16
_READ_BYTES: Final = 1 << 20


class _Verdict(NamedTuple):
    """What is to become of a batch that does not stay as it is."""

    opened: Buffer
    #: For each record, whether it stays.
    stays: bytearray
    #: The delete horizon it gets, if any.
    horizon: int | None


_NOTHING: Final = _Verdict(b"", bytearray(), None)


def digest(key: Buffer) -> bytes:
    """Stands for a key: 16 bytes of BLAKE2b, the key itself where it is shorter."""
    if len(key) < _DIGEST_SIZE:
        return bytes(key)
    return blake2b(key, digest_size=_DIGEST_SIZE).digest()


class Cleaner:
    """One partition's part in one compaction. `learn` first, then ask; on the background thread."""

    def __init__(
        self,
        number: int,
        start: int,
        cleaned: int,
        *,
        now_ms: int,
        delete_retention_ms: int,
        drop_tombstones: bool,
        last_batches: Collection[int],
        aborted: Aborted,
        pause: Callable[[], None],
    ) -> None:
        """start: log start. cleaned: what the last compaction got to. last_batches: base offsets
        of producers' last batches. aborted: the partition's aborted transactions, a copy. pause:
        called often, to give the loop its turn."""
        self.number = number
        self.start = start
        self.cleaned = cleaned
        #: The last offset of each key that was learned.
        self.latest: dict[bytes, int] = {}
        #: What this compaction gets to.
        self.end = cleaned
        #: The latest delete horizon of the tombstones that stay, ms; -1 without any.
        self.horizon = -1
        self._new_horizon = now_ms + delete_retention_ms
        self._drop_before = now_ms if drop_tombstones else -1
        #: Offsets of the markers whose record went.
        self.unmarked: set[int] = set()
        self._last_batches = last_batches
        self._aborted = aborted
        self._outcomes = Outcomes(Aborted())
        self._pause = pause
        self._looked_at = 0

    # ---------------------------------------------------------------------------------- learning

    def learn(self, segments: Sequence[SealedSegment], until: int, most: int) -> bool:
        """Learn the keys up to the offset `until`, which is then `end`; at most so many: the first
        for which there is no room is `end` then, and the answer False. Raises LogError, OSError."""
        self._outcomes = Outcomes(self._aborted)
        whole = self._learn_keys(segments, until, most)
        headers = self._of_producers(segments)
        self._outcomes.look_for_markers(headers, self._must_stand)
        return whole

    def _learn_keys(self, segments: Sequence[SealedSegment], until: int, most: int) -> bool:
        latest = self.latest
        for batch, header in self._batches(segments, self.cleaned, until):
            if header.is_control or self._outcomes.is_aborted(header):
                continue
            try:
                opened = open_records(batch, header)
                for head in record_heads(opened, header.record_count):
                    self._count()
                    offset = header.base_offset + head.offset_delta
                    if head.key_length < 0 or offset < self.cleaned:
                        continue
                    key = digest(opened[head.key_start : head.key_start + head.key_length])
                    if len(latest) >= most and key not in latest:
                        self.end = offset
                        return False
                    latest[key] = offset
            except KafkaError:
                continue
        self.end = until
        return True

    def _of_producers(self, segments: Sequence[SealedSegment]) -> Iterator[BatchHeader]:
        """The headers of all batches below `end` that have a producer."""
        for segment in segments:
            for view in self._extents(segment, self.start, self.end, IDEMPOTENT):
                for _, header in walk(view):
                    if header.has_producer and self.start <= header.last_offset < self.end:
                        yield header

    # ------------------------------------------------------------------------------------ asking

    def changes(self, segment: SealedSegment) -> bool:
        """Whether anything goes, or gets a delete horizon, in this segment. Raises LogError,
        OSError."""
        return any(
            self._judge(batch, header) is not None
            for batch, header in self._batches([segment], self.start, self.end)
        )

    def filter(self, extents: Iterator[Extent]) -> Iterator[Extent]:
        """What stays of these extents; see `rewrite`."""
        for extent in extents:
            left = extent if extent.first >= self.end else self._filtered(extent)
            if left is not None:
                yield left

    def _filtered(self, extent: Extent) -> Extent | None:
        (view,) = extent.buffers
        view = memoryview(view)
        left = Extent(extent.partition, extent.flags, -1, -1, -1, 0, [])
        changed = False
        for pos, header in walk(view):
            batch: Buffer = view[pos : pos + header.size]
            verdict = self._judge(batch, header)
            if verdict is not None:
                changed = True
                if header.is_control and verdict is _NOTHING:
                    self.unmarked.add(header.base_offset)
                found = self._changed(header, verdict)
                if found is None:
                    continue
                batch, header = found
            if left.first < 0:
                left.first = header.base_offset
            left.last = header.last_offset
            left.length += len(batch)
            left.buffers.append(batch)
            if header.record_count:  # readers look for a timestamp where it says there is one
                left.max_timestamp = max(left.max_timestamp, header.max_timestamp)
        if not changed:
            return extent
        return left if left.buffers else None

    def _changed(
        self, header: BatchHeader, verdict: _Verdict
    ) -> tuple[bytearray, BatchHeader] | None:
        opened, stays, horizon = verdict
        if any(stays):
            heads = compress(record_heads(opened, header.record_count), stays)
            return keep_records(header, opened, heads, horizon)
        return keep_header(header) if self._must_stand(header) else None

    def _judge(self, batch: Buffer, header: BatchHeader) -> _Verdict | None:
        """What becomes of a batch; None: it stays as it is."""
        if header.base_offset >= self.end:
            return None
        if not header.record_count:
            return None if self._must_stand(header) else _NOTHING
        if header.is_control:
            return self._judge_marker(batch, header)
        if self._outcomes.is_aborted(header):
            return _NOTHING
        try:
            opened = open_records(batch, header)
            stays, tombstones = self._ask(opened, header)
        except KafkaError:
            return None
        horizon = None
        if tombstones:
            settled = delete_horizon(header)
            if settled is None:
                settled = horizon = self._new_horizon
            self.horizon = max(self.horizon, settled)
        if horizon is None and all(stays):
            return None
        return _Verdict(opened, stays, horizon)

    def _judge_marker(self, batch: Buffer, header: BatchHeader) -> _Verdict | None:
        if not self._outcomes.is_alone(header):
            return None
        settled = delete_horizon(header)
        if settled is not None and settled <= self._drop_before:
            return _NOTHING
        self.horizon = max(self.horizon, self._new_horizon if settled is None else settled)
        if settled is not None:
            return None
        return _Verdict(open_records(batch, header), bytearray((True,)), self._new_horizon)

    def _ask(self, opened: Buffer, header: BatchHeader) -> tuple[bytearray, bool]:
        """For each record, whether it stays; and whether tombstones are among those."""
        settled = delete_horizon(header)
        over = settled is not None and settled <= self._drop_before
        stays = bytearray()
        tombstones = False
        for head in record_heads(opened, header.record_count):
            self._count()
            offset = header.base_offset + head.offset_delta
            if offset >= self.end:
                stays.append(True)
                continue
            key = opened[head.key_start : head.key_start + max(head.key_length, 0)]
            if head.key_length < 0 or offset < self.latest.get(digest(key), -1):
                stays.append(False)
                continue
            tombstone = is_tombstone(opened, head)
            stays.append(not (tombstone and over))
            tombstones = tombstones or (tombstone and not over)
        return stays, tombstones

    def _must_stand(self, header: BatchHeader) -> bool:
        """Whether the batch stays even without a record."""
        return header.next_offset == self.end or header.base_offset in self._last_batches

    def _batches(
        self, segments: Sequence[SealedSegment], start: int, end: int
    ) -> Iterator[tuple[memoryview, BatchHeader]]:
        """The partition's batches that hold offsets between `start` and `end`."""
        for segment in segments:
            for view in self._extents(segment, start, end):
                for pos, header in walk(view):
                    if header.last_offset >= start and header.base_offset < end:
                        yield view[pos : pos + header.size], header

    def _extents(
        self, segment: SealedSegment, start: int, end: int, flag: int = 0
    ) -> Iterator[memoryview]:
        """The partition's extents that hold such offsets; only those with the flag, if any."""
        totals = segment.totals(self.number)
        if totals is None:
            return
        segment.check()
        index = segment.index
        there = 0
        for row in range(index.locate(totals, start), totals.start + totals.rows):
            if index.firsts[row] >= end:
                return
            self._count()
            if flag and not index.row_flags[row] & flag:
                continue
            position = index.positions[row]
            if position + index.lengths[row] > there:
                there = position + max(index.lengths[row], _READ_BYTES)
                bring_in(segment, position, min(there, len(segment.data)))
            yield segment.extent(row)

    def _count(self) -> None:
        self._looked_at += 1
        if self._looked_at % SLICE_RECORDS == 0:
            self._pause()
