"""What docs/operating.md promises of copies of a data folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.broker.harness import make_batch
from tests.broker.serving import Serving, ottla

from ottla.broker.cli_client import Cluster, raise_for
from ottla.wire.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC = "orders"


class Load:
    """A thread that produces one batch after the other and counts what is acknowledged."""

    def __init__(self, address: str) -> None:
        self.acknowledged = 0
        self.enough = threading.Condition()
        self._end = False
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(address,), daemon=True)
        self._thread.start()

    def _run(self, address: str) -> None:
        try:
            with Cluster(address) as cluster:
                (topic,) = cluster.topics([TOPIC])
                data = PartitionProduceData(
                    index=0,
                    records=make_batch(10, size=2000, timestamp=time.time_ns() // 1_000_000),
                )
                one = TopicProduceData(name=TOPIC, topic_id=topic.topic_id, partition_data=[data])
                request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[one])
                while not self._end:
                    answer = cluster.call_leader(TOPIC, 0, request, ProduceResponse)
                    raise_for(answer.responses[0].partition_responses[0].error_code)
                    with self.enough:
                        self.acknowledged += 10
                        self.enough.notify_all()
        except Exception as error:
            with self.enough:
                self._failed = error
                self.enough.notify_all()

    def until(self, records: int) -> None:
        with self.enough:
            assert self.enough.wait_for(lambda: self.acknowledged >= records or self._failed, 120)
        assert self._failed is None

    def stop(self) -> None:
        self._end = True
        self._thread.join(60)
        assert self._failed is None


@contextmanager
def serving(*args: str) -> Iterator[Serving]:
    broker = Serving(*args)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.process.kill()
        broker.process.communicate()


def held(folder: Path) -> int:
    """Records that a broker serves from a folder; it must start without a word of damage."""
    with serving("--data-dir", str(folder)) as broker:
        printed = ottla("consume", "-b", broker.address, TOPIC, "--exit").stdout
        status, errors = broker.stop()
    assert status == 0
    assert not {"WARNING", "ERROR"} & set(errors.split()), errors
    return printed.count("\n")


@pytest.mark.parametrize("same_boot", [True, False], ids=["same machine", "another machine"])
def test_a_copy_made_while_the_broker_is_paused_holds_all_that_was_acknowledged(
    tmp_path: Path, same_boot: bool
) -> None:
    """As a snapshot of the file system does, or a copy between SIGSTOP and SIGCONT."""
    folder, copies = tmp_path / "data", []
    with serving("--data-dir", str(folder), "--override", "log.segment.bytes=1048576") as broker:
        assert ottla("topics", "create", "-b", broker.address, TOPIC).returncode == 0
        load = Load(broker.address)
        for number in range(3):
            load.until(load.acknowledged + 700)
            broker.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, broker.process.pid, os.WSTOPPED | os.WNOWAIT)
            copies.append((tmp_path / f"copy-{number}", load.acknowledged))
            shutil.copytree(folder, copies[-1][0])
            broker.process.send_signal(signal.SIGCONT)
        load.until(load.acknowledged + 100)
        load.stop()
        assert broker.stop()[0] == 0
    for copy, acknowledged in copies:
        if not same_boot:
            mark = json.loads((copy / "mark").read_text())
            (copy / "mark").write_text(json.dumps(mark | {"boot_id": "another"}) + "\n")
        assert acknowledged <= held(copy) <= acknowledged + 20  # one request was on its way
    assert held(folder) == load.acknowledged


def test_a_folder_moves_with_a_clean_stop(tmp_path: Path) -> None:
    folder, moved = tmp_path / "data", tmp_path / "elsewhere" / "data"
    with serving("--data-dir", str(folder)) as broker:
        sent = ottla("produce", "-b", broker.address, TOPIC, stdin="one\ntwo\n")
        assert sent.returncode == 0, sent.stderr
        assert broker.stop()[0] == 0
    moved.parent.mkdir()
    folder.rename(moved)
    mark = json.loads((moved / "mark").read_text())
    assert mark["clean"] is True
    (moved / "mark").write_text(json.dumps(mark | {"boot_id": "another"}) + "\n")
    assert held(moved) == 2
