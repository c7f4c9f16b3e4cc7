"""Fetch sessions (KIP-227): a consumer that is only told the news still knows everything."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.sessions import EVICTION_MS, NO_SESSION, Fetch, FetchSessions, Wanted
from ottla.wire.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from ottla.wire.errors import Error, KafkaError

BY_NAME, BY_ID = 12, 13


def sessions(slots: int = 10) -> FetchSessions:
    numbers = count(1)
    return FetchSessions(slots, lambda: next(numbers))


def ask(
    *indexes: int, session: int = 0, epoch: int = 0, forget: Iterable[int] = (), offset: int = 0
) -> FetchRequest:
    partitions = [FetchPartition(partition=index, fetch_offset=offset) for index in indexes]
    forgotten = list(forget)
    return FetchRequest(
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=partitions)] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=forgotten)]
        if forgotten
        else [],
    )


def data(
    index: int, high_watermark: int = 0, records: bytes = b"", error: int = 0, start: int = 0
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=start,
        records=records,
    )


def answered(
    fetch: Fetch, read: Iterable[tuple[Wanted, PartitionData]], now_ms: float = 0
) -> tuple[int, list[PartitionData]]:
    """Answer with what was read; gives the session and what is told."""
    fetch.check_epoch()
    told, served = [], []
    for wanted, found in read:
        records = bool(found.records)
        if fetch.tells(
            wanted, found.high_watermark, found.log_start_offset, found.error_code, records
        ):
            told.append(found)
            if records:
                served.append(wanted)
    return fetch.end_answer(served, now_ms), told


def answer(fetch: Fetch, **records: bytes) -> tuple[int, list[int]]:
    """Answer with these records by partition ("p3") and nothing else new; gives the session and the
    partitions answered."""
    read = [
        (wanted, data(wanted.index, records=records.get(f"p{wanted.index}", b"")))
        for wanted in fetch.wanted.values()
    ]
    number, told = answered(fetch, read)
    return number, [found.partition_index for found in told]


def opened(cache: FetchSessions, *indexes: int, now_ms: float = 0) -> int:
    fetch = cache.begin(ask(*indexes), BY_NAME, now_ms)
    read = [(wanted, data(wanted.index)) for wanted in fetch.wanted.values()]
    return answered(fetch, read, now_ms)[0]


def order(fetch: Fetch) -> list[int]:
    return [wanted.index for wanted in fetch.wanted.values()]


def refused(cache: FetchSessions, request: FetchRequest, version: int = BY_NAME) -> Error:
    with pytest.raises(KafkaError) as caught:
        cache.begin(request, version, 0)
    return caught.value.error


# ------------------------------------------------------------------------------------------- epochs


def test_epoch_0_opens_and_answers_everything() -> None:
    cache = sessions()
    number, told = answer(cache.begin(ask(1, 2), BY_NAME, 0))
    assert number != NO_SESSION
    assert told == [1, 2]
    assert len(cache) == 1
    assert cache.partitions == 2


def test_epoch_minus_1_opens_none_and_closes_the_one_named() -> None:
    cache = sessions()
    number = opened(cache, 1)
    assert answer(cache.begin(ask(1, session=number, epoch=-1), BY_NAME, 0)) == (NO_SESSION, [1])
    assert len(cache) == 0


def test_epoch_0_with_an_id_replaces_that_session() -> None:
    cache = sessions()
    first = opened(cache, 1)
    second, _ = answer(cache.begin(ask(1, session=first), BY_NAME, 0))
    assert second not in (first, NO_SESSION)
    assert len(cache) == 1


def test_trap_28_unknown_ids_and_wrong_epochs() -> None:
    cache = sessions()
    number = opened(cache, 1)
    assert refused(cache, ask(session=99, epoch=1)) == Error.FETCH_SESSION_ID_NOT_FOUND
    assert refused(cache, ask(session=number, epoch=2)) == Error.INVALID_FETCH_SESSION_EPOCH
    assert refused(cache, ask(session=number, epoch=1), BY_ID) == Error.FETCH_SESSION_TOPIC_ID_ERROR
    answer(cache.begin(ask(session=number, epoch=1), BY_NAME, 0))
    assert refused(cache, ask(session=number, epoch=1)) == Error.INVALID_FETCH_SESSION_EPOCH


def test_an_epoch_that_overflows_goes_on_at_1() -> None:
    cache = sessions()
    number = opened(cache, 1)
    cache._sessions[number].epoch = 2**31 - 1
    answer(cache.begin(ask(session=number, epoch=2**31 - 1), BY_NAME, 0))
    answer(cache.begin(ask(session=number, epoch=1), BY_NAME, 0))


def test_an_answer_that_another_request_overtook_is_refused() -> None:
    cache = sessions()
    number = opened(cache, 1)
    slow = cache.begin(ask(session=number, epoch=1), BY_NAME, 0)
    answer(cache.begin(ask(session=number, epoch=2), BY_NAME, 0))
    with pytest.raises(KafkaError) as caught:
        answer(slow)
    assert caught.value.error == Error.INVALID_FETCH_SESSION_EPOCH


# ------------------------------------------------------------------------------------ incremental


def test_an_incremental_answer_holds_only_news() -> None:
    cache = sessions()
    number = opened(cache, 1, 2, 3, 4)
    fetch = cache.begin(ask(session=number, epoch=1), BY_NAME, 0)
    news = {1: data(1), 2: data(2, high_watermark=5), 3: data(3, start=2), 4: data(4, error=3)}
    _, told = answered(fetch, [(w, news[w.index]) for w in fetch.wanted.values()])
    assert [found.partition_index for found in told] == [2, 3, 4]


def test_the_end_of_an_error_is_news() -> None:
    cache = sessions()
    number = opened(cache, 1)
    for epoch, error, expected in ((1, 3, [1]), (2, 3, [1]), (3, 0, [1]), (4, 0, [])):
        fetch = cache.begin(ask(session=number, epoch=epoch), BY_NAME, 0)
        read = [(w, data(w.index, error=error)) for w in fetch.wanted.values()]
        _, told = answered(fetch, read)
        assert [found.partition_index for found in told] == expected, epoch


def test_an_incremental_request_adds_changes_and_forgets() -> None:
    cache = sessions()
    number = opened(cache, 1, 2)
    fetch = cache.begin(ask(2, 3, session=number, epoch=1, forget=[1], offset=7), BY_NAME, 0)
    assert order(fetch) == [2, 3]
    assert [wanted.request.fetch_offset for wanted in fetch.wanted.values()] == [7, 7]
    assert answer(fetch)[1] == [3], "a new partition is answered, an old one without news is not"


def test_a_session_without_partitions_is_closed() -> None:
    cache = sessions()
    number = opened(cache, 1)
    assert answer(cache.begin(ask(session=number, epoch=1, forget=[1]), BY_NAME, 0)) == (0, [])
    assert len(cache) == 0


def test_trap_29_partitions_just_served_go_last() -> None:
    cache = sessions()
    number, _ = answer(cache.begin(ask(1, 2, 3), BY_NAME, 0), p1=b"r")
    fetch = cache.begin(ask(session=number, epoch=1), BY_NAME, 0)
    assert order(fetch) == [2, 3, 1]
    answer(fetch, p2=b"r", p3=b"r")
    fetch = cache.begin(ask(session=number, epoch=2), BY_NAME, 0)
    assert order(fetch) == [1, 2, 3]


def test_a_partition_named_twice_counts_once_as_named_last() -> None:
    request = ask(1, 2, 1)
    request.topics[0].partitions[2].fetch_offset = 9
    fetch = sessions().begin(request, BY_NAME, 0)
    assert order(fetch) == [1, 2]
    assert fetch.wanted["t", 1].request.fetch_offset == 9


Truth = list[tuple[int, int, int, bool]]

_PARTITION = st.tuples(
    st.integers(0, 3), st.integers(0, 2), st.sampled_from((0, 0, 0, 3)), st.booleans()
)


@given(st.lists(st.lists(_PARTITION, min_size=4, max_size=4), min_size=1, max_size=15))
def test_a_consumer_of_news_knows_what_a_full_answer_would_tell(history: list[Truth]) -> None:
    """Whatever happens to the partitions, the view put together from incremental answers is that
    of somebody who is told everything each time."""
    cache = sessions()
    view: dict[int, tuple[int, int, int]] = {}
    number = 0
    for epoch, truth in enumerate(history):
        request = ask(*(range(4) if epoch == 0 else ()), session=number, epoch=epoch)
        fetch = cache.begin(request, BY_NAME, 0)
        assert sorted(order(fetch)) == [0, 1, 2, 3]
        read: list[tuple[Wanted, PartitionData]] = []
        for wanted in fetch.wanted.values():
            high_watermark, start, error, has_records = truth[wanted.index]
            high_watermark = -1 if error else high_watermark
            records = b"r" if has_records and not error else b""
            read.append((wanted, data(wanted.index, high_watermark, records, error, start)))
        number, told = answered(fetch, read)
        assert number != NO_SESSION
        for found in told:
            view[found.partition_index] = (
                found.high_watermark,
                found.log_start_offset,
                found.error_code,
            )
        answered_now = {found.partition_index for found in told}
        for index, (high_watermark, start, error, has_records) in enumerate(truth):
            assert view[index] == (-1 if error else high_watermark, start, error)
            if error or has_records:
                assert index in answered_now


# ---------------------------------------------------------------------------------------- eviction


def test_a_full_cache_answers_without_a_session() -> None:
    cache = sessions(slots=1)
    first = opened(cache, 1)
    assert opened(cache, 1, 2, 3) == NO_SESSION
    assert answer(cache.begin(ask(session=first, epoch=1), BY_NAME, 0))[0] == first


def test_no_slots_no_sessions() -> None:
    assert opened(sessions(slots=0), 1) == NO_SESSION


def test_a_session_unused_for_long_makes_room_for_any() -> None:
    cache = sessions(slots=2)
    stale = opened(cache, 1, 2, 3)
    fresh = opened(cache, 1, 2, 3, now_ms=EVICTION_MS)
    assert opened(cache, 1, now_ms=EVICTION_MS) == NO_SESSION
    assert opened(cache, 1, now_ms=EVICTION_MS + 1) != NO_SESSION
    assert cache.evicted == 1
    assert stale not in cache._sessions
    assert fresh in cache._sessions


def test_an_old_session_in_use_makes_room_only_for_more_partitions() -> None:
    cache = sessions(slots=2)
    small, large = opened(cache, 1), opened(cache, 1, 2, 3)
    now_ms = EVICTION_MS * 2
    for number in (small, large):
        cache.begin(ask(session=number, epoch=1), BY_NAME, now_ms)
    assert opened(cache, 7, now_ms=now_ms) == NO_SESSION, "no larger than the smallest"
    assert opened(cache, 7, 8, now_ms=now_ms) != NO_SESSION
    assert set(cache._sessions) & {small, large} == {large}


def test_a_young_session_in_use_makes_no_room() -> None:
    cache = sessions(slots=1)
    number = opened(cache, 1)
    cache.begin(ask(session=number, epoch=1), BY_NAME, EVICTION_MS)
    assert opened(cache, 1, 2, 3, now_ms=EVICTION_MS + 1) == NO_SESSION


def bounded(most: int, slots: int = 10) -> FetchSessions:
    numbers = count(1)
    return FetchSessions(slots, lambda: next(numbers), lambda: most)


def test_partitions_are_counted_over_all_sessions() -> None:
    cache = bounded(most=5)
    first = opened(cache, 1, 2, 3)
    assert opened(cache, 1, 2, 3) == NO_SESSION
    second = opened(cache, 1, 2)
    assert (cache.partitions, len(cache)) == (5, 2)
    answer(cache.begin(ask(session=first, epoch=1, forget=[2]), BY_NAME, 0))
    answer(cache.begin(ask(9, session=second, epoch=1), BY_NAME, 0))
    assert cache.partitions == 5
    cache.begin(ask(session=second, epoch=-1), BY_NAME, 0)
    assert cache.partitions == 2


def test_a_session_that_asks_for_more_partitions_than_there_is_room_for_is_closed() -> None:
    """Its client then asks in full, and is answered without a session."""
    cache = bounded(most=3)
    number = opened(cache, 1, 2)
    assert refused(cache, ask(3, 4, session=number, epoch=1)) == Error.FETCH_SESSION_ID_NOT_FOUND
    assert (cache.partitions, len(cache)) == (0, 0)
    assert opened(cache, 1, 2, 3, 4) == NO_SESSION


def test_partitions_make_room_as_slots_do() -> None:
    cache = bounded(most=4)
    stale = [opened(cache, 1), opened(cache, 1), opened(cache, 1)]
    assert opened(cache, 1, 2, 3, now_ms=EVICTION_MS) == NO_SESSION
    assert opened(cache, 1, 2, 3, now_ms=EVICTION_MS + 1) != NO_SESSION
    assert cache.partitions == 4
    assert stale[2] in cache._sessions
