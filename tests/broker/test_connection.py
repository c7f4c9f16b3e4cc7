"""Connections without sockets: framing, order, bounds."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.connection import OWN_BUFFER_FROM, Connection, Slot
from ottla.broker.limits import Budget, Limits, Unsent
from ottla.wire.primitives import Buffer

PRODUCE, FETCH, METADATA = 0, 1, 3


def request(key: int, number: int, padding: int = 0) -> bytes:
    body = struct.pack(">hhi", key, 0, number) + bytes(padding)
    return struct.pack(">i", len(body)) + body


class Handled:
    """One request as the host saw it."""

    def __init__(self, frame: Buffer) -> None:
        size, self.key, _, self.number = struct.unpack_from(">ihhi", frame)
        assert size == len(frame) - 4
        self.frame = bytes(frame)
        self.slot: Slot | None = None

    def answer(self) -> None:
        assert self.slot is not None
        self.slot.fill([struct.pack(">i", self.number)])


class FakeHost:
    """Parks Produce and Fetch, answers the rest at once with the request's number."""

    def __init__(self, limits: Limits | None = None, budget: int = 1 << 30) -> None:
        self.limits = limits or Limits()
        self.budget = Budget(budget)
        self.unsent = Unsent(1 << 30)
        self.scratch = memoryview(bytearray(64 * 1024))
        self.ahead = frozenset((PRODUCE,))
        self.late = False
        self.handled: list[Handled] = []
        self.touches = 0
        self.instead: Callable[[Connection, Handled], None] | None = None

    def connection(self) -> Connection:
        return Connection(self, "L", "client")

    def handle(self, connection: Connection, frame: Buffer) -> None:
        handled = Handled(frame)
        self.handled.append(handled)
        if self.instead is not None:
            self.instead(connection, handled)
        elif handled.key in (PRODUCE, FETCH):
            handled.slot = connection.park(ahead=handled.key == PRODUCE)
        else:
            connection.answer([struct.pack(">i", handled.number)])

    def touched(self, connection: Connection) -> None:
        self.touches += 1

    @property
    def numbers(self) -> list[int]:
        return [handled.number for handled in self.handled]

    def __getitem__(self, number: int) -> Handled:
        return next(handled for handled in self.handled if handled.number == number)


def sent(connection: Connection) -> list[int]:
    data = b"".join(connection.take_output())
    return [number for (number,) in struct.iter_unpack(">i", data)]


def turn(connection: Connection) -> list[int]:
    connection.run()
    return sent(connection)


# ------------------------------------------------------------------------------------------ frames


@given(st.lists(st.integers(0, 70_000), max_size=8), st.data())
def test_frames_however_the_bytes_are_cut(paddings: list[int], data: st.DataObject) -> None:
    host = FakeHost()
    connection = host.connection()
    wire = b"".join(request(METADATA, n, padding) for n, padding in enumerate(paddings))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    for start, stop in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        connection.feed(wire[start:stop])
    assert [h.frame for h in host.handled] == [
        request(METADATA, n, padding) for n, padding in enumerate(paddings)
    ]
    assert host.budget.used == 0
    assert sent(connection) == list(range(len(paddings)))


def test_a_frame_byte_by_byte() -> None:
    host = FakeHost()
    connection = host.connection()
    for byte in request(METADATA, 7, 100):
        assert host.handled == []
        connection.feed(bytes((byte,)))
    assert host.numbers == [7]


def test_small_frames_stay_writable_for_the_log() -> None:
    seen: list[Buffer] = []
    host = FakeHost()
    host.handle = lambda connection, frame: seen.append(frame)  # type: ignore[method-assign]
    connection = host.connection()
    connection.feed(request(METADATA, 1) + request(METADATA, 2, OWN_BUFFER_FROM * 4))
    assert [memoryview(frame).readonly for frame in seen] == [False, False]


def test_a_large_frame_is_received_where_it_stays() -> None:
    host = FakeHost()
    connection = host.connection()
    wire = request(METADATA, 1, 200_000)
    connection.feed(wire[:100])
    assert connection.get_buffer() is not host.scratch
    assert len(connection.get_buffer()) == len(wire) - 100
    connection.feed(wire[100:] + request(METADATA, 2))
    assert host.numbers == [1, 2]
    assert connection.get_buffer() is host.scratch


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_size_out_of_range_closes_before_memory_is_taken(size: int) -> None:
    host = FakeHost(Limits(max_frame_bytes=1000))
    connection = host.connection()
    connection.feed(request(METADATA, 1) + struct.pack(">i", size) + b"more")
    assert host.numbers == [1]
    assert connection.closed is not None
    assert host.budget.peak == 0
    connection.feed(request(METADATA, 2))
    assert host.numbers == [1], "nothing is taken in after that"


