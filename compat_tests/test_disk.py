"""Ottla's own folder in bad times: no room, damaged segments, two brokers, a newer format."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compat_tests.conftest import MakeBroker
from compat_tests.harness.brokers import Broker, BrokerFailed
from compat_tests.harness.waiting import eventually
from compat_tests.raw import batch, calls
from compat_tests.raw.batch import Record
from compat_tests.raw.errors import name_of
from compat_tests.raw.wire import Wire

pytestmark = pytest.mark.ottla_only
MIB = 1 << 20


# --- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 MB of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.needs_root
def test_a_full_disk_refuses_writes_serves_reads_and_ends(
    make_broker: MakeBroker, small_disk: Path
) -> None:
    filler = small_disk / "filler"
    broker = make_broker(folder=small_disk)
    values: list[bytes] = []
    with Wire(broker.host, broker.port) as wire:
        calls.create_topic(wire, "full")
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 200 * MIB)
        for _ in range(400):
            value = os.urandom(500_000)
            answer = calls.produce(wire, "full", batch.build([Record(value)]))
            if answer.error_code:
                break
            values.append(value)
        assert name_of(answer.error_code) == "KAFKA_STORAGE_ERROR"
        assert values
        assert broker.alive
        assert re.search(r"no room in \S*small", broker.log()), "the log names the folder"
        # everything acknowledged is readable
        end = calls.list_offset(wire, "full", -1).offset
        assert end == len(values)
        for offset, value in enumerate(values):
            (found,) = calls.fetched_batches(wire, "full", offset, partition_max_bytes=1)
            assert (found.base_offset, found.records[0].value) == (offset, value)
        again = calls.produce(wire, "full", batch.build())
        assert name_of(again.error_code) == "KAFKA_STORAGE_ERROR"
        filler.unlink()

        def accepted() -> bool:
            return name_of(calls.produce(wire, "full", batch.build()).error_code) == "NONE"

        eventually(accepted, "writes work again when there is room")
        assert calls.list_offset(wire, "full", -1).offset == len(values) + 1
    broker.restart()
    with Wire(broker.host, broker.port) as wire:
        assert calls.list_offset(wire, "full", -1).offset == len(values) + 1
    broker.stop()


# --- damaged segments

SEGMENTS = 4


class Filled:
    """A stopped broker with sealed segments of about 1 MiB, and what it holds."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.values: list[bytes] = []
        with Wire(broker.host, broker.port) as wire:
            calls.create_topic(wire, "data", configs={"segment.bytes": str(MIB)})
            calls.create_topic(wire, "other")
            calls.produced(wire, "other", batch.build([Record(b"other")]))
            for wanted in range(1, SEGMENTS + 1):
                for _ in range(6):
                    value = os.urandom(200_000)
                    calls.produced(wire, "data", batch.build([Record(value)]))
                    self.values.append(value)
                eventually(functools.partial(self.has_sealed, wanted), "a sealed segment")
            calls.produced(wire, "data", batch.build([Record(b"last")]))
            self.values.append(b"last")
        broker.stop()

    def has_sealed(self, count: int) -> bool:
        return len(self.sealed()) >= count

    def sealed(self) -> list[Path]:
        return sorted((self.broker.data_dir / "log").glob("*.sealed"))


@pytest.fixture
def filled(make_broker: MakeBroker) -> Filled:
    return Filled(make_broker())


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def cut_to_nothing(file: Path) -> None:
    os.truncate(file, 0)


def flip(file: Path) -> None:
    """One bit, in the middle of some record."""
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size // 2)
        byte = opened.read(1)[0]
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte ^ 0x10]))


def flip_the_end(file: Path) -> None:
    """One bit of the footer, which says what is in the file."""
    with file.open("r+b") as opened:
        opened.seek(-40, os.SEEK_END)
        byte = opened.read(1)[0]
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte ^ 0x10]))


