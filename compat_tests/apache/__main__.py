"""python -m compat_tests.apache prepare | start [--port N] [key=value ...] | TOOL [argument ...]

prepare   fetch the jars (once; about a minute)
start     run one node in the foreground until Ctrl-C, in a temporary folder
TOOL      one of Kafka's command-line tools, such as kafka-topics
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from compat_tests.apache import distribution
from compat_tests.harness.brokers import ApacheBroker


def start(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.apache start")
    parser.add_argument("--port", type=int, help="a free one unless given")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    options = parser.parse_args(arguments)
    settings = dict(setting.split("=", 1) for setting in options.settings)
    with tempfile.TemporaryDirectory(prefix="apache-kafka-") as folder:
        broker = ApacheBroker(Path(folder), settings, port=options.port)
        try:
            broker.start()
            print(f"Apache Kafka {distribution.version()} ready on {broker.bootstrap}")
            print(f"its log: {broker.log_path}")
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            broker.stop()
    return 0


def main(arguments: list[str]) -> int:
    match arguments:
        case ["prepare"]:
            print(distribution.libs())
            return 0
        case ["start", *rest]:
            # before any thread: sigwait must be the one that gets them
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            return start(rest)
        case [tool, *rest] if tool in distribution.TOOLS:
            command = distribution.command(tool, *rest)
            os.execvp(command[0], command)
        case _:
            print(__doc__, "\ntools:", *sorted(distribution.TOOLS), file=sys.stderr)
            return 2


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except distribution.Unavailable as error:
        raise SystemExit(str(error)) from None
