"""What a consumer tells, and what is made of it: gaps, aged-out offsets, offsets past the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from pyspark_ottla import fetching
from pyspark_ottla.errors import BrokerError, DataLoss
from pyspark_ottla.fetching import Fetcher
from pyspark_ottla.options import READ_BATCH, Options
from pyspark_ottla.planning import Losses
from pyspark_ottla.properties import Settings
from pyspark_ottla.ranges import Range
from pyspark_ottla.source import columns


class Clock:
    """Moves when the consumer waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Message:
    """A record, or an event with an error."""

    at: int
    code: int | None = None
    names: list[tuple[str, bytes | None]] | None = None

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return b"k%d" % self.at

    def value(self) -> bytes | None:
        return None if self.at % 7 == 0 else b"v%d" % self.at

    def timestamp(self) -> tuple[int, int]:
        return confluent_kafka.TIMESTAMP_CREATE_TIME, 1_700_000_000_000 + self.at

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.names


EOF = KafkaError._PARTITION_EOF
OUT_OF_RANGE = KafkaError._AUTO_OFFSET_RESET


@dataclass
class Log:
    """A consumer over one partition: records at `offsets`, others are gaps up to `end`."""

    clock: Clock
    offsets: list[int]
    start: int
    end: int
    #: Messages to come before anything else.
    first: list[Message] = field(default_factory=list)
    at: int = 0
    told_end: bool = False
    assigned: list[int] = field(default_factory=list)
    closed: bool = False

    def assign(self, partitions: list[Any]) -> None:
        (partition,) = partitions
        self.at = partition.offset
        self.told_end = False
        self.assigned.append(partition.offset)

    def unassign(self) -> None:
        self.at = -1

    def close(self) -> None:
        self.closed = True

    def get_watermark_offsets(self, _: Any, timeout: float) -> tuple[int, int]:
        return self.start, self.end

    def consume(self, most: int, seconds: float) -> list[Message]:
        assert self.at >= 0, "reads while nothing is assigned"
        self.clock.now += seconds
        if self.first:
            given, self.first = self.first, []
            return given
        if not self.start <= self.at <= self.end:
            return [Message(self.at, OUT_OF_RANGE)]
        found = [Message(offset) for offset in self.offsets if offset >= self.at][:most]
        if found:
            self.at = found[-1].at + 1
        elif not self.told_end:
            self.told_end = True
            found = [Message(self.end, EOF)]
        return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(fetching, "time", made)
    return made


