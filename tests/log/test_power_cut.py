"""What a power cut may take, and what a client may plant for the start after it to find."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from tests.log.logkit import (
    append,
    commit,
    crash_copy,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
    read_once,
    with_options,
)

from ottla.log import commit as commit_module
from ottla.log.commit import KEY, Group, encode, parse
from ottla.log.errors import LogError
from ottla.log.folder import SealedName
from ottla.log.options import Change, Table
from ottla.log.repair import repair
from ottla.log.salvage import Salvage
from ottla.log.store import Store
from ottla.wire.records import Record, build_batch

PAGES = 2 * 4096


def metas(path: Path) -> bytes:
    """Both meta pages of an LMDB file."""
    with open(path, "rb") as file:
        return file.read(PAGES)


def put_metas(path: Path, pages: bytes) -> None:
    with open(path, "r+b") as file:
        file.write(pages)


def files(path: Path) -> list[str]:
    return sorted(p.name for p in (path / "log").iterdir() if not p.name.endswith("-lock"))


class Cut:
    """A store whose newest commit is the first of a later segment, and has lost its meta page."""

    def __init__(self, root: Path, size: int, *, rolled: bool = False) -> None:
        self.live = root / "live"
        self.cut = root / "cut"
        store = open_store(self.live)
        (partition,) = new_partitions(store)
        self.number = partition.number
        for turn in range(3):
            put(store, partition, make_batch(size=100, fill=turn))
        store.roll()
        store.tick(1)
        active = store.layout.active
        before = metas(active.path)
        store.change([Change(Table.TOPICS, b"late", b"row")])
        put(store, partition, make_batch(size=size, fill=9, producer=(7, 0, 0)))
        if rolled:
            # The next segment has begun when the power goes, and this one is not sealed yet.
            store._maintenance.seal = lambda: None  # type: ignore[method-assign]
            store.roll()
        self.wanted = read_batches(store, partition)
        crash_copy(self.live, self.cut)
        put_metas(self.cut / "log" / active.path.name, before)
        store.layout.rolled.clear()
        store.close()

    def check(self, store: Store) -> None:
        partition = store.partition(self.number)
        assert read_batches(store, partition) == self.wanted
        assert partition.leader_epoch == 0
        assert store.get(Table.TOPICS, b"late") == b"row"
        assert append(store, partition, make_batch(size=5, producer=(7, 0, 0))).duplicate
        assert put(store, partition, make_batch()) == self.wanted[-1][0] + 1


@pytest.mark.parametrize("size", [100, 3000, 20_000])
@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_the_first_commit_of_a_later_segment_survives_a_power_cut(
    tmp_path: Path, size: int, rolled: bool, boot: str
) -> None:
    """boot-1: a disk lost its cache, and the machine goes on."""
    made = Cut(tmp_path, size, rolled=rolled)
    store = open_store(made.cut, boot_id=boot)
    made.check(store)
    assert not store.layout.missing
    number = store.committed
    again = crash_copy(made.cut, tmp_path / "again")
    store.close()
    store = open_store(again, boot_id=boot)
    assert store.committed == number
    assert len(read_batches(store, store.partition(made.number))) == len(made.wanted) + 1
    store.close()


@pytest.mark.parametrize("rolled", [False, True])
def test_repair_after_a_power_cut_keeps_the_newest_commit(tmp_path: Path, rolled: bool) -> None:
    made = Cut(tmp_path, 3000, rolled=rolled)
    report = repair(made.cut)
    assert report.lines()[-1] == "nothing is lost"
    store = open_store(made.cut, boot_id="boot-2")
    made.check(store)
    store.close()


def test_a_second_cut_at_any_step_of_the_start_loses_nothing(tmp_path: Path) -> None:
    made = Cut(tmp_path, 20_000)
    copies: list[tuple[str, Path]] = []

    def step(name: str) -> None:
        copies.append((name, crash_copy(made.cut, tmp_path / f"step-{len(copies)}")))

    open_store(made.cut, boot_id="boot-2", step=step).close()
    assert {"roll: create", "roll: rename", "roll: sync folder"} <= {name for name, _ in copies}
    for _, copy in copies:
        store = open_store(copy, boot_id="boot-3")
        made.check(store)
        store.close()


def test_a_file_that_an_unclean_stop_left_is_not_written_again(tmp_path: Path) -> None:
    """It may hold parts of a commit whose number is given out now."""
    store = open_store(tmp_path / "a")
    (partition,) = new_partitions(store)
    put(store, partition, make_batch())
    name = store.layout.active.path.name
    killed = crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    again = open_store(killed)
    assert again.layout.active.path.name != name
    put(again, again.partition(partition.number), make_batch())
    assert again.layout.active.first == again.committed
    number = again.layout.active.first
    again.close()
    again = open_store(killed)
    assert again.layout.active.first == number, "a clean stop leaves nothing behind"
    again.close()


# --------------------------------------------------------------------------- what cannot be found


def lose_the_end(path: Path, root: Path, commits: int) -> tuple[int, int]:
    """Make a folder whose checkpoint is ahead of its log by `commits`; partition, applied."""
    store = open_store(path)
    (partition,) = new_partitions(store)
    put(store, partition, make_batch(fill=1))
    earlier = crash_copy(path, root / "earlier")
    for turn in range(commits):
        store.change([Change(Table.TOPICS, b"turn", b"%d" % turn)])
        put(store, partition, make_batch(fill=2 + turn))
    store.tick(10_000)  # a checkpoint
    applied = store.state.applied
    crash_copy(path, root / "later")
    active = store.layout.active.path.name
    store.close()
    (root / "later" / "log" / active).write_bytes((earlier / "log" / active).read_bytes())
    return partition.number, applied


def test_a_log_that_ends_before_its_checkpoint_says_what_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    number, applied = lose_the_end(tmp_path / "a", tmp_path, 5)
    folder = tmp_path / "later"
    with caplog.at_level(logging.ERROR):
        store = open_store(folder, boot_id="boot-2")
    assert f"to {applied} were acknowledged and are in no file" in caplog.text
    partition = store.partition(number)
    # No offset and no commit number is given out again, and readers are refused in between.
    assert partition.log_end_offset > 6
    assert partition.leader_epoch == 1
    with pytest.raises(LogError, match=r"set aside|bad"):
        read_once(store, partition, 3)
    begun = partition.log_end_offset
    store.change([Change(Table.TOPICS, b"turn", b"new")])
    assert put(store, partition, make_batch(fill=50)) == begun
    assert store.committed > applied
    killed = crash_copy(folder, tmp_path / "killed")
    store.close()
    # A plain kill -9 loses nothing of what was acknowledged after it.
    store = open_store(killed, boot_id="boot-2")
    assert store.get(Table.TOPICS, b"turn") == b"new"
    assert store.partition(number).log_end_offset == begun + 1
    assert store.partition(number).leader_epoch == 1
    store.close()


def test_repair_says_what_is_lost_behind_the_end_of_the_log(tmp_path: Path) -> None:
    number, applied = lose_the_end(tmp_path / "a", tmp_path, 3)
    folder = tmp_path / "later"
    report = repair(folder)
    assert report.lost
    assert any(f"to {applied}" in line for line in report.lines())
    store = open_store(folder, boot_id="boot-2")
    partition = store.partition(number)
    assert partition.log_end_offset > 4
    assert store.committed >= applied
    epoch = partition.leader_epoch
    put(store, partition, make_batch())
    store.close()
    assert not repair(folder).files
    store = open_store(folder)
    assert store.partition(number).leader_epoch == epoch
    store.close()


def test_commits_missing_between_two_files_are_a_hole_with_a_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a"
    store = open_store(path)
    (partition,) = new_partitions(store)
    put(store, partition, make_batch())
    early = store.layout.active.path
    old = early.read_bytes()
    for turn in range(4):
        put(store, partition, make_batch(fill=turn))
    store._maintenance.seal = lambda: None  # type: ignore[method-assign]
    store.roll()
    put(store, partition, make_batch(fill=9))
    crash_copy(path, tmp_path / "b")
    (tmp_path / "b" / "log" / early.name).write_bytes(old)
    store.layout.rolled.clear()
    store.close()
    with caplog.at_level(logging.ERROR):
        again = open_store(tmp_path / "b", boot_id="boot-2")
    assert "are in no file" in caplog.text
    found = again.partition(partition.number)
    assert read_once(again, found, 0).size
    with pytest.raises(LogError):
        read_once(again, found, 2)
    assert read_batches_from(again, partition.number, 5)
    again.close()
    once_more = open_store(tmp_path / "b", boot_id="boot-2")
    with pytest.raises(LogError):
        read_once(once_more, once_more.partition(partition.number), 2)
    once_more.close()


def read_batches_from(store: Store, number: int, offset: int) -> list[tuple[int, bytes]]:
    return read_batches(store, store.partition(number), offset)


# --------------------------------------------------------------------------------------- forgery


def forged(number: int, changes: list[Change], *, salt: int = 0, old: bool = False) -> bytes:
    """Bytes that are a commit in all but the salt of the file."""
    (_, value), *_ = encode(number, 5, Group(1 << 20).extents, changes, 1 << 20, salt)[0]
    data = bytes(value)
    if not old:
        return data
    # Format 1: another magic, no salt, a CRC that is right.
    body = data[8:40] + data[48:]
    crc = commit_module.crc32c(body).to_bytes(4, "little")
    return b"OtC1" + crc + body


def planted_batch(payload: bytes, shift: int = 0) -> bytearray:
    """A record whose value repeats `payload` so that it begins at every place a page can have."""
    step = 4096 if len(payload) < 3000 else -(-len(payload) // 4096) * 4096
    value = bytearray(16 * step + 4096)
    for at in range(shift, len(value) - len(payload), step):
        value[at : at + len(payload)] = payload
    return build_batch([Record(0, 5, None, bytes(value))])


def leaf_page(page: int, number: int, value: bytes) -> bytes:
    """A page that LMDB might have written, with commit `number` in it."""
    node = len(value).to_bytes(4, "little") + b"\0\0" + (10).to_bytes(2, "little")
    node += KEY.pack(number, 0) + value
    node += b"\0" * (len(node) & 1)
    upper = 4096 - len(node)
    head = page.to_bytes(8, "little") + b"\0\0" + (2).to_bytes(2, "little")
    head += (18).to_bytes(2, "little") + upper.to_bytes(2, "little")
    return head + upper.to_bytes(2, "little") + bytes(upper - 18) + node


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("table", [Table.TOPICS, 99])
@pytest.mark.parametrize("named", [False, True])
def test_a_commit_in_a_record_is_not_believed(
    tmp_path: Path, old: bool, table: int, named: bool
) -> None:
    """named: within what looks like a page of LMDB's."""
    store = open_store(tmp_path / "a", options=with_options(segment_bytes=64 << 20))
    (partition,) = new_partitions(store)
    commit(store, [Change(Table.TOPICS, b"t", b"sound")])
    for ahead in range(8):
        number = store.committed + ahead
        payload = forged(number, [Change(table, b"t", None)], salt=ahead, old=old)  # type: ignore[arg-type] # 99
        for shift in range(0, 4096, 512):
            whole = leaf_page(20, number, payload) if named else payload
            put(store, partition, planted_batch(whole, shift))
    wanted = read_batches(store, partition)
    committed = store.committed
    killed = crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    again = open_store(killed, boot_id="boot-2", options=with_options(segment_bytes=64 << 20))
    assert again.get(Table.TOPICS, b"t") == b"sound"
    assert again.committed == committed
    assert read_batches(again, again.partition(partition.number)) == wanted
    again.close()


