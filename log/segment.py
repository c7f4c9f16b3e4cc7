"""One segment: the active one is an LMDB environment, a sealed one is a mapped file.

The active segment is written by the writer only and read on any thread (LMDB's own snapshots). A
sealed file is never opened with LMDB again: views of its map are handed out, each keeps the map
alive, so a file may be unlinked while its bytes are still being sent.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import lmdb

from ottla.log import pages
from ottla.log.commit import KEY, BadCommit, Commit, Extent, encode, parse
from ottla.log.errors import Damaged, LogError, NewerFormat
from ottla.log.extents import ActiveIndex, BadIndex, SealedIndex, Totals, read_footer
from ottla.log.folder import FILE_MODE, FORMAT, Folder, SealedName, active_name, create_file
from ottla.log.header import BadHeader, SegmentHeader
from ottla.log.options import MIB, Change, StoreOptions
from ottla.wire.codecs import Buffer
from ottla.wire.records import CorruptBatch, crc_ok, walk

HEADER_KEY: Final = KEY.pack(0, 0)
#: LMDB's two engines have unlike file formats; ours is 0.9, said openly.
LIB_VERSION: Final = 0
#: Pages that a commit's tree may touch besides its values.
TREE_PAGES: Final = 16
PAGE: Final = 4096


def map_size(options: StoreOptions) -> int:
    """Room for a segment and the largest commit after it, in address space only."""
    largest = options.max_commit_bytes + options.max_request_bytes
    return 2 * options.segment_bytes + 2 * largest + 16 * MIB


def open_environment(
    path: Path,
    size: int,
    *,
    sync: bool,
    metasync: bool = True,
    lock: bool = True,
    mode: int = FILE_MODE,
) -> lmdb.Environment:
    """An LMDB environment in the one file `path`. metasync: a commit flushes its meta page too.
    mode: of a file that is made. Raises lmdb.Error."""
    if not path.exists():
        os.close(create_file(path, os.O_RDWR, mode))
    return lmdb.Environment(
        os.fspath(path),
        map_size=size,
        subdir=False,
        mode=mode,
        sync=sync,
        metasync=metasync,
        readahead=False,
        max_spare_txns=2,
        lock=lock,
        lib_version=LIB_VERSION,
    )


class ActiveSegment:
    """The segment being written, or rolled and waiting for its index."""

    __slots__ = (
        "created_ms", "env", "first", "format", "found", "index", "last", "path", "salt", "time_ms",
        "used",
    )  # fmt: skip

    def __init__(
        self, path: Path, header: SegmentHeader, env: lmdb.Environment, index: ActiveIndex
    ) -> None:
        self.path = path
        self.format = header.format
        #: What its commits carry.
        self.salt = header.salt
        #: Number of the first commit that may be in it.
        self.first = first = header.first
        #: Number of the last commit in it, as the loop knows; first - 1 when there is none.
        self.last = first - 1
        #: Commits up to this one were found on the disk at start: their batches are held against
        #: their CRCs when they are read.
        self.found = first - 1
        self.created_ms = header.created_ms
        #: Time of the last commit.
        self.time_ms = header.created_ms
        self.env = env
        self.index = index
        #: Bytes of the file, as the writer knows.
        self.used = 0

    @classmethod
    def create(
        cls, folder: Folder, first: int, created_ms: int, options: StoreOptions
    ) -> ActiveSegment:
        """Make an empty segment. Raises OSError, lmdb.Error."""
        path, header = make_file(folder, first, created_ms, options)
        folder.step("roll: open")
        return cls.open(path, header, ActiveIndex(), options)

    @classmethod
    def open(
        cls, path: Path, header: SegmentHeader, index: ActiveIndex, options: StoreOptions
    ) -> ActiveSegment:
        """Open a file that was looked at by `load`, or just made."""
        # One flush a commit: its data. The meta page that names it reaches the disk with the next
        # one's; after a power cut the commit is found without it (unnamed.py).
        durable = options.durability == "fsync"
        env = open_environment(
            path, map_size(options), sync=durable, metasync=False, mode=options.file_mode
        )
        segment = cls(path, header, env, index)
        segment.measure()
        return segment

    def reopen(self, options: StoreOptions) -> None:
        """Open the file again after its environment was closed. Raises lmdb.Error."""
        self.env = open_environment(self.path, map_size(options), sync=False)

    def measure(self) -> None:
        """Look up how large the file is. Gives the GIL away, so not after every commit: between
        two looks `used` grows by the most that a commit can take, which is more than it does."""
        self.used = (self.env.info()["last_pgno"] + 1) * PAGE

    def write(self, puts: Sequence[tuple[bytes, Buffer]]) -> None:
        """One commit, durable when it returns (under fsync). The writer's thread only.

        Raises lmdb.Error; the environment must not be written again then.
        """
        with self.env.begin(write=True) as txn:
            put = txn.put
            for key, value in puts:
                put(key, value, append=True)
                self.used += len(value) // PAGE * PAGE + 2 * PAGE
        self.used += TREE_PAGES * PAGE

    def reading(self) -> lmdb.Transaction[memoryview]:
        """A snapshot of it. Raises LogError where it could not be opened again after a failure."""
        try:
            return self.env.begin(buffers=True)
        except lmdb.Error as error:
            raise LogError(f"{self.path} cannot be read: {error}") from None

    def get(self, commit: int, slot: int, start: int, length: int) -> bytes:
        """A copy of part of one value. Raises LogError."""
        with self.reading() as txn:
            value = txn.get(KEY.pack(commit, slot))
            if value is None or len(value) < start + length:
                raise Damaged(self.path, f"commit {commit} slot {slot} is not as its index says")
            return bytes(value[start : start + length])


def make_file(
    folder: Folder,
    first: int,
    created_ms: int,
    options: StoreOptions,
    extents: Sequence[Extent] = (),
    changes: Sequence[Change] = (),
) -> tuple[Path, SegmentHeader]:
    """Make a segment's file under a temporary name, flush it, give it its name, flush the folder.

    With `extents` and `changes` it holds its first commit. A file of that name is replaced. Raises
    OSError, lmdb.Error.
    """
    path = folder.segments / active_name(first)
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    # A commit that is moved was flushed once, whatever the durability is now.
    durable = options.durability == "fsync" or bool(extents or changes)
    header = SegmentHeader.new(first, created_ms)
    puts: list[tuple[bytes, Buffer]] = [(HEADER_KEY, header.pack())]
    if extents or changes:
        large = options.large_extent_bytes
        puts += encode(first, created_ms, extents, changes, large, header.salt)[0]
    size = 4 * sum(len(value) for _, value in puts)
    folder.step("roll: create")
    room = map_size(options) + size
    env = open_environment(temporary, room, sync=False, lock=False, mode=options.file_mode)
    try:
        with env.begin(write=True) as txn:
            for key, value in puts:
                txn.put(key, value, append=True)
        if durable:
            env.sync(True)
    finally:
        env.close()
    folder.step("roll: rename")
    os.rename(temporary, path)
    if durable:
        folder.step("roll: sync folder")
        folder.sync()
    return path, header


class Loaded:
    """What `load` found in an active segment's file."""

    __slots__ = ("header", "index", "last", "time_ms", "torn")

    def __init__(self, header: SegmentHeader) -> None:
        self.header = header
        self.index = ActiveIndex()
        #: Number of the last commit; first - 1 when there is none.
        self.last = header.first - 1
        self.time_ms = header.created_ms
        #: Its newest tree does not hold, and this is of the one before: LMDB must not read it.
        self.torn = False


