"""Warns of topics whose records were written with timestamps older than retention.ms.

Retention goes by the records' own timestamps, as in Apache Kafka: historic records (a replay, a
data set of last year) are deleted by its next pass, minutes after they were acknowledged. No
request is looked at for this: the index of the file being written knows the latest timestamp of
each partition in it, and the file knows when it was begun.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.metadata import Topic, Topics
    from ottla.broker.timers import Timers
    from ottla.log.store import Store

_logger = logging.getLogger(__name__)

#: How often some partitions are looked at, in ms, and how many.
CHECK_MS: Final = 1000
AT_ONCE: Final = 2000
#: Topics that are warned of by name in one check; the others are counted.
NAMED: Final = 10


class Historic:
    """Looks at some topics from time to time, and warns once of each."""

    def __init__(self, store: Store, topics: Topics, timers: Timers) -> None:
        self._store = store
        self._topics = topics
        self._timers = timers
        self._round: Iterator[Topic] = iter(())
        #: The retention.ms that a topic was warned of, by the topic's id.
        self._warned: dict[bytes, int] = {}
        timers.after(CHECK_MS, self._check)

    def _check(self) -> None:
        self._timers.after(CHECK_MS, self._check)
        left, unnamed = AT_ONCE, 0
        named = 0
        while left > 0:
            topic = next(self._round, None)
            if topic is None:
                self._begin()
                break
            left -= 1 + len(topic.partitions)
            latest = self._latest(topic)
            if latest is None or self._warned.get(topic.topic_id) == topic.config.retention_ms:
                continue
            self._warned[topic.topic_id] = topic.config.retention_ms
            if named < NAMED:
                named += 1
                _warn(topic, latest)
            else:
                unnamed += 1
        if unnamed:
            _logger.warning(
                "%d more topics hold records with timestamps older than retention.ms", unnamed
            )

    def _begin(self) -> None:
        topics = list(self._topics)
        ids = {topic.topic_id for topic in topics}
        self._warned = {known: ms for known, ms in self._warned.items() if known in ids}
        self._round = iter(topics)

    def _latest(self, topic: Topic) -> int | None:
        """The latest timestamp of a partition's part of the file if all of the part was older than
        retention allows when the file was begun; None if there is no such partition."""
        config = topic.config
        if config.retention_ms < 0 or not config.expires:
            return None
        active = self._store.layout.active
        held = active.index.partitions
        kept_from = active.created_ms - config.retention_ms
        for number in topic.partitions:
            extents = held.get(number)
            if extents is not None and 0 <= extents.max_timestamp < kept_from:
                return extents.max_timestamp
        return None


def _warn(topic: Topic, latest: int) -> None:
    _logger.warning(
        "topic %s: records were written with timestamps of %s and earlier, which retention.ms=%d"
        " does not keep: the next pass deletes them. Set retention.ms=-1 (ottla topics alter %s"
        " --config retention.ms=-1) to keep historic records",
        topic.name,
        datetime.fromtimestamp(latest / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        topic.config.retention_ms,
        topic.name,
    )