def test_a_damaged_file_gives_back_its_own_commits_only(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a", options=with_options(segment_bytes=64 << 20))
    (partition,) = new_partitions(store)
    active = store.layout.active
    for turn in range(8):
        payload = forged(100 + turn, [Change(Table.TOPICS, b"t", b"planted")], old=bool(turn & 1))
        put(store, partition, planted_batch(payload, turn * 512))
        put(store, partition, make_batch(fill=turn))
    first, last = active.first, active.last
    raw = bytearray(active.path.read_bytes())
    store.close()
    # Whatever page is damaged, no planted commit comes up, and most of the others do.
    for page in range(2, len(raw) // 4096, 7):
        damaged = raw.copy()
        damaged[page * 4096 : page * 4096 + 64] = os.urandom(64)
        path = tmp_path / f"{page}.active"
        path.write_bytes(damaged)
        found = [f.commit.number for f in Salvage(path, first).commits()]
        assert set(found) <= set(range(first, last + 1))
        assert len(found) >= last - first - 20
        path.unlink()


def test_every_file_has_a_salt_of_its_own(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (partition,) = new_partitions(store)
    salts = set()
    for _ in range(5):
        put(store, partition, make_batch())
        salts.add(store.layout.active.salt)
        store.roll()
    assert len(salts) == 5
    assert 0 not in salts
    store.close()


def test_a_commit_is_read_with_its_own_salt_only() -> None:
    value = forged(7, [Change(Table.TOPICS, b"k", b"v")], salt=11)
    assert parse(value, 7, salt=11).changes() == [Change(Table.TOPICS, b"k", b"v")]
    for salt in (0, 12):
        with pytest.raises(commit_module.BadCommit, match="not of this file"):
            parse(value, 7, salt=salt)


def test_an_unknown_table_is_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A journal that this version cannot have written costs its file, not the start."""
    store = open_store(tmp_path / "a")
    (partition,) = new_partitions(store)
    put(store, partition, make_batch())
    active = store.layout.active
    changes = [Change(99, b"k", b"v")]  # type: ignore[arg-type] # no such table
    active.write(encode(store.committed + 1, 5, [], changes, 1 << 20, active.salt)[0])
    killed = crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    with caplog.at_level(logging.ERROR):
        again = open_store(killed)
    assert "99" in caplog.text
    assert "set aside" in caplog.text
    again.close()
    repair(killed)
    again = open_store(killed)
    assert read_once(again, again.partition(partition.number), 0).size
    again.close()


# ------------------------------------------------------------------------------------- the folder


def test_files_can_be_read_by_their_owner_and_group_only(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        path = tmp_path / "new" / "data"
        store = open_store(path)
        (partition,) = new_partitions(store)
        put(store, partition, make_batch())
        store.roll()
        put(store, partition, make_batch())
        store.tick(10_000)
        modes = {p.relative_to(path): p.stat().st_mode & 0o777 for p in path.rglob("*")}
        store.close()
    finally:
        os.umask(previous)
    assert path.stat().st_mode & 0o777 == 0o750
    assert modes.pop(Path("log")) == 0o750
    assert set(modes.values()) == {0o640}, modes


def test_permissions_as_configured_whatever_the_umask(tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        store = open_store(tmp_path / "data", options=with_options(file_mode=0o644))
        store.close()
    finally:
        os.umask(previous)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "data" / "mark").stat().st_mode & 0o777 == 0o644


def test_the_name_of_a_new_folder_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr("ottla.log.folder.sync_folder", flushed.append)
    open_store(tmp_path / "a" / "b").close()
    assert flushed.index(tmp_path) < flushed.index(tmp_path / "a") < flushed.index(tmp_path / "a/b")


def test_a_hole_is_remembered_as_an_empty_file(tmp_path: Path) -> None:
    lose_the_end(tmp_path / "a", tmp_path, 2)
    open_store(tmp_path / "later", boot_id="boot-2").close()
    (bad,) = [name for name in files(tmp_path / "later") if name.endswith(".bad")]
    name = SealedName.parse(bad.removesuffix(".bad"))
    assert name is not None
    assert (tmp_path / "later" / "log" / bad).stat().st_size == 0
