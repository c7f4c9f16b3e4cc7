"""Runs Kafka's own command-line tools."""

from __future__ import annotations

import subprocess

from compat_tests.apache import distribution


class ToolFailed(AssertionError):
    pass


def run_tool(tool: str, *arguments: str, given: str | None = None, seconds: float = 120) -> str:
    """What the tool printed, standard error after standard output. Raises ToolFailed."""
    done = subprocess.run(
        distribution.command(tool, *arguments),
        input=given,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        start_new_session=True,
    )
    printed = done.stdout + done.stderr
    if done.returncode:
        raise ToolFailed(f"{tool} {' '.join(arguments)}: exit {done.returncode}\n{printed}")
    return printed
