"""The state: rows of small tables. A checkpoint environment, and what changed since in RAM.

The journal in the segments is the truth. `apply` puts a committed change into the overlay; reads
look there first. A checkpoint takes the overlay as it is after some commit (freeze), writes it
with that commit's number (write, on the background thread), and forgets it (thaw). A failed write
puts the rows back (refreeze).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final

import lmdb

from ottla.log.errors import Damaged, LogError
from ottla.log.folder import FILE_MODE, sync_folder
from ottla.log.options import Change, Table
from ottla.log.partition import KEY, NEXT_PARTITION, read_counter
from ottla.log.segment import open_environment
from ottla.wire.crc import crc32c

#: Address space only; the file is as large as its rows.
MAP_SIZE: Final = 1 << 36
#: Two meta pages: a file that is shorter was never a checkpoint.
LEAST_SIZE: Final = 2 * 4096
APPLIED: Final = b"applied"
_CRC: Final = Struct("<I")
_U64: Final = Struct("<Q")

#: Their keys begin with a partition's number; they go with it.
_OF_PARTITIONS: Final = (Table.EPOCHS, Table.PRODUCERS, Table.CLEANED, Table.ABORTED)
#: The log's own tables have numbers up to this one.
_LAST_OWN: Final = Table.ABORTED

Rows = dict[Table, dict[bytes, bytes | None]]


class State:
    """Rows by (table, key); committed ones only."""

    def __init__(self, path: Path, *, sync: bool, mode: int = FILE_MODE) -> None:
        """Open or make the checkpoint, with permissions `mode`. Raises Damaged, OSError."""
        self.path = path
        try:
            if not path.exists():
                _make(path, mode)
            self._env = open_environment(path, MAP_SIZE, sync=sync, mode=mode)
        except lmdb.Error as error:
            raise Damaged(path, f"cannot be opened: {error}") from None
        self._overlay: Rows = {table: {} for table in Table}
        self._frozen: Rows | None = None
        #: Rows in the overlay, those being written left out.
        self.dirty = 0
        found = self.stored(Table.META, APPLIED)
        #: Number of the last commit whose changes are in the checkpoint.
        self.applied = _U64.unpack(found)[0] if found is not None else 0
        #: Partitions below this number were made once: one without a row is gone for ever.
        self._next_partition = read_counter(self.stored(Table.META, NEXT_PARTITION))

    def close(self) -> None:
        self._env.close()

    def sync(self) -> None:
        """Flush what was written without a flush (durability `os`)."""
        self._env.sync(True)

    def check(self, most: int) -> None:
        """Hold every row of the checkpoint against its CRC, if there are at most so many. Raises
        Damaged: a key that is altered would be a row that is not found."""
        if self._env.stat()["entries"] <= most:
            for _ in self._stored_rows(None, b""):
                pass

    def copy(self, fd: int) -> int:
        """Write a copy of the checkpoint into an open file; the number of the last commit in it.
        Any thread. Raises Damaged, OSError."""
        key = bytes((Table.META,)) + APPLIED
        try:
            with self._env.begin() as txn:
                found = txn.get(key)
                self._env.copyfd(fd, compact=True, txn=txn)
        except lmdb.Error as error:
            raise Damaged(self.path, f"cannot be copied: {error}") from None
        return 0 if found is None else int(_U64.unpack(self._open_row(key, found))[0])

    # ------------------------------------------------------------------------------------ reading

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The committed row."""
        rows = self._overlay[table]
        if key in rows:
            return rows[key]
        if self._frozen is not None:
            rows = self._frozen[table]
            if key in rows:
                return rows[key]
        return self.stored(table, key)

    def stored(self, table: Table, key: bytes) -> bytes | None:
        """The row as the checkpoint has it. Raises Damaged when it is altered."""
        full = bytes((table,)) + key
        try:
            with self._env.begin() as txn:
                found = txn.get(full)
        except lmdb.Error as error:
            raise Damaged(self.path, f"cannot be read: {error}") from None
        return None if found is None else self._open_row(full, found)

    def scan(self, table: Table, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Committed rows whose key starts with `prefix`, in key order."""
        changed: dict[bytes, bytes | None] = {}
        for rows in (self._frozen, self._overlay):
            if rows is not None:
                part = rows[table]
                changed.update((k, v) for k, v in part.items() if k.startswith(prefix))
        merged: dict[bytes, bytes | None] = dict(self._stored_rows(table, prefix))
        if changed:
            merged.update(changed)
            ordered: Iterable[tuple[bytes, bytes | None]] = sorted(merged.items())
        else:
            ordered = merged.items()
        return iter([(key, value) for key, value in ordered if value is not None])

    def page(
        self, table: Table, prefix: bytes, after: bytes, limit: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """At most `limit` committed rows whose key starts with `prefix` and is behind `after`, in
        key order; and the key to go on after, None at the end. For scans that give others a turn.
        """
        stored: dict[bytes, bytes] = {}
        last: bytes | None = None
        for key, value in self._stored_rows(table, prefix, after):
            if len(stored) == limit:
                last = next(reversed(stored))
                break
            stored[key] = value
        changed = [part[table] for part in (self._frozen, self._overlay) if part and part[table]]
        if not changed:
            return list(stored.items()), last  # as at nearly every start
        rows: dict[bytes, bytes | None] = dict(stored)
        for part in changed:
            rows.update(
                (key, value)
                for key, value in part.items()
                if key.startswith(prefix) and key > after and (last is None or key <= last)
            )
        ordered = sorted(rows.items())
        if len(ordered) > limit:
            del ordered[limit:]
            last = ordered[-1][0]
        return [(key, value) for key, value in ordered if value is not None], last

    def _stored_rows(
        self, table: Table | None, prefix: bytes, after: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """What the checkpoint has, from the first key behind `after` on; of all tables (None)."""
        start = b"" if table is None else bytes((table,)) + prefix
        first = start if table is None or not after else max(start, start[:1] + after + b"\0")
        try:
            with self._env.begin() as txn, txn.cursor() as cursor:
                if not cursor.set_range(first):
                    return
                for full, found in cursor:
                    if not full.startswith(start):
                        return
                    yield full[1:], self._open_row(full, found)
        except lmdb.Error as error:
            raise Damaged(self.path, f"cannot be read: {error}") from None

    def _open_row(self, full: bytes, found: bytes) -> bytes:
        value = found[_CRC.size :]
        if len(found) < _CRC.size or _CRC.unpack_from(found)[0] != crc32c(value, crc32c(full)):
            raise Damaged(self.path, f"row {full.hex()} is altered")
        return value

    # ------------------------------------------------------------------------------------ writing

    def apply(self, changes: Iterable[Change]) -> None:
        """Changes that are committed, in their order.

        A row of a partition that is gone is not written: whatever was admitted behind the drop
        (a log start, a marker, a compaction), here and in every replay. Its bytes would never be
        freed otherwise.
        """
        overlay = self._overlay
        for table, key, value in changes:
            if table <= _LAST_OWN and value is not None and self._too_late(table, key, value):
                continue
            overlay[table][key] = value
            self.dirty += 1

    def _too_late(self, table: Table, key: bytes, value: bytes) -> bool:
        """Whether the row is about a partition that is gone. Producers know by themselves."""
        if table is Table.META:
            if key == NEXT_PARTITION:
                self._next_partition = read_counter(value)
            return False
        if table is Table.PRODUCERS:
            return False
        number = key[: KEY.size]
        if table is Table.PARTITIONS and KEY.unpack(number)[0] >= self._next_partition:
            return False  # it is being made
        return self.get(Table.PARTITIONS, number) is None

    def freeze(self) -> Rows:
        """The overlay as it is, to be written; reads go on through it, changes go to a new one."""
        if self._frozen is not None:
            raise LogError("a checkpoint is being written already")
        self._frozen = self._overlay
        self._overlay = {table: {} for table in Table}
        self.dirty = 0
        return self._frozen

    def write(self, rows: Rows, applied: int) -> None:
        """One transaction: the rows and the number of the commit they stand for. Any thread.

        A partition's row that goes takes its leader epochs, producers and the like along.
        """
        with self._env.begin(write=True) as txn:
            for table, part in rows.items():
                head = bytes((table,))
                for key, value in part.items():
                    full = head + key
                    if value is None:
                        txn.delete(full)
                    else:
                        txn.put(full, _row(full, value))
            for key, value in rows[Table.PARTITIONS].items():
                if value is None:
                    for table in _OF_PARTITIONS:
                        _delete_prefix(txn, bytes((table,)) + key)
            full = bytes((Table.META,)) + APPLIED
            txn.put(full, _row(full, _U64.pack(applied)))

    def thaw(self, applied: int) -> None:
        """The frozen rows are in the checkpoint."""
        self._frozen = None
        self.applied = applied

    def refreeze(self) -> None:
        """The frozen rows could not be written: they are the overlay's again."""
        frozen = self._frozen
        if frozen is None:
            return
        for table, rows in self._overlay.items():
            frozen[table].update(rows)
        self._overlay = frozen
        self._frozen = None
        self.dirty = sum(map(len, frozen.values()))


def _make(path: Path, mode: int) -> None:
    """An empty checkpoint that is on the disk before it has its name: never a torn one. Raises
    lmdb.Error, OSError."""
    temporary = path.with_name("state.lmdb.tmp")
    temporary.unlink(missing_ok=True)
    env = open_environment(temporary, MAP_SIZE, sync=False, lock=False, mode=mode)
    try:
        env.sync(True)
    finally:
        env.close()
    os.replace(temporary, path)
    sync_folder(path.parent)


def _row(full: bytes, value: bytes) -> bytes:
    return _CRC.pack(crc32c(value, crc32c(full))) + value


def _delete_prefix(txn: lmdb.Transaction[bytes], prefix: bytes) -> None:
    with txn.cursor() as cursor:
        found = cursor.set_range(prefix)
        while found and cursor.key().startswith(prefix):
            found = cursor.delete()
