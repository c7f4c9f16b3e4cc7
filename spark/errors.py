"""What a job says when it cannot go on."""

from __future__ import annotations


class JobError(Exception):
    """The job cannot do what was asked; the text names the option and what to do."""
