"""Settings that are accepted, kept and described as Kafka does, and have no effect here.

They size, time or place what Ottla does not have: pools of threads, one file per partition,
replicas, tiered storage, Kerberos. Tools and frameworks set them on any cluster, so that refusing
them would refuse the tool; the broker says once in its log that they do nothing. Settings that ask
for protection or set a bound are never in these tables: whoever sets one counts on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cache

_logger = logging.getLogger(__name__)

_FILES = "the log's files hold many partitions and are neither indexed nor preallocated as Kafka's"
_REPLICAS = "one node keeps one replica, nothing is replicated"
_TIERED = "there is no tiered storage"
_THREADS = "the broker has no such pool of threads"
_CLEANER = "compaction runs in one thread and in small steps"
_CACHES = "the coordinator has no such buffer"
_GROUPS = "groups of this protocol are not served"
_KERBEROS = "Kerberos is not served"
_OAUTH = "the broker logs in nowhere"

TOPIC_KEPT: dict[str, str] = {
    "file.delete.delay.ms": _FILES,
    "follower.replication.throttled.replicas": _REPLICAS,
    "index.interval.bytes": _FILES,
    "leader.replication.throttled.replicas": _REPLICAS,
    "local.retention.bytes": _TIERED,
    "local.retention.ms": _TIERED,
    "preallocate": _FILES,
    "remote.log.copy.disable": _TIERED,
    "remote.log.delete.on.disable": _TIERED,
    "remote.storage.enable": _TIERED + "; only false is accepted",
    "segment.index.bytes": _FILES,
    "segment.jitter.ms": _FILES,
    "unclean.leader.election.enable": _REPLICAS,
}
"""Settings of topics, with the reason why they have no effect."""

BROKER_KEPT: dict[str, str] = {
    "background.threads": _THREADS,
    "follower.fetch.last.tiered.offset.enable": _TIERED,
    "follower.replication.throttled.rate": _REPLICAS,
    "group.consumer.assignment.interval.ms": _GROUPS,
    "group.coordinator.cached.buffer.max.bytes": _CACHES,
    "group.share.assignment.interval.ms": _GROUPS,
    "group.streams.assignment.interval.ms": _GROUPS,
    "leader.replication.throttled.rate": _REPLICAS,
    "log.cleaner.io.buffer.load.factor": _CLEANER,
    "log.cleaner.io.buffer.size": _CLEANER,
    "log.cleaner.io.max.bytes.per.second": _CLEANER,
    "log.cleaner.threads": _CLEANER,
    "log.index.interval.bytes": _FILES,
    "log.index.size.max.bytes": _FILES,
    "log.local.retention.bytes": _TIERED,
    "log.local.retention.ms": _TIERED,
    "log.preallocate": _FILES,
    "log.roll.jitter.ms": _FILES,
    "log.segment.delete.delay.ms": _FILES,
    "num.io.threads": _THREADS,
    "num.network.threads": _THREADS,
    "num.recovery.threads.per.data.dir": _THREADS,
    "num.replica.fetchers": _REPLICAS,
    "remote.fetch.max.wait.ms": _TIERED,
    "remote.list.offsets.request.timeout.ms": _TIERED,
    "remote.log.index.file.cache.total.size.bytes": _TIERED,
    "remote.log.manager.copier.thread.pool.size": _TIERED,
    "remote.log.manager.copy.max.bytes.per.second": _TIERED,
    "remote.log.manager.expiration.thread.pool.size": _TIERED,
    "remote.log.manager.fetch.max.bytes.per.second": _TIERED,
    "remote.log.manager.follower.thread.pool.size": _TIERED,
    "remote.log.reader.threads": _TIERED,
    "replica.alter.log.dirs.io.max.bytes.per.second": _REPLICAS,
    "sasl.kerberos.kinit.cmd": _KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _KERBEROS,
    "sasl.kerberos.principal.to.local.rules": _KERBEROS,
    "sasl.kerberos.service.name": _KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": _KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": _KERBEROS,
    "sasl.login.refresh.buffer.seconds": _OAUTH,
    "sasl.login.refresh.min.period.seconds": _OAUTH,
    "sasl.login.refresh.window.factor": _OAUTH,
    "sasl.login.refresh.window.jitter": _OAUTH,
    "share.coordinator.cached.buffer.max.bytes": _CACHES,
    "unclean.leader.election.enable": _REPLICAS,
}
"""Settings that Kafka lets a running broker change, with the reason why they have no effect."""


def say_of_topic(names: Iterable[str]) -> None:
    """Say in the log, once for each, which of the settings that a topic now has do nothing."""
    _say_all("topic", TOPIC_KEPT, names)


def say_of_broker(names: Iterable[str]) -> None:
    """Say in the log, once for each, which of the settings that a broker now has do nothing."""
    _say_all("broker", BROKER_KEPT, names)


def _say_all(scope: str, kept: Mapping[str, str], names: Iterable[str]) -> None:
    for name in names:
        if name in kept:
            _say(scope, name, kept[name])


@cache
def _say(scope: str, name: str, reason: str) -> None:
    _logger.warning(
        "the %s setting %s is kept and described, without effect: %s", scope, name, reason
    )
