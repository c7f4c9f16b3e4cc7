"""The benchmark's own code at sizes that measure nothing: it must run and its reports be whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize(
    "row",
    [
        "cold-start",
        "memory",
        "idle-connections",
        "bulk-1k-lz4",
        "catch-up",
        "small-produce-deep",
        "linger-0",
        "partitions-1000",
        "disk-100b-8",
        "group-50",
        "heartbeat",
        "offset-commit",
        "offsets-million",
        "transactions-5",
        "read-committed",
        "aborted-10000",
    ],
)
def test_a_row_runs_against_ottla_and_records_each_figure(row: str, tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    done = bench(row, "--quick", "--targets", "ottla", "--data", tmp_path, "--json", target)
    assert done.returncode == 0, done.stdout + done.stderr
    (measured,) = json.loads(target.read_text())["rows"]
    assert measured["name"] == row
    assert measured["notes"] == {}
    assert all(figure["values"]["ottla"] for figure in measured["figures"])
    assert measured["flush"]["ottla"] > 0
    assert not list(tmp_path.glob("ottla-bench-*")), "the broker's folder is removed"


RESULT = {
    "machine": {"date": "2025-01-01"},
    "rows": [
        {
            "name": "small-produce",
            "title": "",
            "figures": [
                {
                    "name": "CPU",
                    "unit": "us/request",
                    "aim": 30,
                    "values": {"ottla": [40, 50, 45], "kafka": [90], "kafka-flush1": [180]},
                },
                {"name": "p99", "unit": "ms", "aim": None, "values": {"ottla": [1.5]}},
            ],
            "notes": {"kafka": "failed: it was switched off"},
            "flush": {"ottla": 0.001, "kafka": 0.003},
        }
    ],
}


def test_a_report_shows_medians_ratios_missed_aims_and_what_is_missing(tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(RESULT))
    lines = bench("--from-json", saved).stdout.splitlines()
    assert any("2.00 ms (from 1.00 to 3.00" in line for line in lines)
    cpu = next(line for line in lines if line.startswith("small-produce  CPU"))
    assert cpu.split()[3:] == ["<", "30.0", "MISSED", "45.0", "180", "90.0", "0.25", "0.50"]
    assert any(line.endswith("failed: it was switched off") for line in lines)


def test_the_figures_of_a_page_are_replaced_between_its_marks(tmp_path: Path) -> None:
    saved, page = tmp_path / "saved.json", tmp_path / "page.md"
    saved.write_text(json.dumps(RESULT))
    page.write_text("before\n<!-- figures: begin -->\nold\n<!-- figures: end -->\nafter\n")
    for _ in range(2):
        assert bench("--from-json", saved, "--markdown", page).returncode == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert text.count("| small-produce | CPU [us/request] |") == 1


def test_an_unknown_row_or_variant_is_named(tmp_path: Path) -> None:
    assert "no row is called 'nonsense'" in bench("nonsense").stderr
    unknown = bench("memory", "--targets", "redpanda")
    assert unknown.returncode == 2
    assert "no variant is called 'redpanda'" in unknown.stderr
