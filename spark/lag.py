"""Shows a stream's progress to the tools that watch consumer groups.

Spark keeps its offsets in the checkpoint and commits none to Kafka, so that every lag tool is blind
to it. Two ways to let them see, both from outside of the query, which need not be ours:

    spark.streams.addListener(LagListener("orders-to-lake", "127.0.0.1:9092"))
    ottla-spark lag --checkpoint ./checkpoint --group orders-to-lake --follow 10

Committed is what finished batches have read: the end offsets of the last one. The group must have
no members; a stream that joins one (kafka.group.id with the deprecated offset fetcher) cannot be
shown this way.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ottla.spark.errors import JobError

log = logging.getLogger(__name__)

Offsets = dict[tuple[str, int], int]
"""The next offset to read, by topic and partition."""


def offsets_of(sources: Iterable[str | None]) -> Offsets:
    """From the end offsets of a query's sources, as Spark writes them: JSON, a text a source.

    Sources that are no Kafka (a rate, files) are passed over. Of a topic that several sources read,
    the one furthest behind counts.
    """
    found: Offsets = {}
    for text in sources:
        for place, offset in _kafka_offsets(text).items():
            found[place] = min(offset, found.get(place, offset))
    return found


def _kafka_offsets(text: str | None) -> Offsets:
    try:
        topics = json.loads(text or "")
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
            if int(offset) >= 0
        }
    except (ValueError, AttributeError, TypeError):
        return {}


def committed(checkpoint: Path) -> tuple[int, Offsets] | None:
    """The last finished batch of a checkpoint and where it ended; None when there is none yet.

    Raises JobError when the folder is no checkpoint, or in a form that is not known here.
    """
    if not (checkpoint / "offsets").is_dir():
        raise JobError(f"--checkpoint: {checkpoint} has no folder `offsets`: not a stream's")
    commits = checkpoint / "commits"
    names = [path.name for path in commits.iterdir()] if commits.is_dir() else []
    batches = [int(name) for name in names if name.isdecimal()]
    if not batches:
        return None
    batch = max(batches)
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    if lines[:1] != ["v1"]:
        raise JobError(f"--checkpoint: {checkpoint} is written as {lines[:1]}, only v1 is known")
    return batch, offsets_of(lines[2:])


class GroupCommits:
    """Commits offsets to a group without being in it.

    `settings` are librdkafka's (security and the like). Thread-safe.
    """

    def __init__(
        self, group: str, bootstrap: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self.group = group
        self._lock = threading.Lock()
        self._last: Offsets = {}
        self._client: Any = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "error_cb": lambda error: None,
                "log_level": 0,
                **(settings or {}),
                "group.id": group,
                "enable.auto.commit": False,
            }
        )

    def commit(self, offsets: Offsets) -> int:
        """Commit what has changed since the last time; how many partitions that were.

        Raises KafkaException, UNKNOWN_MEMBER_ID when the group has members.
        """
        with self._lock:
            changed = {place: at for place, at in offsets.items() if self._last.get(place) != at}
            if not changed:
                return 0
            answers = self._client.commit(
                offsets=[TopicPartition(*place, at) for place, at in changed.items()],
                asynchronous=False,
            )
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
            self._last |= changed
            return len(changed)

    def close(self) -> None:
        with self._lock:
            self._client.close()


class LagListener(StreamingQueryListener):
    """Commits where each batch ended to `group`: `spark.streams.addListener(LagListener(...))`.

    `query` names the one query to follow; None: all of the session, which must not read the same
    partitions. A commit that fails is a warning in the log and tried again with the next batch: the
    stream goes on.
    """

    def __init__(
        self,
        group: str,
        bootstrap: str,
        *,
        query: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.group = group
        self._query = query
        self._commits = GroupCommits(group, bootstrap, settings)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is done yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing new is done."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if self._query is not None and progress.name != self._query:
            return
        try:
            self._commits.commit(offsets_of(source.endOffset for source in progress.sources))
        except KafkaException as error:
            log.warning("cannot commit to group %s: %s", self.group, error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Its last batch was reported before."""

    def close(self) -> None:
        """Once the listener is removed from the session."""
        self._commits.close()


def follow(
    checkpoint: Path,
    commits: GroupCommits,
    *,
    every: float | None = None,
    say: Callable[[int, Offsets], None] = lambda batch, offsets: None,
) -> int:
    """Commit a checkpoint's progress once, or every so many seconds until interrupted.

    `say` hears of each batch that was committed. Gives the number of commits. Raises JobError.
    """
    done = 0
    while True:
        found = _settled(checkpoint)
        try:
            if found is not None and commits.commit(found[1]):
                done += 1
                say(*found)
        except KafkaException as error:
            if every is None or not error.args[0].retriable():
                raise JobError(f"--group {commits.group}: {error.args[0].str()}") from error
            log.warning("cannot commit to group %s: %s", commits.group, error)
        if every is None:
            return done
        time.sleep(every)


def _settled(checkpoint: Path) -> tuple[int, Offsets] | None:
    """As `committed`, while Spark removes old batches from below."""
    for _ in range(10):
        try:
            return committed(checkpoint)
        except FileNotFoundError:
            continue
    raise JobError(f"--checkpoint: {checkpoint} has commits without offsets")
