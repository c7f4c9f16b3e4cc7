"""`ottla serve`: puts the broker together, runs it, takes it down.

The only place that knows of processes and signals. Exit status: 0 after a stop, 1 when the broker
could not start or run, 2 when a setting is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import io
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from ottla import __version__
from ottla.broker.clock import SystemClock
from ottla.broker.config import ServerConfig, default_text, is_secret, load
from ottla.broker.config_files import parse_overrides, read_file
from ottla.broker.config_values import ConfigError
from ottla.broker.context import Broker
from ottla.broker.dispatch import load_apis
from ottla.broker.expired import Expired
from ottla.broker.folder_errors import FolderUnusable, unusable
from ottla.broker.garbage import Tenure
from ottla.broker.historic import Historic
from ottla.broker.ids import id_text, new_id
from ottla.broker.listeners import Listener
from ottla.broker.log_lines import OTTLA, begin
from ottla.broker.machine import allow_descriptors, boot_id
from ottla.broker.metadata import Topics
from ottla.broker.metadata_rows import CLUSTER_ID, NODE_ID
from ottla.broker.rolling import Rolling
from ottla.broker.server import Server
from ottla.broker.sessions import FetchSessions
from ottla.broker.timers import Timers
from ottla.broker.waiters import Waiters
from ottla.log.errors import DiskFull, LogError
from ottla.log.options import Change, StoreOptions, Table
from ottla.log.producer_ids import KEY as NEXT_PRODUCER_ID
from ottla.log.producer_ids import ProducerIds
from ottla.log.store import Store

_logger = logging.getLogger(OTTLA)

_IN_A_THREAD = (
    "signals stop it, and Python hands them to the main thread only. Start `ottla serve` with"
    " subprocess; `ottla docs operating` has the lines for tests"
)
STOPPED, FAILED, WRONG_SETTING = 0, 1, 2


def serve(args: argparse.Namespace) -> int:
    """Run the broker that the command line describes until a signal stops it."""
    begin(args.log_level, args.log_format)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a folder's name may be any bytes
        sys.stdout.reconfigure(errors="backslashreplace")
    if threading.current_thread() is not threading.main_thread():
        return _refuse("the broker needs a process of its own: " + _IN_A_THREAD, FAILED)
    try:
        config, notices = load(settings(args))
    except ConfigError as error:
        return _refuse(error, WRONG_SETTING)
    _logger.info("version %s starts with the folder %s", __version__, config.data_dir.absolute())
    for notice in notices + port_notices(config, args.port) + open_notices(config):
        _logger.warning("%s", notice)
    loop = _new_loop()
    try:
        loop.run_until_complete(_run(config, loop))
    except ConfigError as error:
        return _refuse(error, WRONG_SETTING)
    except DiskFull as error:
        return _refuse(f"{error.what}. Free some space, then start again", FAILED)
    except (FolderUnusable, LogError) as error:
        return _refuse(error, FAILED)
    except OSError as error:
        return _refuse(_explained(error), FAILED)
    finally:
        _end_signals(loop)
        loop.close()
    return STOPPED


def settings(args: argparse.Namespace) -> dict[str, str]:
    """All settings of a command line, the more particular winning: the file, --override, options.

    Raises ConfigError.
    """
    given = read_file(Path(args.file)) if args.file else {}
    given |= parse_overrides(args.override)
    if args.data_dir is not None:
        given["log.dirs"] = args.data_dir
    if args.durability is not None:
        given["ottla.durability"] = args.durability
    if args.port is not None:
        given |= _with_port(given, args.port)
    return given


def _with_port(given: Mapping[str, str], port: int) -> dict[str, str]:
    """The listener with another port. What clients are told of it, if that is set, stays: it is
    the address of a proxy, a NAT or a container's port map. Raises ConfigError."""
    first, *others = ServerConfig({key: given[key] for key in given if "listener" in key}).listeners
    if others:
        raise ConfigError("--port", port, "there are several listeners: set listeners instead")
    return {"listeners": str(first._replace(port=port))}


def port_notices(config: ServerConfig, port: int | None) -> list[str]:
    """Words about --port where clients are told another one."""
    if port is None:
        return []
    return [
        f"--port {port}: clients are told {listener.advertised_host}:{listener.advertised_port},"
        " as advertised.listeners says; change that too unless a proxy or port map leads here"
        for listener in config.listeners
        if listener.advertised_port not in (0, port)
    ]


def open_notices(config: ServerConfig) -> list[str]:
    """Words about listeners that every machine of the network reaches: nobody has to log in."""
    return [
        f"{listener} listens on all interfaces, and whoever reaches it may read, write and delete:"
        " name one address in listeners unless the network is trusted"
        for listener in config.listeners
        if listener.host in ("", "0.0.0.0", "::")
    ]


def settings_line(config: ServerConfig) -> str:
    """What of the settings, altered ones too, is not Ottla's default; without secrets."""
    names = sorted({*config.static, *config.cluster, *config.node})
    texts = [(name, config.text(name)) for name in names]
    differing = [
        f"{name}={'[hidden]' if is_secret(name) else text}"
        for name, text in texts
        if text != default_text(name)
    ]
    return " ".join(differing) or "none"