def map_file(path: Path) -> memoryview:
    """The whole file, read-only. Raises Damaged for an empty one, OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size == 0:
            raise Damaged(path, "is empty")
        return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(fd)


Each = Callable[[Commit, memoryview, dict[int, int]], None]


def load(path: Path, first: int, below: int | None, each: Each) -> Loaded:
    """Read all commits of a file that has no index, without LMDB. Raises Damaged, NewerFormat.

    Commits from `below` up are left out: they failed, and a later file begins there. `each` gets
    every commit, the file, and the file position of each of the commit's values by slot.
    """
    file = map_file(path)
    try:
        meta = sound_meta(file, below)
        loaded = _load(path, file, meta, first, below, each)
        loaded.torn = meta != pages.read_meta(file)
        return loaded
    except (pages.BadPages, BadHeader, BadCommit, CorruptBatch) as error:
        raise Damaged(path, str(error)) from None


def sound_meta(file: memoryview, below: int | None) -> pages.Meta:
    """The newer meta page; the older one for a file whose last commit failed and left a tree that
    does not hold."""
    newer, older = pages.read_metas(file)
    if below is None:
        return newer
    try:
        for _ in pages.walk(file, newer):
            pass
    except pages.BadPages:
        return older
    return newer


def _load(
    path: Path, file: memoryview, meta: pages.Meta, first: int, below: int | None, each: Each
) -> Loaded:
    values = pages.walk(file, meta)
    value = next(values, None)
    if value is None or value.key != HEADER_KEY:
        raise Damaged(path, "has no segment header")
    header = SegmentHeader.read(file[value.position : value.position + value.size])
    if header.first != first:
        raise Damaged(path, "its header is not that of the segment it is named for")
    if header.format > FORMAT:
        raise NewerFormat(f"{path} is in format {header.format}, this version reads up to {FORMAT}")
    loaded = Loaded(header)
    loader = _Loader(loaded, file, each)
    for key, position, size in values:
        number, slot = KEY.unpack(key)
        if below is not None and number >= below:
            break
        loader.value(number, slot, position, size)
    loader.finish()
    return loaded


class _Loader:
    """Puts the values of each commit together."""

    def __init__(self, loaded: Loaded, file: memoryview, each: Each) -> None:
        self._loaded = loaded
        self._file = file
        self._salt = loaded.header.salt
        self._each = each
        self._commit: Commit | None = None
        self._slots: dict[int, int] = {}
        self._sizes: dict[int, int] = {}

    def value(self, number: int, slot: int, position: int, size: int) -> None:
        """The next value of the file. Raises BadCommit."""
        if slot == 0:
            self.finish()
            if number <= self._loaded.last:
                raise BadCommit(f"commit {number} behind {self._loaded.last}")
            self._commit = parse(self._file[position : position + size], number, salt=self._salt)
            self._slots, self._sizes = {}, {}
        elif self._commit is None or number != self._commit.number:
            raise BadCommit(f"slot {slot} of commit {number} without its directory")
        self._slots[slot] = position
        self._sizes[slot] = size

    def finish(self) -> None:
        """All values of the commit are there."""
        commit, self._commit = self._commit, None
        if commit is None:
            return
        sizes = self._sizes
        for _, slot, _, _, _, _, position, length, _ in commit.rows:
            # Those of slot 0 lie within what the commit's own CRC vouches for.
            if slot and position + length > sizes.get(slot, -1):
                raise BadCommit(f"commit {commit.number}: slot {slot} is cut or missing")
        loaded = self._loaded
        loaded.index.add(commit.number, commit.rows)
        loaded.last = commit.number
        loaded.time_ms = commit.time_ms
        self._each(commit, self._file, self._slots)


def value_positions(path: Path, last: int) -> tuple[dict[tuple[int, int], int], pages.Meta]:
    """Where each value of a file lies, by (commit, slot), and its newer meta page; `last`: the
    last commit that counts. Raises Damaged.
    """
    file = map_file(path)
    unpack = KEY.unpack
    try:
        meta = sound_meta(file, last + 1)
        found = {unpack(key): at for key, at, _ in pages.walk(file, meta)}
        return found, pages.read_meta(file)
    except pages.BadPages as error:
        raise Damaged(path, str(error)) from None


class SealedSegment:
    """A file that never changes again."""

    __slots__ = ("_seen", "data", "format", "index", "name", "path", "size", "time_ms")

    def __init__(self, path: Path, name: SealedName, *, trusted: bool = False) -> None:
        """trusted: this process wrote it, and what it reads comes from memory. Raises Damaged when
        its index is not what was written."""
        self.path = path
        self.name = name
        file = map_file(path)
        try:
            footer = read_footer(file)
            self.index = SealedIndex(file, footer)
        except BadIndex as error:
            raise Damaged(path, str(error)) from None
        if (footer.first_commit, footer.last_commit) != (name.first, name.last):
            raise Damaged(
                path, f"holds commits {footer.first_commit} to {footer.last_commit}, not its name's"
            )
        #: The part that holds values: nothing outside it is handed out.
        self.data = file[: footer.position]
        self.size = len(file)
        self.time_ms = footer.time_ms
        self.format = footer.format
        #: Whether the batches of each extent were held against their CRC.
        self._seen = None if trusted else bytearray(footer.rows)

    @property
    def first(self) -> int:
        return self.name.first

    @property
    def last(self) -> int:
        return self.name.last

    def totals(self, partition: int) -> Totals | None:
        """What it holds of a partition; from memory."""
        return self.index.totals(partition)

    @property
    def trusted(self) -> bool:
        """This process wrote it."""
        return self._seen is None

    def check_size(self) -> None:
        """Raise Damaged when the file was cut since it was opened: touching what is gone of a
        mapped file ends the process."""
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return  # replaced or dropped; the map holds all of it
        if size < self.size:
            raise Damaged(self.path, f"was cut to {size} of {self.size} bytes while it was open")

    def check(self) -> None:
        """Before its rows are used: see that the file is whole, and look at the index, once. Raises
        Damaged."""
        self.check_size()
        try:
            self.index.check()
        except BadIndex as error:
            raise Damaged(self.path, str(error)) from None

    def extent(self, row: int) -> memoryview:
        """A view of one extent; its batches' CRCs are looked at when it is first asked for. Raises
        Damaged."""
        index = self.index
        position = index.positions[row]
        end = position + index.lengths[row]
        if end > len(self.data):
            raise Damaged(self.path, f"an extent ends at byte {end} of {len(self.data)}")
        view = self.data[position:end]
        if self._seen is not None and not self._seen[row]:
            check_batches(view, self.path, index.firsts[row], index.lasts[row])
            self._seen[row] = 1
        return view


def check_batches(view: Buffer, path: Path, first: int, last: int) -> None:
    """Hold the batches of an extent against their CRCs and its offsets. Raises Damaged."""
    at = first
    try:
        for pos, header in walk(view):
            if header.base_offset < at or not crc_ok(view, header, pos):
                raise Damaged(path, f"the batch at offset {at} is altered")
            at = header.next_offset
    except CorruptBatch as error:
        raise Damaged(path, f"the batch at offset {at} is altered: {error}") from None
    if at != last + 1:
        raise Damaged(path, f"offsets {first} to {last} end at {at - 1}")