@pytest.mark.parametrize("damage", [cut, cut_to_nothing, flip, flip_the_end])
def test_a_damaged_segment_is_named_and_the_rest_is_served(
    filled: Filled, damage: Callable[[Path], None]
) -> None:
    broker, values = filled.broker, filled.values
    victim = filled.sealed()[1]
    victim.chmod(0o644)
    damage(victim)
    broker.start()
    refused = []
    with Wire(broker.host, broker.port) as wire:
        assert calls.list_offset(wire, "data", -1).offset == len(values)
        assert calls.fetched_batches(wire, "other")[0].records[0].value == b"other"
        for offset, value in enumerate(values):
            answer = calls.fetch(wire, "data", offset, partition_max_bytes=1)
            if answer.error_code:
                assert name_of(answer.error_code) == "KAFKA_STORAGE_ERROR"
                refused.append(offset)
                continue
            (found,) = batch.parse(answer.records)
            assert found.base_offset == offset, "nothing is skipped in silence"
            assert found.crc_ok
            assert found.records[0].value == value
        # six batches a segment: one of them hurt, or all of the file
        assert 1 <= len(refused) <= 8, refused
        assert set(refused) <= set(range(4, 14)), refused
        assert broker.alive
        assert victim.name in broker.log(), "the log names the file"
        assert calls.produced(wire, "data", batch.build([Record(b"more")])) == len(values)
    broker.restart()
    with Wire(broker.host, broker.port) as wire:
        assert calls.list_offset(wire, "data", -1).offset == len(values) + 1
    broker.stop()


def test_a_damaged_active_segment_gives_no_offset_out_twice(filled: Filled) -> None:
    """What is lost with the newest file is not known: the next offsets lie beyond."""
    broker = filled.broker
    (active,) = (broker.data_dir / "log").glob("*.active")
    cut(active)
    broker.start()
    with Wire(broker.host, broker.port) as wire:
        assert active.name in broker.log()
        (found,) = calls.fetched_batches(wire, "data", 0, partition_max_bytes=1)
        assert found.records[0].value == filled.values[0]
        assert calls.produced(wire, "data", batch.build()) >= len(filled.values)
    broker.stop()


# --- one folder, one broker, one format


def refusal(broker: Broker) -> str:
    """Start it, which must fail quickly; what it printed."""
    printed = len(broker.log())
    with pytest.raises(BrokerFailed):
        broker.start()
    assert broker.returncode not in (0, None)
    said = broker.log()[printed:]
    assert "Traceback" not in said, said
    return said


def test_two_brokers_do_not_open_one_folder(make_broker: MakeBroker, tmp_path: Path) -> None:
    first = make_broker(folder=tmp_path)
    second = type(first)(tmp_path, first.settings)
    assert second.port != first.port
    said = refusal(second)
    assert str(first.data_dir) in said
    assert str(first.pid) in said, "and by whom it is held"
    with Wire(first.host, first.port) as wire:
        assert wire.call("ApiVersions", 0).error_code == 0
    first.stop()


def test_a_folder_of_a_newer_format_is_refused(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.stop()
    mark = broker.data_dir / "mark"
    content = json.loads(mark.read_text())
    mark.write_text(json.dumps({**content, "format": content["format"] + 1}) + "\n")
    said = refusal(broker)
    assert str(broker.data_dir) in said
    assert str(content["format"] + 1) in said


def test_a_folder_left_open_under_os_when_the_machine_stopped_is_refused(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker({"ottla.durability": "os"})
    with Wire(broker.host, broker.port) as wire:
        calls.create_topic(wire, "data")
        calls.produced(wire, "data", batch.build([Record(b"kept")]))
    broker.kill()
    broker.start()  # kill -9 of the process alone loses nothing
    with Wire(broker.host, broker.port) as wire:
        assert calls.fetched_batches(wire, "data")[0].records[0].value == b"kept"
    broker.kill()
    mark = broker.data_dir / "mark"
    content = json.loads(mark.read_text())
    mark.write_text(json.dumps({**content, "boot_id": str(uuid.uuid4())}) + "\n")
    said = refusal(broker)
    assert "ottla repair" in said
    repaired = subprocess.run(
        [sys.executable, "-m", "ottla", "repair", str(broker.data_dir)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert repaired.returncode == 1, "the newest commits may be gone, nobody knows"
    assert "may lack its newest commits" in repaired.stdout, repaired.stdout + repaired.stderr
    broker.start()
    with Wire(broker.host, broker.port) as wire:
        assert calls.fetched_batches(wire, "data")[0].records[0].value == b"kept"
        assert calls.produced(wire, "data", batch.build()) >= 1
    broker.stop()


def test_port_0_takes_a_free_port_and_says_which(make_broker: MakeBroker, tmp_path: Path) -> None:
    running = make_broker()
    asked = type(running)(tmp_path, running.settings, port=0)
    asked.start()
    told = re.search(r"^ottla ready PLAINTEXT://127\.0\.0\.1:(\d+)", asked.log(), re.MULTILINE)
    assert told, asked.log()
    with Wire("127.0.0.1", int(told.group(1))) as wire:
        (node,) = wire.call("Metadata", 12, topics=[]).brokers
        assert node.port == int(told.group(1))
    asked.stop()
    running.stop()
