"""docs/operating.md: its recipe for tests works, and its figures are the broker's own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ottla.broker.cli_docs import FOLDER
from ottla.broker.config import ServerConfig
from ottla.log.options import MIB, StoreOptions

PAGE = (FOLDER / "operating.md").read_text()
TEST = """
from ottla.broker.cli_client import Cluster

def test_it_answers(kafka):
    with Cluster(kafka) as cluster:
        assert cluster.topics() == []
"""


def test_the_recipe_for_pytest_works_as_it_is_printed(tmp_path: Path) -> None:
    (recipe,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "conftest.py").write_text(recipe)
    (tmp_path / "test_one.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_its_figures_are_those_of_the_broker() -> None:
    config, options = ServerConfig({}), StoreOptions()
    assert f"`queued.max.request.bytes` ({config.queued_max_request_bytes // MIB} MiB" in PAGE
    assert f"`ottla.send.max.bytes` ({config.ottla_send_max_bytes // MIB} MiB" in PAGE
    keys = config.log_cleaner_dedupe_buffer_size // MIB
    assert f"`log.cleaner.dedupe.buffer.size` ({keys} MiB" in PAGE
    assert f"files of {options.segment_bytes // MIB} MiB" in PAGE
    assert f"less free than {options.disk_reserve_bytes // MIB} MiB" in PAGE
    assert config.log_retention_check_interval_ms == 5 * 60_000
