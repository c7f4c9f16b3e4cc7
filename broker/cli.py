"""The `ottla` command: what it takes and where it goes.

`serve` must be up in a quarter of a second, so this module imports nothing but argparse; what a
command needs is imported when it is the one that runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla import __version__
from ottla.broker.cli_arguments import add_client_commands

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_SERVE = """\
Start the broker. Settings have Kafka's names; they come from FILE (a server.properties, or TOML),
then from --override, then from the other options, the later ones winning. Without any: it listens
on 127.0.0.1:9092 only, keeps its data in ./ottla-data, and an acknowledged record is on disk.
`ottla docs configuration` lists every setting, `ottla docs operating` says how to run it as a
service, back it up and upgrade it."""

_INSPECT = """\
Show what a data folder holds: the files of the log, with the partitions and offsets in each. The
broker may be running: sealed files do not change; the one being written is named with its size, and
can be looked into once it is sealed or the broker stopped. With --records print the batches of one
partition. Tables leave out the leading zeros of file names; JSON has them."""

_REPAIR = """\
Rebuild what can be read of a data folder that the broker refuses to open (damaged files, or a
machine that went down under ottla.durability=os), and say what is missing. The broker must not be
running."""

_DOCS = """\
Print a page of the documentation that belongs to this version, or list the pages. In a terminal the
page is formatted; into a pipe or a file it is Markdown."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status: 0 fine, 1 failed, 2 wrong use."""
    args = parser().parse_args(argv)
    try:
        return _run(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `ottla serve | head`
        sys.stderr.close()
        return 0


def _run(args: argparse.Namespace) -> int:
    if args.command == "serve":
        from ottla.broker.app import serve

        return serve(args)
    from ottla.broker.cli_commands import run

    return run(args)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="ottla",
        description="A Kafka-protocol-compatible broker: run it, and work with any Kafka cluster.",
    )
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    add_client_commands(commands)
    _add_inspect(commands)
    _add_repair(commands)
    _add_docs(commands)
    _add_completion(commands)
    return parser


def _add_serve(commands: Commands) -> None:
    serve = commands.add_parser("serve", help="start the broker", description=_SERVE)
    serve.add_argument("file", nargs="?", metavar="FILE", help="server.properties or TOML")
    serve.add_argument("--port", type=int, help="port to listen on; 0: one that is free")
    serve.add_argument("--data-dir", metavar="DIR", help="data folder (log.dirs)")
    serve.add_argument(
        "--durability",
        choices=("fsync", "os"),
        help="fsync (default): acknowledged is on disk; os: it survives the process only",
    )
    serve.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting; may be repeated",
    )
    serve.add_argument(
        "--log-level",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="from which level on the log is written to standard error (default: info)",
    )
    serve.add_argument(
        "--log-format",
        default="plain",
        choices=("plain", "json"),
        help="plain (default): a line of text; json: one JSON object a line",
    )


def _add_inspect(commands: Commands) -> None:
    inspect = commands.add_parser("inspect", help="look into a data folder", description=_INSPECT)
    inspect.add_argument("folder", metavar="DIR", nargs="?", default="./ottla-data")
    inspect.add_argument("--records", action="store_true", help="print the batches of --partition")
    inspect.add_argument(
        "--partition", metavar="TOPIC-N", help="only this one; also by its number in the log"
    )
    inspect.add_argument("--json", action="store_true", help="one JSON object a line")


def _add_repair(commands: Commands) -> None:
    repair = commands.add_parser("repair", help="rescue a data folder", description=_REPAIR)
    repair.add_argument("folder", metavar="DIR", nargs="?", default="./ottla-data")
    repair.add_argument("--json", action="store_true", help="one JSON object a line")


def _add_docs(commands: Commands) -> None:
    docs = commands.add_parser("docs", help="read the documentation", description=_DOCS)
    docs.add_argument(
        "page", metavar="PAGE", nargs="?", help="a page's name, such as configuration; default: all"
    )
    docs.add_argument("--json", action="store_true", help="one JSON object a line")


def _add_completion(commands: Commands) -> None:
    completion = commands.add_parser(
        "completion",
        help="completion for a shell",
        description="Print a script that completes the commands and options of ottla in a shell:"
        ' in ~/.bashrc, eval "$(ottla completion bash)".',
    )
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"))
