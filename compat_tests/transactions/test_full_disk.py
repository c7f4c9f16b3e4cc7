"""A disk that is full during a transaction: an error to who writes, and a way out for everybody."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.clients.base import Failed, Message
from compat_tests.conftest import MakeBroker, make_client
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw import batch, calls
from compat_tests.raw.errors import name_of
from compat_tests.raw.wire import Wire
from compat_tests.transactions.protocols import NEW, OLD, Protocol
from compat_tests.transactions.raw_producer import RawProducer, Refused
from compat_tests.transactions.script import LATEST, READ_COMMITTED, READ_UNCOMMITTED

pytestmark = [pytest.mark.ottla_only, pytest.mark.needs_root]
MIB = 1 << 20


class FullDisk:
    """A broker on a small file system of its own, and the file that fills it."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self._filler = folder / "filler"

    def fill(self) -> None:
        """All but a few MiB, which is less than what the broker keeps for bad times."""
        free = os.statvfs(self._filler.parent)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - 16 * MIB)

    def empty(self) -> None:
        self._filler.unlink()


@pytest.fixture
def full_disk(tmp_path: Path, make_broker: MakeBroker) -> Iterator[FullDisk]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", folder], check=True)
    broker = make_broker(folder=folder)
    yield FullDisk(broker, folder)
    broker.stop()
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def wire(full_disk: FullDisk) -> Iterator[Wire]:
    with Wire(full_disk.broker.host, full_disk.broker.port) as wire:
        calls.create_topic(wire, "t", 2)
        yield wire


def ends(wire: Wire) -> tuple[int, int]:
    """The last stable offset and the high watermark of partition 0."""
    found = [
        calls.list_offset(wire, "t", LATEST, isolation_level=isolation).offset
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED)
    ]
    return found[0], found[1]


def values(wire: Wire, isolation: int) -> list[bytes]:
    """Of partition 0, without markers; what was aborted is left out by who reads committed."""
    answer = calls.fetch(wire, "t", isolation_level=isolation)
    assert answer.error_code == 0
    aborted = {one.producer_id for one in answer.aborted_transactions or ()}
    return [
        record.value or b""
        for one in batch.parse(answer.records)
        if not one.attributes & batch.CONTROL and one.producer_id not in aborted
        for record in one.records
    ]


@pytest.mark.parametrize("protocol", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_it_can_be_ended_when_there_is_room_again(
    full_disk: FullDisk, wire: Wire, protocol: Protocol, committed: bool
) -> None:
    producer = RawProducer(wire, "x", protocol)
    producer.init()
    producer.write("t", 0, b"before")
    full_disk.fill()
    eventually(lambda: is_refused(producer), "the disk is full", seconds=60)
    assert full_disk.broker.alive
    # Readers are answered: those of all records see what is there, the others what came before.
    first, end = ends(wire)
    assert (first, end >= 1) == (0, True)
    assert values(wire, READ_UNCOMMITTED)[:1] == [b"before"]
    assert values(wire, READ_COMMITTED) == []
    assert is_busy(wire, producer)
    full_disk.empty()
    eventually(lambda: not is_refused(producer), "there is room", seconds=60)
    producer.end(committed)
    eventually(lambda: ends(wire)[0] == ends(wire)[1], "all is stable", seconds=60)
    seen = values(wire, READ_COMMITTED)
    assert seen[:1] == ([b"before"] if committed else [])
    assert len(seen) == len(set(seen))


def is_refused(producer: RawProducer) -> bool:
    """One more record, if the disk has room for it: numbered by what is there."""
    try:
        producer.write("t", 0, b"more %d" % producer.written("t", 0))
    except Refused as refused:
        if refused.error != "KAFKA_STORAGE_ERROR":
            raise
        return True
    return False


def is_busy(wire: Wire, producer: RawProducer) -> bool:
    """What an end says while it cannot be written: ask again."""
    answer = wire.call(
        "EndTxn",
        4,
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    return name_of(answer.error_code) == "COORDINATOR_NOT_AVAILABLE"


def test_a_transaction_times_out_when_there_is_room_again(full_disk: FullDisk, wire: Wire) -> None:
    producer = RawProducer(wire, "x", NEW, timeout_ms=3_000)
    producer.init()
    producer.write("t", 0, b"lost")
    full_disk.fill()
    eventually(lambda: is_refused(producer), "the disk is full", seconds=60)
    lost = producer.written("t", 0)

    def is_overdue() -> bool:
        found = wire.call("DescribeTransactions", 0, transactional_ids=["x"])
        (state,) = found.transaction_states
        return bool(state.transaction_start_time_ms + 3_500 < time.time() * 1000)

    eventually(is_overdue, "its time is up", seconds=60)
    assert ends(wire) == (0, lost)
    full_disk.empty()
    eventually(lambda: ends(wire) == (lost + 1, lost + 1), "aborted", seconds=60)
    assert values(wire, READ_COMMITTED) == []


def test_a_stock_client_hears_of_it_and_goes_on(full_disk: FullDisk, wire: Wire) -> None:
    client = make_client("confluent-kafka", full_disk.broker.bootstrap)
    with contextlib.ExitStack() as stack:
        producer = stack.enter_context(
            client.producer(transactional_id="stock", delivery_timeout_ms=5_000)
        )
        producer.transaction([Message("t", b"before")])
        full_disk.fill()

        def is_full() -> bool:
            answer = calls.produce(wire, "t", batch.build(), partition=1)
            return bool(answer.error_code)

        eventually(is_full, "the disk is full", seconds=60)
        with pytest.raises(Failed):
            producer.transaction([Message("t", b"lost")])
        assert values(wire, READ_COMMITTED) == [b"before"]
        full_disk.empty()
        eventually(lambda: not is_full(), "there is room", seconds=60)
    with client.producer(transactional_id="stock") as again:
        again.transaction([Message("t", b"after")])
    assert values(wire, READ_COMMITTED) == [b"before", b"after"]
