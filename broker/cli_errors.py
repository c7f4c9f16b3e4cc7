"""Errors of the client commands, and the words for Kafka's error codes: one line, with the subject
first and Kafka's name of the error last."""

from __future__ import annotations

from typing import Final

from ottla.wire.errors import Error, KafkaError

_WORDS: Final = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    Error.UNKNOWN_TOPIC_ID: "the topic was deleted",
    Error.INVALID_TOPIC_EXCEPTION: "not a valid topic name",
    Error.TOPIC_ALREADY_EXISTS: "the topic already exists",
    Error.LEADER_NOT_AVAILABLE: "no broker leads it at the moment",
    Error.GROUP_ID_NOT_FOUND: "there is no such group",
    Error.INVALID_GROUP_ID: "not a valid group name",
    Error.NON_EMPTY_GROUP: "the group has members; stop them first",
    Error.COORDINATOR_NOT_AVAILABLE: "no broker coordinates it at the moment",
    Error.UNKNOWN_MEMBER_ID: "members are in the group",
    Error.MESSAGE_TOO_LARGE: "the record is larger than max.message.bytes allows",
    Error.UNKNOWN_SERVER_ERROR: "the broker failed; its log says why",
    Error.OUT_OF_ORDER_SEQUENCE_NUMBER: "the broker has lost records that it acknowledged",
    Error.UNKNOWN_PRODUCER_ID: "the broker has lost records that it acknowledged",
    Error.OFFSET_OUT_OF_RANGE: "the offset is outside of the log",
    Error.CLUSTER_AUTHORIZATION_FAILED: "the cluster does not allow it",
    Error.TOPIC_AUTHORIZATION_FAILED: "the cluster does not allow it",
    Error.GROUP_AUTHORIZATION_FAILED: "the cluster does not allow it",
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the cluster does not allow it",
}


class ClientError(Exception):
    """A command cannot do its work; the text is one line that names the cause and the remedy."""


class Unreachable(ClientError):
    """No broker answers; one may answer later."""


def problem(code: int, subject: str = "", message: str | None = None) -> KafkaError:
    """The error for an answer's error code: `subject` is what it is about, `message` the broker's
    own words, if it sent any. Its `message` is the whole line."""
    try:
        error = Error(code)
        name = error.name
    except ValueError:  # of a Kafka newer than this client
        error, name = Error.UNKNOWN_SERVER_ERROR, f"error code {code}"
        message = message or "an error that this command does not know"
    words = message or _WORDS.get(error) or name.lower().replace("_", " ")
    text = f"{words.rstrip('.')} ({name})"
    return KafkaError(error, f"{subject}: {text}" if subject else text)


def raise_for(code: int, subject: str = "", message: str | None = None) -> None:
    """Raises the `problem` when an answer's error code is one."""
    if code:
        raise problem(code, subject, message)
