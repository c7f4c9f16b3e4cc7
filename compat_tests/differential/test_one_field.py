"""One field of a valid request changed at a time: both brokers answer alike, in every version.

It starts Ottla and Apache Kafka, whatever the target of the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.conftest import SETTINGS, TARGET_SETTINGS
from compat_tests.differential.answers import normal
from compat_tests.differential.bases import BASES, Place
from compat_tests.differential.changes import Change, changes
from compat_tests.differential.known import reason
from compat_tests.harness.brokers import BROKERS, Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw import batch, calls, schema
from compat_tests.raw.wire import Closed, Silent, Wire

pytestmark = [pytest.mark.usefixtures("needs_java"), pytest.mark.ottla_only]

TOPIC = "both-have-it"
#: Seconds after which a broker that says nothing is taken to say nothing.
SILENCE = 10.0
#: What both are told beside the settings of all tests.
SAME = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
SAMPLE = ("Metadata", "ListOffsets", "CreateTopics", "ElectLeaders")


class Side:
    """One of the two brokers, and the connection to it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topic_id = self._prepare()
        self._wire: Wire | None = None

    def _prepare(self) -> object:
        with Wire(self.broker.host, self.broker.port) as wire:
            for kind in (0, 1):
                eventually(lambda kind=kind: self._coordinates(wire, kind), "a coordinator")  # type: ignore[misc]
            calls.new_producer(wire)  # Kafka has none to give away in its first moments
            found = calls.create_topic(wire, TOPIC, 2, {"retention.ms": "-1"})
            for _ in range(3):
                calls.produced(wire, TOPIC, batch.build())
            return found.topic_id

    @staticmethod
    def _coordinates(wire: Wire, kind: int) -> bool:
        answer = wire.call("FindCoordinator", 4, key_type=kind, coordinator_keys=["someone"])
        return bool(answer.coordinators[0].error_code == 0)

    def answer(self, api: str, version: int, change: Change) -> object:
        """What it answers, in a form that compares; "closed" or "silent" where it does not."""
        if self._wire is None:
            self._wire = Wire(self.broker.host, self.broker.port, timeout=SILENCE)
        try:
            frame = self._wire.encode(api, version, 1, **change.fields)
            self._wire.send_frame(frame + change.behind)
            return normal(self._wire.receive(api, version)[1])
        except (Closed, Silent, ConnectionError) as error:
            self.close()
            return "silent" if isinstance(error, Silent) else "closed"

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    brokers = [_started(name, tmp_path_factory.mktemp(name)) for name in ("ottla", "apache")]
    made = [Side(broker) for broker in brokers]
    yield made
    for side in made:
        side.close()
        side.broker.kill()


def _started(name: str, folder: Path) -> Broker:
    broker = BROKERS[name](folder, SETTINGS | TARGET_SETTINGS[name] | SAME)
    broker.start()
    return broker


def versions(sides: list[Side], api: str) -> range:
    """The versions that both announce."""
    key, spans = schema.request(api).key, []
    for side in sides:
        with Wire(side.broker.host, side.broker.port) as wire:
            spans.append(calls.api_ranges(wire)[key])
    first = max(span[0] for span in spans)
    return range(3 if api == "Produce" else first, min(span[1] for span in spans) + 1)


_serial = itertools.count()


def differences(sides: list[Side], api: str, version: int) -> Iterator[str]:
    message = schema.request(api)
    places = [Place(TOPIC, side.topic_id, 0) for side in sides]  # type: ignore[arg-type]
    total = len(list(changes(message, version, BASES[api](places[0], version))))
    for number in range(total):
        serial = next(_serial)
        asked = [
            next(
                itertools.islice(
                    changes(message, version, BASES[api](place._replace(serial=serial), version)),
                    number,
                    None,
                )
            )
            for place in places
        ]
        place, value = asked[0].place, asked[0].value
        if reason(api, place, value) is not None:
            continue  # some are not answered at all, and that takes its time
        ours, theirs = (
            side.answer(api, version, change) for side, change in zip(sides, asked, strict=True)
        )
        if ours != theirs:
            yield f"{api} v{version} {place}={value!r:.60}\n  Ottla {ours}\n  Kafka {theirs}"


@pytest.mark.parametrize("api", SAMPLE)
def test_a_sample_is_answered_alike(sides: list[Side], api: str) -> None:
    found = list(differences(sides, api, versions(sides, api)[-1]))
    assert not found, "\n".join(found)


@pytest.mark.long
@pytest.mark.parametrize("api", BASES)
def test_every_version_is_answered_alike(sides: list[Side], api: str) -> None:
    found = [line for version in versions(sides, api) for line in differences(sides, api, version)]
    assert not found, f"{len(found)} differences\n" + "\n".join(found)
