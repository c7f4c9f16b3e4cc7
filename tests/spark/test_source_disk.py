"""Reading a running broker's sealed segments, without Spark: the rows, and who was asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_tests.harness.brokers import OttlaBroker
from compat_tests.harness.waiting import eventually
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark_ottla import DefaultSource
from pyspark_ottla.errors import BadOption
from pyspark_ottla.ranges import Range

from ottla.log.outside import Outside

COUNT = 6000

pytestmark = pytest.mark.ottla_only


@pytest.fixture(scope="module")
def disk_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaBroker]:
    made = OttlaBroker(tmp_path_factory.mktemp("disk"), {"ottla.durability": "os"})
    made.start()
    yield made
    made.kill()


def topic(broker: OttlaBroker, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    configs = {"segment.bytes": str(1 << 20), "retention.ms": "-1"}
    for future in admin.create_topics([NewTopic(name, 1, 1, config=configs)]).values():
        future.result()
    return name


def fill(producer: Producer, name: str, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        producer.produce(name, b"value-%d" % number * 50, b"key-%d" % number, partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def filled(disk_broker: OttlaBroker) -> str:
    """A topic of some sealed segments and a rest."""
    name = topic(disk_broker, "filled")
    fill(Producer({"bootstrap.servers": disk_broker.bootstrap, "linger.ms": 5}), name, COUNT)
    eventually(lambda: sealed(disk_broker, name) > 1000, "a sealed segment")
    return name


def planned(broker: OttlaBroker, name: str, **options: Any) -> tuple[Any, list[Range]]:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": name}
    given |= {key.replace("__", "."): str(value) for key, value in options.items()}
    source = DefaultSource(CaseInsensitiveDict(given))
    reader = source.reader(source.schema())
    ranges = reader.partitions()
    assert all(isinstance(range_, Range) for range_ in ranges)
    return reader, [range_ for range_ in ranges if isinstance(range_, Range)]


def sealed(broker: OttlaBroker, name: str) -> int:
    """The offset up to which the topic's partition is in sealed segments."""
    _, ranges = planned(broker, name, ottla__log__dir=broker.data_dir)
    number = ranges[0].number
    if number is None:  # not in a checkpoint yet
        return 0
    extents = list(Outside(broker.data_dir).extents(number, 0, 1 << 62))
    return extents[-1].last + 1 if extents else 0


def rows(reader: Any, ranges: list[Range]) -> list[dict[str, Any]]:
    batches = [batch for range_ in ranges for batch in reader.read(range_)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_the_rows_are_the_brokers(disk_broker: OttlaBroker, filled: str) -> None:
    found = rows(*planned(disk_broker, filled, ottla__log__dir=disk_broker.data_dir))
    assert [row["offset"] for row in found] == list(range(COUNT))
    assert found == rows(*planned(disk_broker, filled))


def test_the_broker_is_not_asked_for_what_is_sealed(
    disk_broker: OttlaBroker, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Range] = []

    def note(self: object, rows: object, range_: Range) -> Iterator[Any]:
        asked.append(range_)
        yield from ()

    monkeypatch.setattr("pyspark_ottla.fetching.Fetcher.into", note)
    end = sealed(disk_broker, filled)
    found = rows(
        *planned(disk_broker, filled, ottla__log__dir=disk_broker.data_dir, minPartitions=3)
    )
    assert [row["offset"] for row in found] == list(range(end))
    assert [(range_.start, range_.end) for range_ in asked] == (
        [(end, COUNT)] if end < COUNT else []
    )


def test_committed_records_only(disk_broker: OttlaBroker) -> None:
    name = topic(disk_broker, "transactions")
    config = {"bootstrap.servers": disk_broker.bootstrap, "linger.ms": 5}
    fill(Producer(config), name, 500)
    producer = Producer(config | {"transactional.id": name})
    producer.init_transactions(30)
    for turn in range(4):
        producer.begin_transaction()
        fill(producer, name, 1000, first=turn * 1000)
        (producer.abort_transaction if turn % 2 else producer.commit_transaction)(30)
    eventually(lambda: sealed(disk_broker, name) > 1500, "a sealed segment")
    for level, count in (("read_committed", 2500), ("read_uncommitted", 4500)):
        options = {"kafka__isolation__level": level}
        found = rows(*planned(disk_broker, name, **options, ottla__log__dir=disk_broker.data_dir))
        assert len(found) == count
        assert found == rows(*planned(disk_broker, name, **options))


def test_a_topic_that_was_made_anew_is_not_its_predecessor(disk_broker: OttlaBroker) -> None:
    name = topic(disk_broker, "anew")
    config = {"bootstrap.servers": disk_broker.bootstrap, "linger.ms": 5}
    fill(Producer(config), name, 3000)
    eventually(lambda: sealed(disk_broker, name) > 1000, "a sealed segment")
    admin = AdminClient({"bootstrap.servers": disk_broker.bootstrap})
    for future in admin.delete_topics([name]).values():
        future.result()
    topic(disk_broker, name)
    fill(Producer(config), name, 2000, first=10_000)
    found = rows(*planned(disk_broker, name, ottla__log__dir=disk_broker.data_dir))
    assert [row["key"] for row in found] == [b"key-%d" % n for n in range(10_000, 12_000)]


def test_the_folder_must_be_the_brokers(
    disk_broker: OttlaBroker, filled: str, tmp_path: Path
) -> None:
    with pytest.raises(BadOption, match=r"^ottla\.log\.dir: .*not an Ottla data folder"):
        planned(disk_broker, filled, ottla__log__dir=tmp_path / "nothing")
    other = OttlaBroker(tmp_path / "other")
    other.start()
    other.kill()
    with pytest.raises(
        BadOption, match=r"^ottla\.log\.dir: .* belongs to cluster .*, the brokers'"
    ):
        planned(disk_broker, filled, ottla__log__dir=other.data_dir)
