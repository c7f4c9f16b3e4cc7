"""Where the commands other than `serve` go, and what becomes of their errors."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import cast

from ottla.broker.cli_errors import ClientError
from ottla.broker.cli_output import fail
from ottla.broker.config_values import ConfigError
from ottla.wire.errors import KafkaError

_MODULES = {
    "topics": "cli_topics",
    "configs": "cli_configs",
    "produce": "cli_produce",
    "consume": "cli_consume",
    "groups": "cli_groups",
    "transactions": "cli_transactions",
    "inspect": "cli_folder",
    "repair": "cli_folder",
    "docs": "cli_docs",
    "completion": "cli_completion",
}


def run(args: argparse.Namespace) -> int:
    """Run the command; gives the exit status."""
    if sys.stdout is None:  # closed by the caller, as in `ottla topics list >&-`
        return fail("standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):  # names that are not text are shown escaped
        encoding = "utf-8" if getattr(args, "json", False) else sys.stdout.encoding
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
    try:
        status = _run(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # `ottla consume | head`
        _forget_output()
        return 0
    except OSError as error:
        _forget_output()
        return fail(f"standard output: {error.strerror or error}")


def _run(args: argparse.Namespace) -> int:
    from ottla.log.errors import LogError

    module = import_module(f"ottla.broker.{_MODULES[args.command]}")
    command = cast("Callable[[argparse.Namespace], int]", getattr(module, args.command))
    try:
        return command(args)
    except KafkaError as error:
        return fail(error.message or error.error.name)
    except (ClientError, ConfigError, LogError) as error:
        return fail(error)


def _forget_output() -> None:
    """Standard output takes no more: drop the rest, so that the interpreter's end does not fail on
    it again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
