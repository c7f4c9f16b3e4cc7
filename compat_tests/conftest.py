"""Which broker the tests run against, and what every test may ask for."""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.apache import distribution
from compat_tests.clients import CLIENTS
from compat_tests.clients.base import Client
from compat_tests.harness.brokers import BROKERS, Broker
from compat_tests.harness.results import Results
from compat_tests.harness.target import add_option
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire

HERE = Path(__file__).parent
CAP_SYS_ADMIN = 1 << 21
# The same for both targets; Kafka's names.
SETTINGS = {
    "num.partitions": "3",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.retention.check.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
TARGET_SETTINGS = {
    "apache": {
        # without these two, retention first looks after half a minute and deletes after one more
        "log.initial.task.delay.ms": "500",
        "log.segment.delete.delay.ms": "500",
    },
    "ottla": {},
}

MakeTopic = Callable[..., str]
Connect = Callable[..., Wire]
MakeBroker = Callable[..., Broker]


def pytest_addoption(parser: pytest.Parser) -> None:
    add_option(parser)
    parser.addoption("--results", type=Path, help="write every test's outcome to this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ottla_only: about Ottla's own files and limits")
    config.addinivalue_line("markers", "needs_root: mounts a file system")
    path = config.getoption("--results")
    is_xdist_worker = hasattr(config, "workerinput")
    if path is not None and not is_xdist_worker:
        config.pluginmanager.register(Results(path, config.getoption("--target")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what says nothing here: not a skip, which is for what should have run."""
    left_out = set() if _may_mount() else {"needs_root"}
    if config.getoption("--target") != "ottla":
        left_out.add("ottla_only")
    others = [item for item in items if any(map(item.get_closest_marker, left_out))]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
    for item in items:
        # What hangs must end; what waits for clients on a busy machine must not.
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))


def _may_mount() -> bool:
    """Root may not in most containers, and macOS has other ways."""
    status = Path("/proc/self/status")
    if os.geteuid() or not status.exists():
        return False
    (allowed,) = re.findall(r"^CapEff:\s*(\w+)$", status.read_text(), re.MULTILINE)
    return bool(int(allowed, 16) & CAP_SYS_ADMIN)


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> str:
    return str(pytestconfig.getoption("--target"))


@pytest.fixture(scope="session")
def make_broker(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeBroker]:
    """Start one more broker: `make_broker(settings)`. All are gone at the end of the session."""
    brokers: list[Broker] = []

    def make(settings: dict[str, str] | None = None, *, folder: Path | None = None) -> Broker:
        broker = BROKERS[target](
            folder or tmp_path_factory.mktemp(target),
            SETTINGS | TARGET_SETTINGS[target] | (settings or {}),
        )
        brokers.append(broker)
        broker.start()
        return broker

    yield make
    for broker in brokers:
        broker.kill()


@pytest.fixture(scope="session")
def _session_broker(make_broker: MakeBroker) -> Iterator[Broker]:
    broker = make_broker()
    yield broker
    broker.stop()


@pytest.fixture
def broker(_session_broker: Broker, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker of the session: shared, running, with whatever earlier tests left on it."""
    if not _session_broker.alive:
        _session_broker.start()
    printed = len(_session_broker.log())
    yield _session_broker
    said = _session_broker.log()[printed:]
    request.node.add_report_section("call", "broker log", said[-8000:])
    if _session_broker.target == "ottla":
        assert "Traceback" not in said, said[-8000:]


@pytest.fixture(scope="session")
def _serial() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def new_name(request: pytest.FixtureRequest, _serial: Iterator[int]) -> Callable[[], str]:
    """A topic name nobody has used, telling which test it belongs to."""
    test = request.node.originalname.removeprefix("test_")[:40].rstrip("_")
    return lambda: f"{test}-{next(_serial):04d}"  # names of one test are equally long


@pytest.fixture
def connect(broker: Broker) -> Iterator[Connect]:
    """Open a raw connection: `connect()`; closed at the end of the test."""
    opened: list[Wire] = []

    def make(**options: Any) -> Wire:
        wire = Wire(broker.host, broker.port, **options)
        opened.append(wire)
        return wire

    yield make
    for wire in opened:
        wire.close()


@pytest.fixture
def wire(connect: Connect) -> Wire:
    return connect()


@pytest.fixture
def new_topic(broker: Broker, new_name: Callable[[], str]) -> MakeTopic:
    """Create a topic: `new_topic(partitions, **configs)` with _ for . in configs; its name."""

    def make(partitions: int = 1, /, **configs: str | int) -> str:
        name = new_name()
        named = {key.replace("_", "."): str(value) for key, value in configs.items()}
        with Wire(broker.host, broker.port) as wire:
            calls.create_topic(wire, name, partitions, named)
        return name

    return make


@pytest.fixture
def topic(new_topic: MakeTopic) -> str:
    """A new topic of one partition."""
    return new_topic()


def make_client(name: str, bootstrap: str) -> Client:
    """Skips the test where the Java client cannot be had: .ci/run does not allow that."""
    if name == "java":
        _need_java()
    return CLIENTS[name](bootstrap)


@functools.cache
def _java_is_missing() -> str | None:
    try:
        distribution.libs()
    except distribution.Unavailable as error:
        return str(error)
    return None


def _need_java() -> None:
    if reason := _java_is_missing():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def needs_java() -> None:
    """For tests that run Kafka's own programs."""
    _need_java()


@pytest.fixture
def client(broker: Broker, request: pytest.FixtureRequest) -> Client:
    """The client of this run of the test; see `for_clients`."""
    request.node.user_properties.append(("client", request.param))
    return make_client(request.param, broker.bootstrap)


@pytest.fixture
def all_clients(broker: Broker) -> list[Client]:
    return [make_client(name, broker.bootstrap) for name in CLIENTS]