def test_a_bad_size_waits_for_the_answers_before_it() -> None:
    host = FakeHost(Limits(max_frame_bytes=1000))
    connection = host.connection()
    connection.feed(request(PRODUCE, 1) + struct.pack(">i", -1))
    assert connection.closed is None
    host[1].answer()
    assert connection.closed is not None
    assert sent(connection) == [1]


def test_a_claimed_size_costs_nothing_but_what_is_sent() -> None:
    host = FakeHost(budget=64_000_000)
    small, large = host.connection(), host.connection()
    small.feed(request(METADATA, 1, 15_000_000)[:10])
    assert len(small.get_buffer()) > 14_000_000, "while there is plenty it is not made to grow"
    large.feed(struct.pack(">i", 90_000_000) + bytes(10))
    assert len(large.get_buffer()) < 2 * OWN_BUFFER_FROM
    large.feed(bytes(100_000))
    assert len(large.get_buffer()) < 300_000
    assert host.budget.used < 15_500_000


def test_nothing_is_handled_behind_what_closed_the_connection() -> None:
    host = FakeHost()
    host.instead = lambda connection, handled: connection.close("no sense")
    connection = host.connection()
    connection.feed(request(METADATA, 1) + request(PRODUCE, 2))
    connection.feed(request(PRODUCE, 3))
    connection.run()
    assert host.numbers == [1]
    assert host.budget.used == 0


# ------------------------------------------------------------------------------------------- order


def test_produce_may_start_behind_produce_and_answers_keep_their_order() -> None:
    host = FakeHost()
    connection = host.connection()
    connection.feed(b"".join(request(PRODUCE, n) for n in range(4)))
    assert host.numbers == [0, 1, 2, 3]
    host[1].answer()
    host[3].answer()
    assert turn(connection) == []
    host[0].answer()
    assert turn(connection) == [0, 1]
    host[2].answer()
    assert turn(connection) == [2, 3]


def test_a_request_answered_at_once_waits_for_those_before_it() -> None:
    host = FakeHost()
    host.ahead = frozenset((PRODUCE, METADATA))
    connection = host.connection()
    connection.feed(request(PRODUCE, 0) + request(METADATA, 1))
    assert host.numbers == [0, 1]
    assert turn(connection) == []
    host[0].answer()
    assert turn(connection) == [0, 1]


def test_fetch_behind_produce_starts_when_it_can_see_the_records() -> None:
    host = FakeHost()
    connection = host.connection()
    connection.feed(request(PRODUCE, 0) + request(PRODUCE, 1) + request(FETCH, 2))
    assert host.numbers == [0, 1]
    host[0].answer()
    assert turn(connection) == [0]
    assert host.numbers == [0, 1], "one produce is not answered yet"
    host[1].answer()
    turn(connection)
    assert host.numbers == [0, 1, 2]


def test_nothing_passes_a_long_poll() -> None:
    host = FakeHost()
    connection = host.connection()
    connection.feed(request(FETCH, 0) + request(PRODUCE, 1) + request(METADATA, 2))
    assert host.numbers == [0]
    assert connection.wants_read is False, "what was read is enough to wait with"
    host[0].answer()
    turn(connection)
    assert host.numbers == [0, 1]
    host[1].answer()
    assert turn(connection) == [1, 2]
    assert connection.wants_read is True


def test_a_request_without_an_answer_keeps_its_place() -> None:
    host = FakeHost()
    connection = host.connection()
    connection.feed(request(PRODUCE, 0) + request(METADATA, 1))
    slot = host[0].slot
    assert slot is not None
    slot.fill(())
    assert turn(connection) == [1]


def test_an_error_without_an_answer_closes_when_its_turn_comes() -> None:
    host = FakeHost()
    connection = host.connection()
    connection.feed(request(PRODUCE, 0) + request(PRODUCE, 1) + request(PRODUCE, 2))
    slot = host[1].slot
    assert slot is not None
    slot.close("acks=0")
    assert connection.closed is None
    host[0].answer()
    assert connection.closed == "acks=0"
    assert sent(connection) == [0]
    assert host[2].slot is not None
    assert host[2].slot.filled, "nobody waits for its answer"
    host[2].answer()
    assert sent(connection) == []


