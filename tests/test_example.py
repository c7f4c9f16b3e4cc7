"""examples/flights.py, which `make run` starts: what a signal leaves behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "flights.py"


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize(
    ("number", "after"), [(signal.SIGTERM, "broker serves on"), (signal.SIGHUP, "ottla ready")]
)
def test_a_signal_stops_the_broker_too(tmp_path: Path, number: signal.Signals, after: str) -> None:
    example = subprocess.Popen(
        [sys.executable, str(EXAMPLE), "--port", "0", "--limit", "300"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert example.stdout is not None
        for line in example.stdout:
            if after in line:
                break
        (broker,) = (
            process
            for process in psutil.Process(example.pid).children()
            if "serve" in process.cmdline()
        )
        example.send_signal(number)
        assert example.wait(60) == 128 + number
        assert not broker.is_running()
    finally:
        for process in (
            (*psutil.Process(example.pid).children(), example) if example.poll() is None else ()
        ):
            process.kill()
        example.communicate()
