"""Where the commands other than `serve` go, and what becomes of their errors."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import cast

from ottla.broker.cli_client import ClientError
from ottla.broker.cli_output import fail
from ottla.broker.config_values import ConfigError
from ottla.wire.errors import KafkaError

_MODULES = {
    "topics": "cli_topics",
    "produce": "cli_produce",
    "consume": "cli_consume",
    "groups": "cli_groups",
    "transactions": "cli_transactions",
    "inspect": "cli_folder",
    "repair": "cli_folder",
    "docs": "cli_docs",
}


def run(args: argparse.Namespace) -> int:
    """Run the command; gives the exit status."""
    from ottla.log.errors import LogError

    module = import_module(f"ottla.broker.{_MODULES[args.command]}")
    command = cast("Callable[[argparse.Namespace], int]", getattr(module, args.command))
    try:
        return command(args)
    except KafkaError as error:
        return fail(error.message or error.error.name)
    except (ClientError, ConfigError, LogError) as error:
        return fail(error)