def fetch(
    monkeypatch: pytest.MonkeyPatch,
    log: Log,
    start: int,
    end: int,
    *,
    fail: bool = True,
    headers: bool = False,
    wait: float = 30,
) -> list[dict[str, Any]]:
    monkeypatch.setattr(fetching, "make_client", lambda *_: log)
    monkeypatch.setattr(fetching, "_idle", {})
    given = {"kafka.bootstrap.servers": "b", "failOnDataLoss": str(fail)}
    losses = Losses(Options(READ_BATCH, given))
    fetcher = Fetcher(Settings(), losses, columns(headers), "prefix", wait)
    batches: Iterator[Any] = fetcher.read(Range("t", 3, start, end))
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_range_ends_where_it_says(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fetch(monkeypatch, Log(clock, list(range(100)), 0, 100), 10, 20)
    assert [row["offset"] for row in found] == list(range(10, 20))
    assert found[0]["key"] == b"k10"
    assert found[0]["topic"] == "t"
    assert found[0]["partition"] == 3
    assert found[0]["timestampType"] == 0
    assert found[0]["timestamp"].timestamp() == 1_700_000_000.010
    assert [row["value"] for row in found if row["offset"] == 14] == [None]


@pytest.mark.parametrize("end", [20, 25, 30])
def test_a_gap_is_no_loss(clock: Clock, monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    """In the middle, before the next record, and at the end of the log (markers)."""
    log = Log(clock, [0, 1, 5, 19, 27, 28], 0, 30)
    found = fetch(monkeypatch, log, 0, end)
    assert [row["offset"] for row in found] == [o for o in log.offsets if o < end]
    assert clock.now < 1002, "it waited for what cannot come"


def test_records_that_retention_took(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(clock, list(range(50, 100)), 50, 100)
    with pytest.raises(DataLoss, match=r"offsets 10 to 49 of t-3 are gone.*begins at 50 now"):
        fetch(monkeypatch, log, 10, 60)
    found = fetch(monkeypatch, log, 10, 60, fail=False)
    assert [row["offset"] for row in found] == list(range(50, 60))
    assert fetch(monkeypatch, log, 10, 50, fail=False) == []


def test_a_topic_that_was_made_anew(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(clock, list(range(5)), 0, 5)
    with pytest.raises(DataLoss, match=r"t-3 ends at offset 5, before 20: .*new checkpoint"):
        fetch(monkeypatch, log, 10, 20)
    assert fetch(monkeypatch, log, 10, 20, fail=False) == []


def test_a_log_that_ends_within_the_range(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataLoss, match="t-3 ends at offset 15, before 20"):
        fetch(monkeypatch, Log(clock, list(range(15)), 0, 15), 10, 20)
    assert clock.now < 1015
    found = fetch(monkeypatch, Log(clock, list(range(15)), 0, 15), 10, 20, fail=False)
    assert len(found) == 5


def test_a_log_that_lags_for_a_moment(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was just elected may show less than it has."""
    log = Log(clock, list(range(20)), 0, 20, first=[Message(15, EOF)])
    assert len(fetch(monkeypatch, log, 10, 20)) == 10


def test_a_broker_that_is_away_for_a_while(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    away = [Message(-1, KafkaError._ALL_BROKERS_DOWN), Message(-1, KafkaError._TRANSPORT)]
    assert len(fetch(monkeypatch, Log(clock, list(range(20)), 0, 20, first=away), 10, 20)) == 10


def test_a_broker_that_says_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(clock, [], 0, 100, first=[Message(-1, KafkaError._TRANSPORT)], told_end=True)
    monkeypatch.setattr(log, "assign", lambda _: None)
    with pytest.raises(BrokerError, match=r"no record for 30 s at offset 10 .*pollTimeoutMs"):
        fetch(monkeypatch, log, 10, 20)
    assert 1030 < clock.now < 1032


def test_a_topic_that_is_gone(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = [Message(-1, KafkaError.UNKNOWN_TOPIC_OR_PART)]
    with pytest.raises(DataLoss, match="t-3 is not there any more"):
        fetch(monkeypatch, Log(clock, [], 0, 0, first=list(gone)), 10, 20)
    assert fetch(monkeypatch, Log(clock, [], 0, 0, first=list(gone)), 10, 20, fail=False) == []


def test_a_reader_that_is_not_allowed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(clock, [], 0, 9, first=[Message(-1, KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(BrokerError, match=r"cannot read t-3 from 0 to 5: .*[Aa]uthorization"):
        fetch(monkeypatch, log, 0, 5)


def test_headers(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [("a", b"1"), ("a", None), ("b", b"")]
    first = [Message(0, names=given), Message(1), Message(2, names=[])]
    found = fetch(monkeypatch, Log(clock, [], 0, 3, first=first), 0, 3, headers=True)
    assert found[0]["headers"] == [{"key": key, "value": value} for key, value in given]
    assert [row["headers"] for row in found[1:]] == [None, None]


def test_rows_come_in_batches_of_bounded_size(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(clock, list(range(25_000)), 0, 25_000)
    monkeypatch.setattr(fetching, "make_client", lambda *_: log)
    monkeypatch.setattr(fetching, "_idle", {})
    losses = Losses(Options(READ_BATCH, {"kafka.bootstrap.servers": "b"}))
    batches = list(
        Fetcher(Settings(), losses, columns(False), "p", 9).read(Range("t", 0, 0, 25_000))
    )
    assert sum(batch.num_rows for batch in batches) == 25_000
    assert all(batch.num_rows <= 12_000 for batch in batches)
    assert log.at == -1, "the consumer was left assigned"


def test_consumers_are_kept_for_the_next_task(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Log] = []

    def make(*_: Any) -> Log:
        made.append(Log(Clock(), [], 0, 0))
        return made[-1]

    monkeypatch.setattr(fetching, "make_client", make)
    monkeypatch.setattr(fetching, "_idle", {})
    settings = [Settings({"client.id": str(number)}) for number in range(3)]
    one, two = (fetching.consumer(settings[0], None) for _ in range(2))
    with one as first, two as second:
        assert second is not first, "each reader has its own"
    with fetching.consumer(settings[0], None) as again:
        assert again is first
    assert second.closed
    with fetching.consumer(settings[1], None), fetching.consumer(settings[2], None):
        pass
    assert [log.closed for log in made] == [True, True, False, False]
    with pytest.raises(DataLoss), fetching.consumer(settings[2], None) as failed:
        raise DataLoss("gone")
    assert failed.closed
