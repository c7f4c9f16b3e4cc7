"""Committing what a query has read to a consumer group, so that every lag tool sees it."""

from __future__ import annotations

import logging
from typing import Any, Final

from pyspark_ottla.cluster import kafka, make_client
from pyspark_ottla.offsets import Offsets
from pyspark_ottla.properties import Settings, consumer_config

log: Final = logging.getLogger("pyspark_ottla")


class GroupCommit:
    """Commits to `group` from outside of it: the group has no members.

    The query's own offsets are in its checkpoint, so a commit that fails is said in the log and
    tried again with the next batch; the query goes on.
    """

    def __init__(self, group: str, settings: Settings) -> None:
        self._group = group
        self._settings = settings
        self._client: Any = None
        self._done: Offsets = {}

    def __getstate__(self) -> dict[str, Any]:
        """Connections stay behind."""
        return {**self.__dict__, "_client": None}

    def commit(self, offsets: Offsets) -> None:
        """Commit what has changed since the last time."""
        changed = {p: value for p, value in offsets.items() if self._done.get(p) != value}
        if not changed:
            return
        client = kafka()
        if self._client is None:
            config = consumer_config(self._settings, self._group) | {"group.id": self._group}
            self._client = make_client(client.Consumer, config)
        try:
            found = self._client.commit(
                offsets=[client.TopicPartition(*p, value) for p, value in changed.items()],
                asynchronous=False,
            )
        except client.KafkaException as error:
            log.warning("commitGroupId: cannot commit to %s: %s", self._group, error.args[0].str())
            return
        for partition in found:
            if partition.error is not None:
                log.warning(
                    "commitGroupId: cannot commit %s-%s to %s: %s",
                    *(partition.topic, partition.partition, self._group, partition.error.str()),
                )
                return
        self._done.update(changed)

    def close(self) -> None:
        """Let the connection go."""
        if self._client is not None:
            self._client.close()
            self._client = None
