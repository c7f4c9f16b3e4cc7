"""How a stream is planned: limits, new and lost partitions, AvailableNow, the named group."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark_ottla import DefaultSource, stream
from pyspark_ottla.cluster import Topic
from pyspark_ottla.errors import BadOption, DataLoss, UnknownTopic
from pyspark_ottla.offsets import EARLIEST, LATEST, Offsets, Partition
from pyspark_ottla.options import Strategy
from pyspark_ottla.ranges import Range
from pyspark_ottla.stream import StreamReader

ALL = ReadAllAvailable()


class Cluster:
    """Stands in for the brokers: (first, end) of each partition of topic t."""

    def __init__(self, *logs: tuple[int, int]) -> None:
        self.logs = list(logs)
        #: Ends to be told before the true ones.
        self.lagging: list[list[int]] = []
        self.made_anew: set[str] = set()

    def partitions(self, strategy: Strategy) -> list[Partition]:
        if not self.logs:
            raise UnknownTopic("t is not there")
        return [Partition("t", number) for number in range(len(self.logs))]

    def offsets(self, wanted: dict[Partition, int]) -> Offsets:
        words = {EARLIEST: 0, LATEST: 1}
        return {p: self.logs[p.number][words[v]] if v in words else v for p, v in wanted.items()}

    def earliest(self, partitions: list[Partition]) -> Offsets:
        return {p: self.logs[p.number][0] for p in partitions}

    def latest(self, partitions: list[Partition]) -> Offsets:
        ends = self.lagging.pop(0) if self.lagging else [end for _, end in self.logs]
        return {p: ends[p.number] for p in partitions}

    def at_times(self, times: dict[Partition, int]) -> dict[Partition, int | None]:
        """A record a millisecond, from 0 on."""
        return {p: t if t < self.logs[p.number][1] else None for p, t in times.items()}

    def close(self) -> None:
        self.logs.clear()


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(stream, "time", made)
    return made


def reader(cluster: Cluster, **options: Any) -> StreamReader:
    given = {"kafka.bootstrap.servers": "b", "subscribe": "t"}
    given |= {name: str(value) for name, value in options.items()}
    source = DefaultSource(CaseInsensitiveDict(given))
    made = source.streamReader(source.schema())
    made._source.cluster = cluster  # type: ignore[assignment] # a stand-in
    return made


def t(*offsets: int) -> dict[str, dict[str, int]]:
    return {"t": {str(number): value for number, value in enumerate(offsets)}}


def pieces(made: StreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    ranges = made.partitions(start, end)
    assert all(isinstance(range_, Range) for range_ in ranges)
    return [(r.partition, r.start, r.end) for r in ranges if isinstance(r, Range)]


def test_a_stream_begins_at_the_end_unless_said() -> None:
    assert reader(Cluster((3, 9), (0, 0))).initialOffset() == t(9, 0)
    found = reader(Cluster((3, 9), (0, 0)), startingOffsets="earliest").initialOffset()
    assert found == t(3, 0)
    found = reader(Cluster((3, 9)), startingOffsets='{"t":{"0":5}}').initialOffset()
    assert found == t(5)


def test_a_stream_begins_within_the_log() -> None:
    for offset in (2, 10):
        made = reader(Cluster((3, 9)), startingOffsets=f'{{"t":{{"0":{offset}}}}}')
        with pytest.raises(
            DataLoss, match=f"startingOffsets: t-0 has offsets 3 to 9, not {offset}"
        ):
            made.initialOffset()
    made = reader(Cluster((3, 9)), startingOffsets='{"t":{"0":2}}', failOnDataLoss="false")
    assert made.initialOffset() == t(3)


def test_a_stream_begins_at_a_time() -> None:
    assert reader(Cluster((0, 9), (0, 20)), startingTimestamp=4).initialOffset() == t(4, 4)
    with pytest.raises(BadOption, match=r"startingTimestamp: t-0 has no record from that time"):
        reader(Cluster((0, 9), (0, 20)), startingTimestamp=12).initialOffset()
    made = reader(
        Cluster((0, 9), (0, 20)),
        startingTimestamp=12,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert made.initialOffset() == t(9, 12)


def test_all_there_is() -> None:
    made = reader(Cluster((0, 9), (0, 5)))
    assert made.getDefaultReadLimit() == ALL
    assert made.latestOffset(t(3, 5), ALL) == t(9, 5)
    assert made.reportLatestOffset() == t(9, 5)
    assert pieces(made, t(3, 5), t(9, 5)) == [(0, 3, 9)]
    assert pieces(made, t(9, 5), t(9, 5)) == []


def test_as_much_as_allowed() -> None:
    made = reader(Cluster((0, 90), (0, 10)), maxOffsetsPerTrigger=10)
    limit = made.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    assert made.latestOffset(t(0, 0), limit) == t(9, 1)
    assert made.reportLatestOffset() == t(90, 10)
    assert made.latestOffset(t(0, 0), ALL) == t(90, 10), "what Spark says counts"


def test_no_sooner_than_worth_it(clock: Clock) -> None:
    made = reader(Cluster((0, 50)), minOffsetsPerTrigger=100, maxTriggerDelay="30s")
    limit = made.getDefaultReadLimit()
    assert limit == ReadMinRows(100)
    assert made.latestOffset(t(0), limit) == t(50), "the first at once, as in the connector"
    clock.now += 20
    assert made.latestOffset(t(20), limit) == t(20)
    clock.now += 11
    assert made.latestOffset(t(20), limit) == t(50)


def test_between_the_two(clock: Clock) -> None:
    made = reader(Cluster((0, 150)), minOffsetsPerTrigger=100, maxOffsetsPerTrigger=120)
    limit = made.getDefaultReadLimit()
    assert made.latestOffset(t(0), limit) == t(120)
    assert made.latestOffset(t(120), limit) == t(120)
    made.prepareForTriggerAvailableNow()
    assert made.latestOffset(t(120), limit) == t(150), "the rest would never come"


def test_limits_that_make_no_sense() -> None:
    with pytest.raises(BadOption, match=r"^minOffsetsPerTrigger: is above"):
        reader(Cluster((0, 1)), minOffsetsPerTrigger=2, maxOffsetsPerTrigger=1)
    with pytest.raises(BadOption, match=r"^maxTriggerDelay: means something with"):
        reader(Cluster((0, 1)), maxTriggerDelay="1m")


def test_available_now_is_what_was_there_when_it_began() -> None:
    cluster = Cluster((0, 10))
    made = reader(cluster, maxOffsetsPerTrigger=6)
    made.prepareForTriggerAvailableNow()
    cluster.logs = [(0, 50), (0, 50)]
    limit = made.getDefaultReadLimit()
    assert made.latestOffset(t(0), limit) == t(6)
    assert made.latestOffset(t(6), limit) == t(10)
    assert made.latestOffset(t(10), limit) == t(10)


def test_a_new_partition_is_read_from_its_beginning() -> None:
    made = reader(Cluster((0, 10), (0, 4)), maxOffsetsPerTrigger=1000)
    assert made.latestOffset(t(10), made.getDefaultReadLimit()) == t(10, 4)
    assert pieces(made, t(10), t(10, 4)) == [(1, 0, 4)]


def test_a_new_partition_that_has_aged_already() -> None:
    with pytest.raises(DataLoss, match="t-1 is new and begins at offset 2"):
        reader(Cluster((0, 10), (2, 4))).partitions(t(10), t(10, 4))
    made = reader(Cluster((0, 10), (2, 4)), failOnDataLoss="false")
    assert pieces(made, t(10), t(10, 4)) == [(1, 2, 4)]


def test_a_topic_that_was_made_anew(clock: Clock) -> None:
    with pytest.raises(DataLoss, match=r"t-0 ends at offset 10.*read up to 30.*new checkpoint"):
        reader(Cluster((0, 10))).latestOffset(t(30), ALL)
    made = reader(Cluster((0, 10)), failOnDataLoss="false")
    assert made.latestOffset(t(30), ALL) == t(10)
    assert pieces(made, t(30), t(10)) == []


def test_a_topic_that_was_made_anew_and_has_grown() -> None:
    cluster = Cluster((0, 100))
    made = reader(cluster)
    assert made.latestOffset(t(30), ALL) == t(100)
    cluster.made_anew.add("t")
    with pytest.raises(DataLoss, match=r"^t was deleted and made anew while this query"):
        made.latestOffset(t(100), ALL)
    made = reader(cluster, failOnDataLoss="false")
    assert made.latestOffset(t(30), ALL) == t(100)
    assert not cluster.made_anew, "said once"


def test_topics_are_told_apart_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    source = DefaultSource(CaseInsensitiveDict({"kafka.bootstrap.servers": "b", "subscribe": "t"}))
    brokers = source.streamReader(source.schema())._source.cluster
    for topic_id, anew in (("one", set()), ("one", set()), ("two", {"t"})):
        answer = {"t": Topic(topic_id, [0])}
        monkeypatch.setattr(brokers, "_ask", lambda *_, answer=answer: answer)
        assert brokers.partitions(Strategy("subscribe", "t")) == [Partition("t", 0)]
        assert brokers.made_anew == anew


def test_a_broker_that_has_just_come_back_is_asked_again(clock: Clock) -> None:
    cluster = Cluster((0, 30))
    cluster.lagging = [[0], [10]]
    assert reader(cluster).latestOffset(t(20), ALL) == t(30)


def test_a_partition_that_is_gone(clock: Clock) -> None:
    with pytest.raises(DataLoss, match="t-1 is not there any more"):
        reader(Cluster((0, 10))).latestOffset(t(10, 10), ALL)
    with pytest.raises(DataLoss, match="t is not there"):
        reader(Cluster()).latestOffset(t(10), ALL)
    assert reader(Cluster(), failOnDataLoss="false").latestOffset(t(10), ALL) == {}


def test_tasks() -> None:
    made = reader(Cluster((0, 100)), minPartitions=4)
    assert pieces(made, t(0), t(100)) == [(0, 0, 25), (0, 25, 50), (0, 50, 75), (0, 75, 100)]
    made = reader(Cluster((0, 100)), maxRecordsPerPartition=50)
    assert pieces(made, t(0), t(100)) == [(0, 0, 50), (0, 50, 100)]


def test_the_group_hears_of_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    made = reader(Cluster((0, 10)), commitGroupId="lag")
    heard: list[Offsets] = []
    assert made._group is not None
    monkeypatch.setattr(made._group, "commit", heard.append)
    made.latestOffset(t(4), ALL)
    made.commit(t(10))
    assert heard == [{Partition("t", 0): 4}, {Partition("t", 0): 10}]
