"""Puts pyspark_ottla at the top of the wheel, where Spark looks for modules of that name.

Path rewriting cannot: `spark` becomes `ottla/spark`, and a longer prefix is not asked before a
shorter one. A static force-include would be copied into editable installs as well.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]  # generic for the checker only
    """Called by hatchling."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"]["spark/source/pyspark_ottla"] = "pyspark_ottla"
