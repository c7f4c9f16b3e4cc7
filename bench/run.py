"""What a row is, and what it gets to work with while one variant is measured."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench import frames, raw
from bench.targets import Broker, Variant

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Figure:
    """One number of a row. Ottla should stay under `aim`, in the figure's unit."""

    name: str
    unit: str
    aim: float | None = None


@dataclass(frozen=True)
class Row:
    """A measurement: `measure` runs once a variant and records each figure once or more."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    variants: tuple[str, ...]
    measure: Callable[[Run], None]


ROWS: dict[str, Row] = {}


def row(
    name: str, title: str, figures: list[Figure], variants: tuple[str, ...]
) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Register a row. List the broker's CPU first: it is what a busy machine disturbs least."""

    def register(measure: Callable[[Run], None]) -> Callable[[Run], None]:
        ROWS[name] = Row(name, title, tuple(figures), variants, measure)
        return measure

    return register


class NotServed(Exception):
    """The broker does not announce an API that the row needs."""


@dataclass
class Used:
    """CPU seconds of the broker and seconds of the clock between two points."""

    cpu: float = 0.0
    seconds: float = 0.0


@dataclass
class Run:
    """One row on one variant. `folder` is empty at the start and removed at the end."""

    variant: Variant
    folder: Path
    quick: bool
    repeats: int
    on_start: Callable[[int], None] = lambda pid: None
    values: dict[str, list[float]] = field(default_factory=dict)
    brokers: list[Broker] = field(default_factory=list)

    def size(self, full: Number, quick: Number) -> Number:
        """The full size, or the one that only shows that the row works."""
        return quick if self.quick else full

    def new_broker(self) -> Broker:
        """A broker with a fresh folder, not started."""
        folder = self.folder / f"broker-{len(self.brokers)}"
        broker = Broker(self.variant, folder, self.on_start)
        self.brokers.append(broker)
        return broker

    def broker(self) -> Broker:
        """A running broker with a fresh folder."""
        broker = self.new_broker()
        broker.start()
        return broker

    def record(self, figure: str, value: float) -> None:
        self.values.setdefault(figure, []).append(value)

    @contextmanager
    def used(self, broker: Broker) -> Iterator[Used]:
        """Fills the yielded Used when the block ends."""
        used = Used()
        cpu, begin = broker.meter.cpu(), time.perf_counter()
        yield used
        used.seconds = time.perf_counter() - begin
        used.cpu = broker.meter.cpu() - cpu

    def coordinator(self, broker: Broker, group_id: str) -> None:
        """Wait until the group is served. Raises NotServed when the broker never will.

        FindCoordinator answers before the coordinator has loaded: a stranger's heartbeat asks too.
        """
        if frames.JOIN_GROUP not in raw.served(broker.address):
            raise NotServed("consumer groups are not served")
        with raw.connect(broker.address) as connection:
            raw.until_good(connection, frames.find_coordinator(group_id), frames.top_error)
            probe = frames.heartbeat(group_id, 0, "a-stranger")
            raw.until_good(connection, probe, _still_loading)

    def close(self) -> None:
        """Stop what still runs and remove the data."""
        for broker in self.brokers:
            broker.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _still_loading(payload: bytes) -> int:
    """NONE once a stranger is refused; Kafka answers heartbeats with success while it loads."""
    error = frames.top_error(payload)
    if error == frames.UNKNOWN_MEMBER_ID:
        return frames.NONE
    return error or frames.COORDINATOR_LOAD_IN_PROGRESS


def percentile(values: list[float], part: float) -> float:
    """The value below which `part` (0 to 1) of the values lie; 0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
