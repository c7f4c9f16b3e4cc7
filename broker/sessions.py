"""Incremental fetch sessions (KIP-227): the broker remembers which partitions a consumer reads, so
that a request names only what changed and an answer only what has news.

A session is bound to nothing but its id: it outlives its connection. There is room for a bounded
number of them (max.incremental.fetch.session.cache.slots), and of partitions in all of them
(ottla.fetch.session.cache.max.partitions); a consumer that finds none is answered without one and
sends full requests, which only costs bytes. So does one that adds more partitions than there is
room for: its session is not found any more. Rules and codes are those of Kafka's
FetchManager and FetchSessionCacheShard:

    epoch  0   full request: opens a session, and closes the one whose id it carries
    epoch -1   full request: closes the session, opens none; also the default before version 7
    epoch  n   incremental: n must be the next one, else INVALID_FETCH_SESSION_EPOCH
               no such session: FETCH_SESSION_ID_NOT_FOUND; opened under topic names and now asked
               with topic ids, or the reverse: FETCH_SESSION_TOPIC_ID_ERROR
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from random import randrange
from typing import Final, TypeAlias

from ottla.broker.slices import whole
from ottla.log.partition import Partition
from ottla.wire.api.fetch import FetchPartition, FetchRequest
from ottla.wire.errors import Error, KafkaError

NO_SESSION: Final = 0
_OPEN_EPOCH: Final = 0
_CLOSE_EPOCH: Final = -1
_LAST_EPOCH: Final = 0x7FFFFFFF
#: Sessions that may go for one, at most: each is looked for among all.
_EVICTIONS: Final = 20
#: Partitions of a request between two yields.
_STEP: Final = 256
#: A session unused for this long makes room for any new one; a younger one makes none at all
#: (FetchSessionCache's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS).
EVICTION_MS: Final = 120_000

#: Partitions remembered, over all sessions (ottla.fetch.session.cache.max.partitions).
MOST_PARTITIONS: Final = 100_000

#: A partition as a request names it: topic id (13+) or name, and index.
Key: TypeAlias = tuple[bytes | str, int]


def _random_number() -> int:
    return randrange(1, _LAST_EPOCH)


class Wanted:
    """One partition a consumer reads, as it last asked for it, and what it was last told."""

    __slots__ = (
        "high_watermark",
        "index",
        "known",
        "log_start_offset",
        "request",
        "topic",
        "topic_name",
        "version",
    )

    def __init__(self, topic: bytes | str, request: FetchPartition) -> None:
        self.topic = topic
        #: What the topic id was found to name; a name stays with the session, so that a topic made
        #: anew under it is told apart from an id never heard of.
        self.topic_name: str | None = topic if isinstance(topic, str) else None
        self.index = request.partition
        self.request = request
        #: What it was found to be when topics had this version (fetching.py).
        self.known: Partition | Error = Error.UNKNOWN_TOPIC_OR_PARTITION
        self.version = -1
        self.high_watermark = -1
        self.log_start_offset = -1

    def told(self, high_watermark: int, log_start_offset: int, error: int, more: bool) -> bool:
        """Whether this is news to the consumer; remembers what it is told.

        `more`: it is told more than this, such as records. After an error the high watermark counts
        as unknown, so that the end of the error is news.
        """
        news = more or error != 0
        if high_watermark != self.high_watermark:
            self.high_watermark = high_watermark
            news = True
        if log_start_offset != self.log_start_offset:
            self.log_start_offset = log_start_offset
            news = True
        if error != 0:
            self.high_watermark = -1
        return news


class FetchSession:
    """The partitions of one consumer, those served longest ago first."""

    __slots__ = (
        "by_id",
        "counted",
        "created_ms",
        "epoch",
        "evictable",
        "last_used_ms",
        "number",
        "wanted",
    )

    def __init__(self, number: int, by_id: bool, wanted: dict[Key, Wanted], now_ms: float) -> None:
        self.number = number
        self.by_id = by_id
        self.wanted = wanted
        #: Its partitions in FetchSessions.partitions.
        self.counted = 0
        self.epoch = 1
        self.created_ms = self.last_used_ms = now_ms
        #: Old enough, when last used, to make room for a session of more partitions.
        self.evictable = False


class Fetch:
    """What one request asks for once its session is known."""

    __slots__ = ("_epoch", "_opens", "_sessions", "by_id", "session", "wanted")

    def __init__(
        self,
        sessions: FetchSessions,
        wanted: dict[Key, Wanted],
        by_id: bool,
        *,
        session: FetchSession | None = None,
        opens: bool = False,
    ) -> None:
        self._sessions = sessions
        #: Partitions to read, in the order in which they should be served.
        self.wanted = wanted
        self.by_id = by_id
        #: The session an incremental request belongs to.
        self.session = session
        self._epoch = 0 if session is None else session.epoch
        self._opens = opens

    def check_epoch(self) -> None:
        """Before anything is told. Raises KafkaError INVALID_FETCH_SESSION_EPOCH when another
        request of the session was begun meanwhile."""
        if self.session is not None and self.session.epoch != self._epoch:
            raise KafkaError(Error.INVALID_FETCH_SESSION_EPOCH)

    def tells(
        self, wanted: Wanted, high_watermark: int, log_start_offset: int, error: int, more: bool
    ) -> bool:
        """Whether the answer has to hold a partition of which this is to be told."""
        if self.session is not None:
            return wanted.told(high_watermark, log_start_offset, error, more)
        if self._opens:
            wanted.told(high_watermark, log_start_offset, error, more)
        return True

    def end_answer(self, served: Iterable[Wanted], now_ms: float) -> int:
        """The session id to answer with.

        `served`: partitions that are sent records. They go to the end of the order: under max_bytes
        those that follow come first next time, or a busy one would starve the others.
        """
        session = self.session
        if session is None and not self._opens:
            return NO_SESSION
        order = self.wanted if session is None else session.wanted
        for wanted in served:
            key = (wanted.topic, wanted.index)
            if order.pop(key, None) is not None:
                order[key] = wanted
        if session is None:
            return self._sessions._open(order, self.by_id, now_ms)
        return session.number


class FetchSessions:
    """All sessions of the broker, those used longest ago first."""

    def __init__(
        self,
        slots: int,
        new_number: Callable[[], int] = _random_number,
        most: Callable[[], int] = lambda: MOST_PARTITIONS,
    ) -> None:
        """`new_number`: a random number from 1 to 2**31 - 1. `most`: partitions that may be
        remembered, over all sessions."""
        self.slots = slots
        #: Partitions remembered, over all sessions.
        self.partitions = 0
        self._most = most
        self.evicted = 0
        self._new_number = new_number
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, version: int, now_ms: float) -> Fetch:
        """`begin_steps` in one go."""
        return whole(self.begin_steps(request, version, now_ms))

    def begin_steps(
        self, request: FetchRequest, version: int, now_ms: float
    ) -> Generator[None, None, Fetch]:
        """Find what `request` asks for; yields now and then. `now_ms`: a clock that does not step
        back.

        Raises KafkaError with the codes named above.
        """
        by_id = version >= 13
        if request.session_epoch in (_OPEN_EPOCH, _CLOSE_EPOCH):
            self._close(request.session_id)
            opens = request.session_epoch == _OPEN_EPOCH
            wanted: dict[Key, Wanted] = {}
            yield from _name(wanted, request, by_id)
            return Fetch(self, wanted, by_id, opens=opens)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(Error.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(Error.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = session.epoch + 1 if session.epoch < _LAST_EPOCH else 1
        self._touch(session, now_ms)
        before = len(session.wanted)
        yield from _name(session.wanted, request, by_id)
        self._count(session)
        if not session.wanted:
            self._close(session.number)
            return Fetch(self, {}, by_id)
        if self.partitions > self._most() and len(session.wanted) > before:
            self._close(session.number)
            raise KafkaError(Error.FETCH_SESSION_ID_NOT_FOUND)  # the client asks in full, then
        # A copy of the order, not of the partitions: answering changes it.
        return Fetch(self, dict(session.wanted), by_id, session=session)

    def _touch(self, session: FetchSession, now_ms: float) -> None:
        session.last_used_ms = now_ms
        session.evictable = now_ms - session.created_ms > EVICTION_MS
        self._sessions.move_to_end(session.number)

    def _open(self, wanted: dict[Key, Wanted], by_id: bool, now_ms: float) -> int:
        for _ in range(_EVICTIONS):
            full = self.partitions + len(wanted) > self._most()
            if not full and len(self._sessions) < self.slots:
                break
            if not self._evict(len(wanted), now_ms):
                return NO_SESSION
        else:
            return NO_SESSION
        number = self._new_number()
        while number in self._sessions or number == NO_SESSION:
            number = self._new_number()
        session = self._sessions[number] = FetchSession(number, by_id, wanted, now_ms)
        self._count(session)
        return number

    def _count(self, session: FetchSession) -> None:
        """The session's partitions have become others."""
        if session.number in self._sessions:
            self.partitions += len(session.wanted) - session.counted
            session.counted = len(session.wanted)

    def _close(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            self.partitions -= session.counted

    def _evict(self, size: int, now_ms: float) -> bool:
        """Make room for a session of `size` partitions, if there is one less worth keeping: unused
        for long, or not new and of fewer partitions, the smallest first."""
        if not self._sessions or size > self._most():
            return False
        victim = next(iter(self._sessions.values()))
        if now_ms - victim.last_used_ms <= EVICTION_MS:
            candidates = [s for s in self._sessions.values() if s.evictable]
            if not candidates:
                return False
            victim = min(candidates, key=lambda s: (len(s.wanted), s.number))
            if len(victim.wanted) >= size:
                return False
        self._close(victim.number)
        self.evicted += 1
        return True


def _name(
    wanted: dict[Key, Wanted], request: FetchRequest, by_id: bool
) -> Generator[None, None, None]:
    """Take in the partitions that a request names, adds, changes or forgets, some at a time; one
    named twice counts once, as it was named last."""
    count = 0
    for topic in request.topics:
        name: bytes | str = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            known = wanted.get((name, partition.partition))
            if known is None:
                wanted[name, partition.partition] = Wanted(name, partition)
            else:
                known.request = partition
            count += 1
            if not count % _STEP:
                yield
    for gone in request.forgotten_topics_data:
        name = gone.topic_id if by_id else gone.topic
        for index in gone.partitions:
            wanted.pop((name, index), None)
            count += 1
            if not count % _STEP:
                yield
