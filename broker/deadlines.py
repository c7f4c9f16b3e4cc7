"""The time that a request to the controller gives it. What is asked here is done within the turn or
with the next commit, so a time that is over before it began is all that can be over."""

from __future__ import annotations

from ottla.wire.errors import Error, KafkaError


def timed_out(timeout_ms: int) -> bool:
    """Whether there is no time at all: Kafka's controller drops such a request unread."""
    return timeout_ms <= 0


def check_timeout(timeout_ms: int) -> None:
    """Raises KafkaError REQUEST_TIMED_OUT when there is no time at all."""
    if timed_out(timeout_ms):
        raise KafkaError(Error.REQUEST_TIMED_OUT, "timeout_ms must be above 0")
