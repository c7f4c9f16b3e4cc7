"""Runs commands of the command line in the tests' own process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from tests.broker.harness import START_MS
from tests.broker.serving import ottla

from ottla.broker.cli import main
from ottla.broker.cli_client import Connection
from ottla.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.errors import Error
from ottla.wire.records import TRANSACTIONAL, Record, build_batch


class Run:
    """Runs commands against one broker and keeps their output."""

    def __init__(
        self,
        address: str,
        capsys: pytest.CaptureFixture[str] | pytest.CaptureFixture[bytes],
        *command: str,
    ) -> None:
        """`command`: the words that every call begins with."""
        self.address = address
        self._capsys = capsys
        self._command = command

    def __call__(self, *args: str) -> tuple[int, str, str]:
        """Exit status, standard output, standard error; that of wrong use is 2."""
        try:
            status = main([*self._command, *args, "--bootstrap-server", self.address])
        except SystemExit as wrong_use:
            status = int(wrong_use.code or 0)
        out, errors = map(_text, self._capsys.readouterr())
        return status, out, errors

    def json(self, *args: str) -> list[dict[str, object]]:
        status, out, errors = self(*args, "--json")
        assert status == 0, errors
        return [json.loads(line) for line in out.splitlines()]


def _text(output: str | bytes) -> str:
    return output if isinstance(output, str) else output.decode("utf-8", "backslashreplace")


def produce(address: str, topic: str, text: str, *args: str) -> str:
    """Produce lines, in a process of its own; its output."""
    done = ottla("produce", topic, "-b", address, *args, stdin=text)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Producer:
    """A transactional producer with one batch in an open transaction."""

    def __init__(self, address: str, name: str) -> None:
        host, _, port = address.rpartition(":")
        self.connection = Connection(host, int(port))
        self.name = name
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        answer = self.connection.call(request, InitProducerIdResponse)
        assert answer.error_code == 0
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    def produce(
        self,
        partition: int = 0,
        version: int = 12,
        sequence: int = 0,
        topic: str = "t",
        value: bytes = b"v",
    ) -> Error:
        """Version 12 adds the partition; 9 does not, and the broker here does not look."""
        batch = build_batch(
            [Record(0, START_MS, None, value)],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        data = PartitionProduceData(index=partition, records=bytes(batch))
        topics = [TopicProduceData(name=topic, partition_data=[data])]
        request = ProduceRequest(transactional_id=self.name, acks=-1, topic_data=topics)
        answer = self.connection.call(request, ProduceResponse, version)
        return Error(answer.responses[0].partition_responses[0].error_code)

    def end(self, *, committed: bool) -> None:
        """End the transaction; the epoch is raised with it."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer = self.connection.call(request, EndTxnResponse, 5)
        assert answer.error_code == 0
        self.epoch = answer.producer_epoch