@given(
    st.lists(st.sampled_from((PRODUCE, FETCH, METADATA)), max_size=30),
    st.lists(st.integers(0, 10), max_size=60),
    st.integers(1, 4),
)
def test_order_is_that_of_one_request_at_a_time(
    keys: list[int], choices: list[int], max_parked: int
) -> None:
    """Whatever is answered when: answers leave in order, and all that is not Produce starts only
    when everything before it is answered."""
    host = FakeHost(Limits(max_parked=max_parked, max_turn=3))
    connection = host.connection()

    def check(connection: Connection, handled: Handled) -> None:
        waiting = [h for h in host.handled[:-1] if h.slot is not None and not h.slot.filled]
        assert len(waiting) < max_parked
        if handled.key != PRODUCE:
            assert not waiting
        assert all(h.key == PRODUCE for h in waiting)
        if handled.key == METADATA:
            connection.answer([struct.pack(">i", handled.number)])
        else:
            handled.slot = connection.park(ahead=handled.key == PRODUCE)

    host.instead = check
    connection.feed(b"".join(request(key, n) for n, key in enumerate(keys)))
    out = turn(connection)
    for choice in choices:
        waiting = [h for h in host.handled if h.slot is not None and not h.slot.filled]
        if waiting:
            waiting[choice % len(waiting)].answer()
        out += turn(connection)
    while connection.unanswered or not connection.idle:
        for handled in host.handled:
            if handled.slot is not None:
                handled.answer()
        out += turn(connection)
    assert out == list(range(len(keys)))
    assert host.budget.used == 0


# ------------------------------------------------------------------------------------------ bounds


def test_no_more_than_max_parked_wait_for_their_answer() -> None:
    host = FakeHost(Limits(max_parked=2))
    connection = host.connection()
    connection.feed(b"".join(request(PRODUCE, n) for n in range(5)))
    assert host.numbers == [0, 1]
    assert connection.wants_read is False
    host[0].answer()
    turn(connection)
    assert host.numbers == [0, 1, 2]


def test_one_client_does_not_hold_up_a_turn() -> None:
    host = FakeHost(Limits(max_turn=3))
    connection = host.connection()
    connection.feed(b"".join(request(METADATA, n) for n in range(8)))
    assert host.numbers == [0, 1, 2]
    assert connection.wants_read is False
    assert turn(connection) == [0, 1, 2, 3, 4, 5]
    assert connection.more_to_run
    assert turn(connection) == [6, 7]
    assert not connection.more_to_run
    assert connection.wants_read


def test_a_turn_that_ends_with_the_last_of_its_share_is_followed_by_another() -> None:
    """Once a client hung for ever whose requests were a whole number of shares."""
    host = FakeHost(Limits(max_turn=3))
    connection = host.connection()
    connection.feed(b"".join(request(METADATA, n) for n in range(6)))
    assert turn(connection) == [0, 1, 2, 3, 4, 5]
    host.touches = 0
    connection.feed(request(METADATA, 6))
    assert host.numbers == [0, 1, 2, 3, 4, 5]
    assert host.touches, "somebody has to end its turn"
    assert turn(connection) == [6]


def test_what_comes_late_in_a_turn_waits_for_the_next_in_its_order() -> None:
    host = FakeHost()
    connection = host.connection()

    def takes_long(connection: Connection, handled: Handled) -> None:
        connection.answer([struct.pack(">i", handled.number)])
        host.late = handled.number % 3 == 2

    host.instead = takes_long
    connection.feed(b"".join(request(METADATA, n) for n in range(5)))
    assert host.numbers == [0, 1, 2]
    assert host.touches, "somebody has to end its turn"
    assert not connection.wants_read
    assert connection.more_to_run
    assert not connection.only_waits, "there are answers to send"
    assert turn(connection) == [0, 1, 2]
    assert connection.only_waits
    host.late = False
    assert turn(connection) == [3, 4]
    assert not connection.more_to_run
    assert connection.wants_read


