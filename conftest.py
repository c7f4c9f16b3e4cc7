"""What tests and the programs that they start leave lying about goes with the run."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine only.
settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder of pytest's in place of /tmp, for what is started too: JVMs leave the native
    libraries of their codecs behind, and Spark its blocks when it is killed."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    places = {
        "TMPDIR": folder,
        "SPARK_LOCAL_DIRS": folder,
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={folder} -XX:-UsePerfData",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in places.items():
            patch.setenv(name, value)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP means to what is started what it means by default, also where the run ignores it: a
    process inherits that (`nohup`)."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
