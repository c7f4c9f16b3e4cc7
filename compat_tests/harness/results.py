"""Keeps what each test said, as JSON, for the table in docs/compatibility.md (`--results FILE`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


class Results:
    def __init__(self, path: Path, target: str) -> None:
        self.path = path
        self.target = target
        self.outcomes: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The call's outcome, unless setting up or tearing down went wrong."""
        if report.when != "call" and report.passed:
            return
        self.outcomes[report.nodeid] = {
            "outcome": report.outcome,
            "seconds": round(report.duration, 3),
            **{str(key): value for key, value in report.user_properties},
        }

    def pytest_sessionfinish(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        document = {"target": self.target, "tests": self.outcomes}
        self.path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