def test_nothing_starts_while_a_client_does_not_read_its_answers() -> None:
    host = FakeHost(Limits(send_high_bytes=8))
    connection = host.connection()
    connection.feed(b"".join(request(METADATA, n) for n in range(5)))
    assert host.numbers == [0, 1], "two answers are all that may wait"
    connection.sending(True)
    assert turn(connection) == [0, 1]
    assert turn(connection) == []
    assert host.numbers == [0, 1]
    connection.sending(False)
    assert turn(connection) == [2, 3]


def test_the_budget_counts_what_is_parked_and_stops_its_owner() -> None:
    host = FakeHost(budget=300)
    owner, other = host.connection(), host.connection()
    owner.feed(request(PRODUCE, 0, 288))
    assert host.budget.used == 300
    assert owner.wants_read is False
    assert other.wants_read is True, "who holds nothing may always ask"
    host[0].answer()
    touches = host.touches
    host.budget.wake_some()
    assert host.touches > touches
    assert host.budget.used == 0
    assert owner.wants_read is True


def test_a_large_frame_waits_for_room_and_then_arrives() -> None:
    host = FakeHost(budget=OWN_BUFFER_FROM)
    first, second = host.connection(), host.connection()
    first.feed(request(PRODUCE, 0, OWN_BUFFER_FROM * 2))
    assert host.numbers == [0]
    late = request(PRODUCE, 1, OWN_BUFFER_FROM * 2)
    second.feed(late[:500])
    assert second.wants_read is False
    assert not host.budget.wake_some()
    host[0].answer()
    touches = host.touches
    host.budget.wake_some()
    assert host.touches > touches
    second.run()
    assert second.wants_read is True
    second.feed(late[500:])
    assert host.numbers == [0, 1]
    host[1].answer()
    assert host.budget.used == 0


def test_of_large_frames_without_room_only_the_oldest_goes_on() -> None:
    host = FakeHost(budget=200_000)
    wires = [request(METADATA, number, 300_000) for number in range(3)]
    connections = [host.connection() for _ in wires]
    given = [0, 0, 0]

    def feed_while_wanted() -> None:
        """A little to each in turn, as long as any of them is read from."""
        fed = True
        while fed:
            fed = False
            for index, connection in enumerate(connections):
                if connection.wants_read and given[index] < len(wires[index]):
                    count = min(1000, len(connection.get_buffer()))
                    connection.feed(wires[index][given[index] :][:count])
                    given[index] += count
                    fed = True

    feed_while_wanted()
    assert host.numbers[0] == 0, "the oldest is complete though there is no room for all"
    assert host.budget.peak < 500_000
    for _ in range(4):
        host.budget.wake_some()
        for connection in connections:
            connection.run()
        feed_while_wanted()
    assert sorted(host.numbers) == [0, 1, 2]
    assert (host.budget.used, host.budget.frames) == (0, {})


def test_a_frame_larger_than_the_budget_passes() -> None:
    host = FakeHost(budget=1000)
    connection = host.connection()
    connection.feed(request(METADATA, 0, OWN_BUFFER_FROM * 2))
    assert host.numbers == [0]


def test_who_waits_for_room_is_woken_in_turn_and_a_few_at_a_time() -> None:
    budget = Budget(10)
    woken: list[int] = []
    for number in range(40):
        budget.when_room(partial(woken.append, number))
    budget.take(10)
    assert not budget.wake_some()
    assert woken == []
    budget.give(1)
    assert budget.wake_some()
    assert woken == list(range(16))
    assert budget.wake_some()
    assert not budget.wake_some()
    assert woken == list(range(40))


def test_a_lost_connection_gives_everything_back() -> None:
    host = FakeHost(Limits(max_parked=2))
    connection = host.connection()
    connection.feed(b"".join(request(PRODUCE, n, 100) for n in range(4)))
    connection.feed(request(PRODUCE, 9, 500_000)[:1000])
    lost: list[int] = []
    for number in (0, 1):
        slot = host[number].slot
        assert slot is not None
        slot.on_lost = lambda number=number: lost.append(number)
    connection.close("gone")
    assert lost == [0, 1]
    assert host.budget.used == 0
    host[0].answer()
    assert host.budget.used == 0
    assert sent(connection) == []
    connection.run()
    assert host.numbers == [0, 1]


def test_park_on_a_closed_connection_is_over_at_once() -> None:
    host = FakeHost()
    connection = host.connection()
    connection.close("gone")
    slot = connection.park(ahead=True)
    assert slot.filled
    assert host.budget.used == 0
