"""`ottla produce`: lines become records.

Lines are gathered for a tenth of a second (on a terminal: not at all) or until a batch is full, and
sent together, partition by partition. Each such round is acknowledged before the next one begins:
then the records that are safe are those of the first so many lines, and a command that gives up can
say with which line to go on. With acks=all the producer is idempotent, so that a batch sent again
after a lost connection is not written twice.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ottla.broker.cli_client import Cluster
from ottla.broker.cli_errors import ClientError, Unreachable, problem
from ottla.broker.cli_input import Stop, arriving
from ottla.broker.cli_output import count, print_json, say
from ottla.broker.cli_records import BadLine, Line, from_json, text_parser
from ottla.broker.cli_sender import Sender
from ottla.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.api.metadata import MetadataResponseTopic as Topic
from ottla.wire.errors import Error, KafkaError

LINGER_S: Final = 0.1
_CREATION_S: Final = 15.0
_BROKER: Final = 4


def produce(args: argparse.Namespace) -> int:
    """Send every line; gives the exit status."""
    with _input(args.file) as fd, Cluster(args.bootstrap_server) as cluster:
        sender = Sender(cluster, _ready_topic(cluster, args.topic), args)
        terminal = os.isatty(fd)
        if terminal:
            say("one record a line; Ctrl-D ends the input")
        with Stop() as stop:
            try:
                _send_all(args, sender, arriving(fd, 0.0 if terminal else LINGER_S, stop))
            except (ClientError, KafkaError, KeyboardInterrupt) as error:
                _report(args, sender)
                _say_where_to_go_on(args, sender, isinstance(error, Unreachable))
                raise
            _report(args, sender)
            return 0 if stop.signal is None else 128 + stop.signal


@contextmanager
def _input(path: str | None) -> Iterator[int]:
    """The descriptor to read from. Raises ClientError."""
    try:
        fd = sys.stdin.fileno() if path is None else os.open(path, os.O_RDONLY)
    except OSError as error:
        raise ClientError(f"{path or 'standard input'}: {error.strerror}") from None
    except (AttributeError, ValueError):  # closed, or a path with a zero byte
        raise ClientError(f"{path or 'standard input'}: cannot be opened") from None
    try:
        yield fd
    finally:
        if path is not None:
            os.close(fd)


def _send_all(args: argparse.Namespace, sender: Sender, pieces: Iterator[list[bytes]]) -> None:
    """Raises ClientError and KafkaError; what was read before a bad line is sent first."""
    parse = from_json if args.json else text_parser(args.key_separator, args.null)
    try:
        for lines in pieces:
            for line in lines:
                _take(sender, parse, line.removesuffix(b"\r"))
            if not lines:
                sender.flush()
    except ClientError:
        sender.flush()
        raise
    sender.flush()


def _take(sender: Sender, parse: Callable[[bytes], Line], line: bytes) -> None:
    number = sender.lines + 1
    try:
        parsed = parse(line)
        partition = sender.place(parsed)
    except BadLine as error:
        raise ClientError(f"line {number} {error}") from None
    sender.take(parsed, partition)


def _ready_topic(cluster: Cluster, name: str) -> Topic:
    """The topic, created by the cluster when it is set up to do so. Raises ClientError,
    KafkaError."""
    deadline = time.monotonic() + _CREATION_S
    asked_for_setting = False
    while True:
        (topic,) = cluster.topics([name], create=True)
        code = topic.error_code
        led = all(partition.leader_id >= 0 for partition in topic.partitions)
        if code == Error.NONE and led:
            return topic
        if code == Error.UNKNOWN_TOPIC_OR_PARTITION and not asked_for_setting:
            asked_for_setting = True
            if not _creates_topics(cluster):
                raise problem(
                    code,
                    name,
                    "there is no such topic and the cluster creates none by itself"
                    f" (auto.create.topics.enable=false); `ottla topics create {name}` does",
                )
        passing = (Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.LEADER_NOT_AVAILABLE)
        if code not in passing or time.monotonic() > deadline:
            raise problem(code or Error.LEADER_NOT_AVAILABLE, name)
        time.sleep(0.1)


def _creates_topics(cluster: Cluster) -> bool:
    """Whether a broker creates topics that clients ask for; True where it does not say."""
    resource = DescribeConfigsResource(
        resource_type=_BROKER,
        resource_name=str(cluster.any_node()),
        configuration_keys=["auto.create.topics.enable"],
    )
    request = DescribeConfigsRequest(resources=[resource])
    try:
        answer = cluster.call_node(cluster.any_node(), request, DescribeConfigsResponse)
    except ClientError:
        return True
    return [config.value for result in answer.results for config in result.configs] != ["false"]


# ---------------------------------------------------------------------------------------- outcome


def _report(args: argparse.Namespace, sender: Sender) -> None:
    """How much went where."""
    if args.json:
        for partition, sent in sorted(sender.sent.items()):
            print_json(
                {
                    "topic": args.topic,
                    "partition": partition,
                    "records": sent.records,
                    "first_offset": sent.first_offset,
                    "last_offset": sent.last_offset,
                }
            )
        return
    records = sum(sent.records for sent in sender.sent.values())
    say(
        f"{count(records, 'record')}, {count(sender.bytes, 'byte')} to"
        f" {count(len(sender.sent), 'partition')} of {args.topic}"
    )


def _say_where_to_go_on(args: argparse.Namespace, sender: Sender, lost: bool) -> None:
    """After an error: what is safe, and the line to go on with."""
    sent, first = sender.total, sender.first_open_line
    verb = "sent" if args.acks == "0" else "acknowledged"
    later = sent - (first - 1)
    doubt = "; lines from there on may have arrived all the same" if lost else ""
    beyond = f" ({later:,} of them from that line on)" if later > 0 else ""
    were = "was" if sent == 1 else "were"
    say(f"{count(sent, 'record')} {were} {verb}; go on with line {first:,}{beyond}{doubt}")
