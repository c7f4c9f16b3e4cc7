"""`ottla serve`: what it prints, when it leaves, and what it says when it cannot start."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.broker.serving import Serving, ottla

from ottla import __version__
from ottla.broker.app import (
    FAILED,
    STOPPED,
    WRONG_SETTING,
    open_notices,
    port_notices,
    serve,
    settings,
    settings_line,
)
from ottla.broker.cli import parser
from ottla.broker.cli_client import Cluster, Connection
from ottla.broker.config import ServerConfig
from ottla.broker.config_values import ConfigError
from ottla.broker.folder_errors import unusable
from ottla.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource


@contextmanager
def serving(*args: str, cwd: Path | None = None) -> Iterator[Serving]:
    broker = Serving("--log-level", "info", *args, cwd=cwd)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.process.kill()
        broker.process.communicate()


def cluster_id(address: str) -> str:
    with Cluster(address) as cluster:
        return cluster.call(DescribeClusterRequest(), DescribeClusterResponse).cluster_id


# ---------------------------------------------------------------------------------------- starting


def test_one_line_says_where_it_is_what_it_keeps_and_how_safely(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path / "d"), "--durability", "os") as broker:
        assert broker.ready["data"] == str(tmp_path / "d")
        assert broker.ready["durability"] == "os"
        assert float(broker.ready["seconds"]) < 30
        host, _, port = broker.address.partition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0
        with Cluster(broker.address) as cluster:
            assert cluster.topics() == []


def test_without_a_folder_it_makes_one_beside_it(tmp_path: Path) -> None:
    with serving(cwd=tmp_path) as broker:
        assert broker.ready["data"] == str(tmp_path / "ottla-data")
        assert (tmp_path / "ottla-data" / "mark").exists()
        assert broker.ready["durability"] == "fsync"


def test_a_file_and_overrides_and_what_has_no_effect_is_said_once(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nnum.io.threads=8\nnum.partition=4\nbroker.rack=r\n")
    with serving(str(file), "--override", "broker.rack=s", cwd=tmp_path) as broker:
        with Cluster(broker.address) as cluster:
            answer = cluster.call(DescribeClusterRequest(), DescribeClusterResponse)
        assert answer.brokers[0].rack == "s"
        status, errors = broker.stop()
    assert status == STOPPED
    assert [line for line in map(told, errors.splitlines()) if line[0] == "WARNING"] == [
        ("WARNING", "unknown setting num.partition is ignored; did you mean num.partitions?"),
        ("WARNING", "these settings have no effect in Ottla: num.io.threads"),
    ]


def test_the_cluster_and_the_node_stay_those_of_the_folder(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path / "d"))
    with serving(*folder) as broker:
        first = cluster_id(broker.address)
        broker.stop()
    assert len(first) == 22
    with serving(*folder) as broker:
        assert cluster_id(broker.address) == first
        broker.stop()
    for setting, kept in (("node.id=2", "1"), ("ottla.cluster.id=other", first)):
        refused = ottla("serve", "--port", "0", *folder, "--override", setting)
        assert refused.returncode == WRONG_SETTING
        assert told(refused.stderr.splitlines()[-1]) == (
            "ERROR",
            f"{setting}: {tmp_path / 'd'} was made with {kept}; use that, or another log.dirs",
        )


# ---------------------------------------------------------------------------------------- stopping


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    with serving("--data-dir", str(tmp_path)) as broker:
        status, errors = broker.stop(number)
    assert status == STOPPED
    first, settings, ready, stopping, stopped = map(told, errors.splitlines())
    assert first == ("INFO", f"version {__version__} starts with the folder {tmp_path}")
    assert settings[1].startswith("settings other than the default: listeners=")
    assert ready[1].startswith("ready after ")
    assert stopping == ("INFO", f"{number.name}: stopping")
    assert stopped[1].startswith("stopped after ")
    assert json.loads((tmp_path / "mark").read_text())["clean"] is True


def test_nohup_keeps_a_closed_terminal_from_stopping_it(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the broker inherits it
    try:
        with serving("--data-dir", str(tmp_path)) as broker:
            broker.process.send_signal(signal.SIGHUP)
            assert cluster_id(broker.address)
            status, errors = broker.stop()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert status == STOPPED
    assert "SIGHUP" not in errors


def test_further_signals_change_nothing(tmp_path: Path) -> None:
    """The first one waits for a client that does not read its answers."""
    with serving("--data-dir", str(tmp_path)) as broker:
        host, _, port = broker.address.partition(":")
        resource = DescribeConfigsResource(
            resource_type=4, resource_name="1", configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
        client = Connection(host, int(port))
        for _ in range(200):  # more than all buffers on the way hold
            client.tell(request, 4)
        assert client._receive()
        settled(client._socket)  # nothing further arrives: the broker waits for us to read
        broker.process.send_signal(signal.SIGTERM)
        while not refused(host, int(port)):
            pass
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            broker.process.send_signal(number)
        client.close()
        status, errors = broker.stop(signal.SIGTERM)
    assert status == STOPPED
    assert "SIGINT: stopping already" in errors
    assert json.loads((tmp_path / "mark").read_text())["clean"] is True


def settled(sock: socket.socket) -> None:
    """Wait until no more bytes arrive that nobody reads."""
    arrived, times = -1, 0
    while times < 10:
        now = struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, bytes(4)))[0]
        times = times + 1 if now == arrived else 0
        arrived = now
        time.sleep(0.1)


def refused(host: str, port: int) -> bool:
    """Whether nobody listens any more: the stop has begun."""
    try:
        socket.create_connection((host, port), 5).close()
    except ConnectionRefusedError:
        return True
    return False


# ---------------------------------------------------------------------------------------- refusals


def told(line: str) -> tuple[str, str]:
    """Level and message of a line of the log."""
    found = re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}[+-]\d\d:\d\d (\w+) [\w.]+: (.*)", line)
    assert found is not None, line
    return found[1], found[2]


def refusal(*args: str) -> tuple[int, str]:
    """The status and the one line that says why."""
    done = ottla("serve", "--log-level", "error", *args)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    level, message = told(line)
    assert level == "ERROR"
    return done.returncode, message


def test_a_port_in_use_names_itself_and_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, line = refusal("--port", str(port), "--data-dir", str(tmp_path))
    assert status == FAILED
    assert f"listeners: PLAINTEXT://127.0.0.1:{port}: Address already in use" in line
    assert line.endswith("choose another port with --port or listeners")


def test_a_folder_in_use_names_who_uses_it(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path)) as broker:
        status, line = refusal("--port", "0", "--data-dir", str(tmp_path))
        assert status == FAILED
        assert f"{tmp_path} is in use by pid {broker.process.pid}" in line


def test_a_folder_of_a_later_version_is_refused(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path)) as broker:
        broker.stop()
    mark = tmp_path / "mark"
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"format": 99}))
    status, line = refusal("--port", "0", "--data-dir", str(tmp_path))
    assert status == FAILED
    assert "is in format 99" in line


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--override", "num.partitions=0"), "num.partitions=0: must be at least 1"),
        (("--override", "num.partitions"), "--override=num.partitions: must be key=value"),
        (("none.properties",), "none.properties: cannot be read: No such file or directory"),
        (("--port", "70000"), "the port must be between 0 and 65535"),
        (("--override", "listeners=SSL://h:1"), "SSL is not served yet"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(args: tuple[str, ...], says: str) -> None:
    status, line = refusal(*args)
    assert status == WRONG_SETTING
    assert says in line


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("/dev/null", "/dev/null: is not a folder (File exists)"),
        ("/dev/null/d", "/dev/null: is not a folder (File exists)"),
        ("/proc/xx", "/proc/xx: it cannot be made there (No such file or directory)"),
    ],
)
def test_a_folder_that_cannot_be_used_is_named_with_the_setting(folder: str, says: str) -> None:
    status, line = refusal("--port", "0", "--data-dir", folder)
    assert status == FAILED
    assert line == f"{says}: set --data-dir or log.dirs to a folder that this user may write"


def test_a_start_without_room_does_not_promise_to_go_on(tmp_path: Path) -> None:
    full = (
        "import sys\n"
        "from ottla.broker import app, cli\n"
        "from ottla.log.errors import DiskFull\n"
        "def opened(*_): raise DiskFull('d', 5, 9)\n"
        "app.Store.open = lambda *_, **__: opened()\n"
        "sys.exit(cli.main(['serve', '--port', '0', '--log-level', 'error']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", full], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == FAILED
    assert told(done.stderr.strip()) == (
        "ERROR",
        "no room in d: 5 bytes free, 9 needed (with the reserve). Free some space, then start"
        " again",
    )


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EACCES, "this user may not use it"), (errno.EROFS, "the file system is read-only")],
)
def test_a_folder_of_another_user_is_named(number: int, words: str) -> None:
    error = unusable(Path("/d"), OSError(number, os.strerror(number), "/d/lock"))
    assert str(error) == f"/d/lock: {words} ({os.strerror(number)})"


def test_in_a_thread_of_a_program_it_says_why_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    args = parser().parse_args(("serve", "--data-dir", str(tmp_path / "d")))
    status = []
    thread = threading.Thread(target=lambda: status.append(serve(args)))
    thread.start()
    thread.join()
    assert status == [FAILED]
    assert "the broker needs a process of its own" in caplog.text
    assert not (tmp_path / "d").exists()


# --------------------------------------------------------------------------------------- its log


def test_lines_as_json(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path), "--log-format", "json") as broker:
        _, errors = broker.stop()
    lines = [json.loads(line) for line in errors.splitlines()]
    assert [line["message"] for line in lines][-2] == "SIGTERM: stopping"
    assert {line["logger"] for line in lines} == {"ottla"}
    assert {line["level"] for line in lines} == {"INFO"}


def test_the_log_shows_settings_that_were_given_and_no_secret() -> None:
    config = given(
        "--data-dir",
        "/d",
        *("--override", "num.partitions=3"),
        *("--override", "num.io.threads=8"),  # the default
        *("--override", "ssl.key.password=abc"),
    )
    config.set_dynamic({"log.retention.ms": "5"}, {})
    assert settings_line(config) == (
        "log.dirs=/d log.retention.ms=5 num.partitions=3 ssl.key.password=[hidden]"
    )


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_an_open_door_is_pointed_out(host: str) -> None:
    args = ("--override", "advertised.listeners=PLAINTEXT://h:9")
    config = given("--override", f"listeners=PLAINTEXT://{host}:9", *args)
    (notice,) = open_notices(config)
    assert notice.startswith(f"PLAINTEXT://{host}:9 listens on all interfaces, and whoever")
    assert open_notices(given()) == []


# ------------------------------------------------------------------------------- settings, unit


def given(*args: str) -> ServerConfig:
    return ServerConfig(settings(parser().parse_args(("serve", *args))))


def test_options_win_over_overrides_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('log.dirs = "/f"\nottla.durability = "os"\nnum.partitions = 2\n')
    config = given(str(file), "--override", "log.dirs=/o", "--override", "num.partitions=3")
    assert (config.log_dirs, config.ottla_durability, config.num_partitions) == (("/o",), "os", 3)
    config = given(str(file), "--data-dir", "/x", "--durability", "fsync")
    assert (config.log_dirs, config.ottla_durability) == (("/x",), "fsync")


def test_port_changes_the_one_listener_and_keeps_what_is_advertised_on_purpose() -> None:
    config = given("--port", "7")
    (listener,) = config.listeners
    assert (listener.host, listener.port, listener.advertised_port) == ("127.0.0.1", 7, 7)
    assert port_notices(config, 7) == []
    config = given(
        "--port",
        "7",
        "--override",
        "listeners=FRONT://0.0.0.0:1",
        "--override",
        "advertised.listeners=FRONT://host:2",
        "--override",
        "listener.security.protocol.map=FRONT:PLAINTEXT",
    )
    (listener,) = config.listeners
    assert (listener.host, listener.port) == ("0.0.0.0", 7)
    assert (listener.advertised_host, listener.advertised_port) == ("host", 2)
    (notice,) = port_notices(config, 7)
    assert notice.startswith("--port 7: clients are told host:2, as advertised.listeners says")


@pytest.mark.parametrize(("told", "advertised"), [("host:2", 2), ("host:0", 4711)])
def test_a_free_port_is_advertised_unless_another_one_is(told: str, advertised: int) -> None:
    (listener,) = given(
        "--port", "0", "--override", f"advertised.listeners=PLAINTEXT://{told}"
    ).listeners
    assert listener.opened(4711).advertised_port == advertised


def test_port_does_not_guess_which_of_several_listeners_is_meant() -> None:
    with pytest.raises(ConfigError, match="--port=7: there are several listeners"):
        given(
            "--port",
            "7",
            "--override",
            "listeners=A://h:1,B://h:2",
            "--override",
            "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
        )
