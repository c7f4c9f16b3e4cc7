"""The topics in which Kafka keeps committed offsets and transactions: there by name, and empty.

Here both live in the log's state (docs/design/log.md). Tools look for the topics all the same, so
each comes to be when Kafka makes it, at the first question for a coordinator of its kind, with the
partitions and settings that Kafka gives it, and is a topic like any other from then on, but that
nothing can be produced to it. Deleting it loses nothing; the next such question makes it again.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.broker.ids import new_id
from ottla.broker.metadata import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, NewTopic
from ottla.log.errors import LogError

if TYPE_CHECKING:
    from ottla.broker.context import Broker

_logger = logging.getLogger(__name__)

#: GroupCoordinatorService.groupMetadataTopicConfigs and TransactionStateManager's, with the
#: defaults of offsets.topic.segment.bytes and transaction.state.log.segment.bytes.
_CONFIGS: Final = {
    OFFSETS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    },
    TRANSACTIONS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
    },
}


def is_kept(name: str) -> bool:
    """Whether this is a topic that the broker makes by itself."""
    return name in _CONFIGS


def plan(broker: Broker, name: str) -> NewTopic:
    """One of the two topics, as the broker makes it."""
    config = broker.config
    count = (
        config.offsets_topic_num_partitions
        if name == OFFSETS_TOPIC
        else config.transaction_state_log_num_partitions
    )
    return NewTopic(name, new_id(), count, _CONFIGS[name])


def ensure(broker: Broker, name: str) -> None:
    """Have the topic made where it is not there yet, in the next commit; nothing waits for it. One
    that cannot be written now is made after the next such question."""
    if broker.topics.admitted(name) is None and broker.store.refusing is None:
        with suppress(LogError):
            broker.topics.create([plan(broker, name)])
            _logger.info("topic created by the broker itself: %s", name)
