"""Ids that clients invent: memory is bounded, by forgetting those that sent longest ago."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.log.logkit import (
    append,
    crash_copy,
    make_batch,
    new_partitions,
    open_store,
    put,
    with_options,
)
from tests.log.test_producers import header_of

from ottla.log.options import Table
from ottla.log.producers import Producers
from ottla.wire.errors import KafkaError
from ottla.wire.records import TRANSACTIONAL

MOST = 100
OPTIONS = with_options(producers_max=MOST, checkpoint_producers=20)


def fill(producers: Producers, number: int, ids: range, now_ms: int) -> None:
    for producer_id in ids:
        header = header_of(producer_id, 0, 0)
        assert producers.judge(number, header) is None
        producers.record(number, header, producer_id, producer_id + 1, now_ms)


def known(producers: Producers, number: int, ids: range) -> int:
    return sum(producers.knows(number, producer_id) for producer_id in ids)


@pytest.fixture
def producers() -> Producers:
    made = Producers()
    made.limit(MOST)
    return made


def test_no_more_than_the_limit_are_remembered(producers: Producers) -> None:
    for number in range(1, 4):
        fill(producers, number, range(1000 * number, 1000 * number + 500), 1)
        assert len(producers) <= MOST
    assert len(producers) > MOST * 3 // 4, "a few are forgotten at a time"
    assert known(producers, 3, range(3400, 3500)) > MOST // 4


def test_who_sends_is_remembered_and_who_was_silent_is_not(producers: Producers) -> None:
    fill(producers, 1, range(10), 0)
    for turn in range(1, 50):
        now = turn * 2000
        for producer_id in range(5):  # these send all the time
            header = header_of(producer_id, 0, turn)
            assert producers.judge(1, header) is None
            producers.record(1, header, 10_000 + turn, 20_000, now)
        fill(producers, 1, range(1000 * turn, 1000 * turn + 40), now)
    assert known(producers, 1, range(5)) == 5
    assert known(producers, 1, range(5, 10)) == 0


def test_a_flood_in_one_partition_does_not_reach_others(producers: Producers) -> None:
    for number in range(1, 11):
        fill(producers, number, range(5), 0)
    fill(producers, 77, range(1000, 9000), 1)
    for number in range(1, 11):
        assert known(producers, number, range(5)) == 5
    fill(producers, 11, range(5), 2)  # the room comes from where there is most
    assert known(producers, 11, range(5)) == 5
    assert known(producers, 1, range(5)) == 5
    assert len(producers) <= MOST


def test_who_has_a_transaction_open_is_not_forgotten(producers: Producers) -> None:
    header = header_of(5, 0, 0)._replace(attributes=TRANSACTIONAL)
    producers.record(1, header, 0, 1, 0)
    fill(producers, 1, range(1000, 5000), 10)
    assert producers.open_transaction(1, 5) == 0
    assert len(producers) <= MOST


def test_who_was_forgotten_goes_on_as_after_an_expiry(producers: Producers) -> None:
    fill(producers, 1, range(5, 6), 0)
    with pytest.raises(KafkaError):
        producers.judge(1, header_of(5, 0, 7))
    fill(producers, 1, range(1000, 5000), 10)
    assert producers.judge(1, header_of(5, 0, 7)) is None


def test_the_count_is_that_of_what_there_is(producers: Producers) -> None:
    fill(producers, 1, range(30), 0)
    fill(producers, 2, range(30), 0)
    producers.drop_partition(1)
    assert len(producers) == 30
    producers.rollback(lambda _: 10)
    assert len(producers) == 10
    while producers.expire(10, 5):
        pass
    assert len(producers) == 0


def test_the_checkpoint_follows_and_a_start_keeps_the_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path / "log", options=OPTIONS)
    a, b = new_partitions(store, 2)
    put(store, b, make_batch(producer=(4, 0, 0)))
    for producer_id in range(1000, 1500):
        append(store, a, make_batch(producer=(producer_id, 0, 0)))
        if producer_id % 10 == 0:
            store.flush()
            assert store.producers.changed < 100, "one checkpoint gathers no more than a few"
    store.flush()
    store.tick(10)
    rows = list(store.scan(Table.PRODUCERS))
    assert len(rows) == len(store.producers) <= MOST
    lines = [r for r in caplog.records if "ottla.producer.states.max.count" in r.getMessage()]
    assert [line.levelno for line in lines] == [logging.WARNING]
    killed = crash_copy(store.folder.path, tmp_path / "killed")
    store.close()
    again = open_store(killed, options=with_options(producers_max=10))
    assert 0 < len(again.producers) <= 10
    assert append(again, again.partition(b.number), make_batch(producer=(4, 0, 0))).duplicate
    again.close()
