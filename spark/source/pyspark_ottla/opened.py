"""The records of an opened batch, as columns.

One loop, written out: it runs once for each record that is read from a file. Lengths and deltas
are zigzag varints, mostly of one or two bytes; longer ones take the slow way.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_ottla.rows import Headers, Rows


class BadRecords(Exception):
    """The records do not hold what their batch says."""


def add_records(
    rows: Rows,
    opened: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    start: int,
    end: int,
) -> int:
    """Add those of the `count` records that have offsets from `start` up to `end` (exclusive);
    how many were added. Timestamp types are the caller's. Raises BadRecords; then none is added.
    """
    before = len(rows)
    try:
        _add(rows, opened, count, base_offset, base_timestamp, start, end)
    except (IndexError, ValueError, BadRecords) as problem:
        for column in (rows.keys, rows.values, rows.offsets, rows.times, rows.headers):
            del column[before:]
        raise BadRecords(
            f"the records end within one of {count}, or hold no text: {problem}"
        ) from None
    return len(rows) - before


def _add(
    rows: Rows,
    opened: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    start: int,
    end: int,
) -> None:
    keys, values, offsets, times = rows.keys, rows.values, rows.offsets, rows.times
    headers = rows.headers if rows.wants_headers else None
    size = 0
    at = 0
    for _ in range(count):
        length, at = _varint(opened, at)
        stop = at + length
        # behind the attributes, which mean nothing
        delta, at = _varint(opened, at + 1)
        byte = opened[at]
        if byte < 0x80:
            offset = base_offset + (byte >> 1)
            at += 1
        else:
            low, at = _varint(opened, at)
            offset = base_offset + low
        if not start <= offset < end:
            at = stop
            continue
        byte = opened[at]
        if byte < 0x80:
            length = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            length, at = _varint(opened, at)
        if length < 0:
            keys.append(None)
        else:
            keys.append(opened[at : at + length])
            at += length
            size += length
        byte = opened[at]
        if byte < 0x80:
            length = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            length, at = _varint(opened, at)
        if length < 0:
            values.append(None)
        else:
            values.append(opened[at : at + length])
            at += length
            size += length
        offsets.append(offset)
        times.append(base_timestamp + delta)
        if headers is not None:
            found, at = _headers(opened, at)
            headers.append(found)
        else:
            at = stop
        if at != stop:
            raise BadRecords(f"a record's contents end at {at}, the record at {stop}")
    if at != len(opened):
        raise BadRecords(f"{len(opened) - at} bytes are left after {count} records")
    rows.size += size


def _headers(opened: bytes, at: int) -> tuple[Headers | None, int]:
    count, at = _varint(opened, at)
    found = []
    for _ in range(count):
        length, at = _varint(opened, at)
        name = opened[at : at + length].decode()
        length, at = _varint(opened, at + length)
        content = None if length < 0 else opened[at : at + length]
        at += max(length, 0)
        found.append((name, content))
    return found or None, at


def _varint(buffer: Sequence[int], at: int) -> tuple[int, int]:
    """A zigzag varint and where it ends. Raises IndexError at the end of the buffer."""
    byte = buffer[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = byte & 0x7F
    shift = 7
    while True:
        at += 1
        byte = buffer[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
        if shift > 63:
            raise BadRecords("a varint of more than ten bytes")
