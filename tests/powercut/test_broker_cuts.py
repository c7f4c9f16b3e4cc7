"""`ottla serve` under load of clients, recorded and cut: what they were told is there.

The process is the real one, with its loop, its committing thread and its background. Clients put a
mark into the same trace before each request and after each answer.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.broker.serving import Serving
from tests.powercut.broker import Known, check, try_image
from tests.powercut.clients import CLIENTS, Client, Served, make_topic
from tests.powercut.cuts import choose, drawn
from tests.powercut.disk import Disk, Nothing
from tests.powercut.trace import Event, Op, append_mark, read
from tests.powercut.worker import Worker

SETTINGS = {
    "log.retention.check.interval.ms": "400",
    "log.cleaner.backoff.ms": "300",
    "auto.create.topics.enable": "false",
}


class Load(NamedTuple):
    """What was recorded."""

    disk: Disk
    events: list[Event]
    clients: dict[str, Client]

    def choose(self, count: int, rng: random.Random) -> set[int]:
        """Moments since the clients began, the last one among them."""
        begun = next(at for at, event in enumerate(self.events) if event.data == b"begun") + 1
        chosen = choose(self.events[begun:], count, rng)
        return {len(self.events), *(begun + at for at in chosen)}

    def moments(self, wanted: set[int]) -> Iterator[tuple[int, Known]]:
        """The disk is as it was at each of the moments, and this is what was known."""
        asked = dict.fromkeys(self.clients, 0)
        acked = dict.fromkeys(self.clients, 0)
        for count, event in enumerate([*self.events, None]):
            if count in wanted:
                yield (
                    count,
                    {
                        name: (client.facts[: asked[name]], acked[name])
                        for name, client in self.clients.items()
                    },
                )
            if event is None:
                return
            self.disk.apply(event)
            if event.op is Op.MARK:
                name, _, rest = event.data.decode().partition(" ")
                kind, _, number = rest.partition(" ")
                if number:
                    (asked if kind == "asked" else acked)[name] = int(number)


def serve(data: Path, **environment: str) -> Serving:
    args = [word for key, value in SETTINGS.items() for word in ("--override", f"{key}={value}")]
    return Serving("--data-dir", str(data), *args, environment=environment)


def record(root: Path, library: Path, seed: int, seconds: float) -> Load:
    """Serve, let all clients go on for so long at least, end by kill -9."""
    place, path = root / "place", root / "trace"
    (place / "data").mkdir(parents=True)
    disk = Disk(place)
    serving = serve(
        place / "data",
        LD_PRELOAD=str(library),
        RECORDER_ROOT=str(place),
        RECORDER_TRACE=str(path),
    )
    trace = os.open(path, os.O_WRONLY | os.O_APPEND)
    clients = {
        name: kind(name, lambda text: append_mark(trace, text), seed)
        for name, kind in CLIENTS.items()
    }
    first = Served(serving.address)
    for name, kind in CLIENTS.items():
        if kind.topic is not None:
            make_topic(first, name, *kind.topic)
    append_mark(trace, "begun")
    stop = threading.Event()
    failed: list[BaseException] = []

    def run(client: Client) -> None:
        place = Served(serving.address)
        try:
            while not stop.is_set():
                client.act(place)
                time.sleep(0.002)
        except BaseException as error:
            failed.append(error)
        place.close()

    threads = [threading.Thread(target=run, args=(client,)) for client in clients.values()]
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    while not failed and min(len(client.facts) for client in clients.values()) < 8:
        stop.wait(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    first.close()
    serving.stop(9)
    os.close(trace)
    if failed:
        raise failed[0]
    events = list(read(path))
    path.unlink()
    shutil.rmtree(place)
    return Load(disk, events, clients)


def cut(root: Path, worker: Worker, load: Load, seed: int, images: int, served: int) -> None:
    """Try so many images, some of them with a served process; a repair of the last."""
    rng = random.Random(seed)
    done, end = 0, len(load.events)
    for count, known in load.moments(load.choose(images, rng)):
        how = Nothing() if count == end else drawn(rng)
        load.disk.image(root / "image", how)
        done += 1
        repaired = count == end or rng.random() < 0.15
        try:
            if done % (images // served) == 0 and not repaired:
                serving = serve(root / "image" / "data")
                place = Served(serving.address)
                check(place, known)
                place.close()
                status, errors = serving.stop()
                assert status == 0, errors
            else:
                worker.call(try_image, root / "image" / "data", known, seed, repaired)
        except AssertionError as error:
            about = f"seed {seed}: cut behind event {count}, {how}, repaired: {repaired}"
            raise AssertionError(f"{about}\n{error}") from None
        shutil.rmtree(root / "image")
    assert done > 1


def test_a_broker_is_cut(root: Path, library: Path, worker: Worker) -> None:
    load = record(root, library, 1, seconds=2.5)
    cut(root, worker, load, 1, images=40, served=2)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10, 20))
def test_brokers_are_cut_for_long(root: Path, library: Path, worker: Worker, seed: int) -> None:
    load = record(root, library, seed, seconds=20)
    cut(root, worker, load, seed, images=600, served=10)