async def _run(config: ServerConfig, loop: asyncio.AbstractEventLoop) -> None:
    stop: asyncio.Future[signal.Signals] = loop.create_future()
    _on_signals(loop, stop)
    allow_descriptors()
    clock = SystemClock()
    try:
        store = _open_store(config, clock, loop)
    except OSError as error:
        raise unusable(config.data_dir, error, "--data-dir or log.dirs") from None
    try:
        await _identify(store, config)
        broker = _assemble(store, config, clock)
        _logger.info("settings other than the default: %s", settings_line(config))
        Rolling(store, broker.topics, broker.timers)
        Historic(store, broker.topics, broker.timers)
        Expired(store, broker.topics, broker.timers, clock)
        server = Server(broker, loop)
        await server.start()
        tenure = Tenure()
        tenure.start()
        broker.slices.after_slice = tenure.after_slice
        _announce(broker)
        number = await stop
        _logger.info("%s: stopping", number.name)
        begun = time.monotonic()
        await server.stop()
    finally:
        store.close()
    _logger.info("stopped after %.2f s", time.monotonic() - begun)


def _open_store(config: ServerConfig, clock: SystemClock, loop: asyncio.AbstractEventLoop) -> Store:
    return Store.open(
        config.data_dir,
        options=StoreOptions(
            durability="os" if config.ottla_durability == "os" else "fsync",
            file_mode=int(config.ottla_file_mode, 8),
            max_request_bytes=config.socket_request_max_bytes,
            producers_max=config.ottla_producer_states_max_count,
            retention_check_ms=config.log_retention_check_interval_ms,
            compaction=config.log_cleaner_enable,
        ),
        now_ms=clock.wall_ms(),
        boot_id=boot_id(),
        post=loop.call_soon_threadsafe,
    )


async def _identify(store: Store, config: ServerConfig) -> None:
    """Hold the node's and cluster's ids against the folder's, or write them into a new one.

    Raises ConfigError when they are others than the folder was made with: its offsets and groups
    belong to that node of that cluster.
    """
    wanted = {NODE_ID: str(config.node_id), CLUSTER_ID: config.ottla_cluster_id}
    changes = []
    for key, value in wanted.items():
        kept = store.get(Table.CLUSTER, key)
        if kept is None:
            changes.append(Change(Table.CLUSTER, key, (value or id_text(new_id())).encode()))
        elif value is not None and value != kept.decode():
            name = "node.id" if key == NODE_ID else "ottla.cluster.id"
            raise ConfigError(
                name,
                value,
                f"{config.data_dir} was made with {kept.decode()}; use that, or another log.dirs",
            )
    if changes:
        done = asyncio.get_running_loop().create_future()
        ticket = store.change(changes)
        ticket.then(lambda _: done.set_result(None))
        store.flush()
        await done
        if ticket.error is not None:
            raise ticket.error


def _assemble(store: Store, config: ServerConfig, clock: SystemClock) -> Broker:
    cluster_id = store.get(Table.CLUSTER, CLUSTER_ID)
    assert cluster_id is not None
    producer_ids = ProducerIds(store.get(Table.CLUSTER, NEXT_PRODUCER_ID), store.change)
    store.on_reset(lambda _: producer_ids.reset(store.get(Table.CLUSTER, NEXT_PRODUCER_ID)))
    timers = Timers(clock)
    return Broker(
        node_id=config.node_id,
        cluster_id=cluster_id.decode(),
        config=config,
        store=store,
        topics=Topics(store, config),
        clock=clock,
        timers=timers,
        waiters=Waiters(timers),
        sessions=FetchSessions(
            config.max_incremental_fetch_session_cache_slots,
            lambda: secrets.randbelow((1 << 31) - 1) + 1,
            lambda: config.ottla_fetch_session_cache_max_partitions,
        ),
        producer_ids=producer_ids,
        apis=load_apis(),
    )


def _announce(broker: Broker) -> None:
    """One line on standard output, for scripts that wait for it and read the port from it; its form
    is a promise (docs/operating.md)."""
    took = time.time() - _process_start()
    places = " ".join(_place(listener) for listener in broker.listeners.values())
    print(
        f"ottla ready {places} data {broker.config.data_dir.absolute()}"
        f" durability {broker.config.ottla_durability} in {took:.2f} s",
        flush=True,
    )
    _logger.info(
        "ready after %.2f s: %s, %d topics, node %d of cluster %s, pid %d",
        took,
        places,
        len(broker.topics),
        broker.node_id,
        broker.cluster_id,
        os.getpid(),
    )


def _place(listener: Listener) -> str:
    return str(listener if listener.host else listener._replace(host=listener.advertised_host))


def _process_start() -> float:
    """When the process began, as a time of day; now, where the system does not say."""
    try:
        after_boot = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return (
            time.time()
            - time.clock_gettime(time.CLOCK_BOOTTIME)
            + after_boot / os.sysconf("SC_CLK_TCK")
        )
    except (OSError, AttributeError):
        return _imported


_imported = time.time()


def _on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Future[signal.Signals]) -> None:
    """The first signal stops in good order, which takes seconds at most; further ones are only
    noted. SIGHUP is left ignored where it is (nohup)."""

    def stopping(number: signal.Signals) -> None:
        if stop.done():
            _logger.info("%s: stopping already", number.name)
        else:
            stop.set_result(number)

    for number in _SIGNALS:
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stopping, number)


def _end_signals(loop: asyncio.AbstractEventLoop) -> None:
    """A signal that comes now changes nothing any more, the exit status neither."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    for number in _SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not to be had on every platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _explained(error: OSError) -> str:
    """What went wrong and what to change."""
    if error.errno == errno.EADDRINUSE:
        return f"{error.strerror}: choose another port with --port or listeners"
    if error.errno in (errno.EACCES, errno.EADDRNOTAVAIL):
        return f"{error.strerror}: set listeners to an address and a port that this user may use"
    return error.strerror or str(error)


def _refuse(error: object, status: int) -> int:
    _logger.error("%s", error)
    return status
