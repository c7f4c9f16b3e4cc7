"""Compaction killed at each of its steps, and whole histories against the model."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.log.compactkit import COMPACT, CompactedLog, Row, rows
from tests.log.logkit import crash_copy, open_store, scratch

from ottla.wire.codecs import Codec

# ------------------------------------------------------------------------------------------ crashes


def history(log: CompactedLog) -> None:
    """Something for each rule, over three files."""
    log.put(rows("a=1", "b=1", "c=1"), codec=Codec.gzip)
    log.put(rows("d=1"), producer=(9, 0, 0))
    log.roll()
    log.put(rows("a", "b=2"))
    log.put(rows("d=2"), producer=(8, 0, 0))
    log.roll()
    log.put(rows("b=3", "e=1"))
    log.put(rows("e=2"))
    log.roll()


def copy_at(stop: int, seen: list[str], path: Path, copy: Path, name: str) -> None:
    """Before the step number `stop`."""
    if len(seen) == stop:
        crash_copy(path, copy)
    seen.append(name)


def test_a_crash_at_any_step_loses_and_revives_nothing(folder: Path) -> None:
    settings = replace(COMPACT, delete_retention_ms=5_000)
    for stop in itertools.count():
        log = CompactedLog(folder / f"data-{stop}", settings)
        history(log)
        seen: list[str] = []
        copy = folder / f"copy-{stop}"
        log.step = partial(copy_at, stop, seen, log.path, copy)
        log.compact()
        log.wait(5_000)
        log.compact()  # the tombstone goes
        log.step = lambda name: None
        log.check()
        wanted = log.left()
        assert [key for _, key, _ in wanted] == [b"c", b"d", b"b", b"e"]
        log.abandon()
        if len(seen) <= stop:
            break
        log.path = copy
        log.store = open_store(copy, options=log.options, now_ms=log.now)
        log.configure(settings)
        latest = {key: value for _, key, value in log.left()}
        assert latest.get(b"a") is None, seen[stop]
        assert [latest[k] for k in (b"b", b"c", b"d", b"e")] == [b"3", b"1", b"2", b"2"]
        for _ in range(30):
            log.now += 1000
            log.store.tick(log.now)
        assert log.left() == wanted, seen[stop]
        assert not [name for name in log.files if name.endswith(".tmp")]
        log.abandon()
    assert stop > 20


# ---------------------------------------------------------------------------------- whole histories


KEYS = [b"", b"a", b"b", b"c", b"a rather long key, so it is digested", b"another long key......"]
VALUES = st.one_of(st.none(), st.binary(max_size=30), st.just(b"x" * 3000))
ROWS = st.lists(st.tuples(st.sampled_from(KEYS), VALUES), min_size=1, max_size=6)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = scratch("ottla-compaction-")
        self.copies = 0
        settings = replace(COMPACT, delete_retention_ms=20_000)
        self.log = CompactedLog(self.folder / "data", settings, count=2)
        self.sequences: dict[tuple[int, int], int] = {}

    def teardown(self) -> None:
        self.log.store.close()
        shutil.rmtree(self.folder)

    @rule(which=st.integers(0, 1), rows=ROWS, codec=st.sampled_from(Codec), time=st.integers(0, 99))
    def write(self, which: int, rows: list[Row], codec: Codec, time: int) -> None:
        self.log.put(rows, number=self.log.numbers[which], codec=codec, time=time)

    @rule(which=st.integers(0, 1), rows=ROWS, producer=st.integers(1, 3))
    def write_idempotently(self, which: int, rows: list[Row], producer: int) -> None:
        number = self.log.numbers[which]
        sequence = self.sequences.get((number, producer), 0)
        self.log.put(rows, number=number, producer=(producer, 0, sequence))
        self.sequences[number, producer] = sequence + len(rows)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(ms=st.integers(1, 30_000))
    def wait(self, ms: int) -> None:
        self.log.wait(ms)

    @rule()
    def compact(self) -> None:
        self.log.roll()
        self.log.compact()

    @rule()
    def compact_what_is_sealed(self) -> None:
        self.log.compact()

    @rule()
    def sweep(self) -> None:
        """Rewrites beside it: the model does not change."""
        sweep = self.log.store._maintenance.sweep
        sweep._compaction._next_ms = 1 << 60
        sweep._began_ms = self.log.now - self.log.options.retention_check_ms
        self.log.work()

    @precondition(lambda self: self.log.partition().high_watermark)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        partition = self.log.partition()
        low, high = partition.log_start_offset, partition.high_watermark
        self.log.delete_to(data.draw(st.integers(low, min(high, low + 8))))

    @rule()
    def reopen(self) -> None:
        self.log.reopen()

    @rule()
    def crash(self) -> None:
        self.copies += 1
        self.log.crash(self.folder / f"copy-{self.copies}")

    @invariant()
    def holds(self) -> None:
        self.log.check()


TestHistories = Histories.TestCase
TestHistories.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
