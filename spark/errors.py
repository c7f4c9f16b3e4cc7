"""What a job says when it cannot go on."""

from __future__ import annotations


class JobError(Exception):
    """The job cannot do what was asked; the text names the option and what to do."""


def install(extra: str) -> str:
    """How an extra of Ottla gets installed, to end an error with."""
    return f"pip install 'ottla[{extra}]', or in a checkout of Ottla: pip install '.[{extra}]'"
