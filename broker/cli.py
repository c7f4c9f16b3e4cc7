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

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT_BROKER = "127.0.0.1:9092"

_SERVE = """\
Start the broker. Settings have Kafka's names; they come from FILE (a server.properties, or TOML),
then from --override, then from the other options, the later ones winning. Without any: it listens
on 127.0.0.1:9092 only, keeps its data in ./ottla-data, and an acknowledged record is on disk.
`ottla docs configuration` lists every setting."""

_PRODUCE = """\
Send records, one a line, from FILE or standard input. A line is a value; with --key-separator it is
key and value; with --json it is an object with any of value, key, headers ({name: text}), timestamp
(ms) and partition. Records with a key go where Kafka's own clients send them."""

_CONSUME = """\
Print records, the value of each on a line, from the start of the topic (--from) and then as they
come, until interrupted or --exit's end. With --json a line is an object with partition, offset,
timestamp, key, value and headers. No group is joined and no offset committed."""

_RESET = """\
Move a whole group to other offsets, with or without members. Members are removed first, so that
their late commits are refused; then the offsets are written; then the members, which come back by
themselves, go on from there. Offsets outside of a partition's log become its start or end."""

_ABORT = """\
Abort the transaction that an id has open, and fence its producer, as a new instance of it would.
With --topic, --partition and --producer-id instead: end one that hangs, open in a partition while
no coordinator is going to end it; `ottla transactions list --hanging` shows them."""

_INSPECT = """\
Show what a data folder holds: the sealed files of the log with the partitions and offsets in each.
The broker may be running: sealed files do not change, the one being written is only named. With
--records print the batches of one partition."""

_REPAIR = """\
Rebuild what can be read of a data folder that the broker refuses to open (damaged files, or a
machine that went down under ottla.durability=os), and say what is missing. The broker must not be
running."""

_DOCS = """\
Print a page of the documentation that belongs to this version, or list the pages. In a terminal the
page is formatted; into a pipe or a file it is Markdown."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status: 0 fine, 1 failed, 2 wrong use."""
    args = _parser().parse_args(argv)
    try:
        return _run(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `ottla consume | head`
        sys.stderr.close()
        return 0


def _run(args: argparse.Namespace) -> int:
    if args.command == "serve":
        from ottla.broker.app import serve

        return serve(args)
    from ottla.broker.cli_commands import run

    return run(args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla",
        description="A Kafka-protocol-compatible broker: run it, and work with any Kafka cluster.",
    )
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_topics(commands)
    _add_produce(commands)
    _add_consume(commands)
    _add_groups(commands)
    _add_transactions(commands)
    _add_inspect(commands)
    _add_repair(commands)
    _add_docs(commands)
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
        default="warning",
        choices=("debug", "info", "warning", "error"),
        help="what is written to standard error (default: warning)",
    )


def _add_topics(commands: Commands) -> None:
    topics = commands.add_parser("topics", help="list, create, describe, alter, delete topics")
    actions = topics.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser

    _client(add("list", help="names and sizes of all topics"))

    create = _client(add("create", help="make topics"))
    create.add_argument("names", nargs="+", metavar="TOPIC")
    create.add_argument("--partitions", type=int, default=-1, help="default: num.partitions")
    create.add_argument(
        "--replication-factor", type=int, default=-1, help="default: default.replication.factor"
    )
    _settings(create)
    create.add_argument(
        "--if-not-exists", action="store_true", help="a topic that is there already is fine"
    )

    describe = _client(add("describe", help="partitions, offsets and settings of topics"))
    describe.add_argument("names", nargs="*", metavar="TOPIC", help="default: all")

    alter = _client(add("alter", help="more partitions, other settings"))
    alter.add_argument("name", metavar="TOPIC")
    alter.add_argument("--partitions", type=int, help="the new number; it can only grow")
    _settings(alter)
    alter.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="KEY",
        help="go back to the broker's default",
    )

    delete = _client(add("delete", help="delete topics and all their records"))
    delete.add_argument("names", nargs="+", metavar="TOPIC")


def _add_produce(commands: Commands) -> None:
    produce = _client(commands.add_parser("produce", help="send records", description=_PRODUCE))
    produce.add_argument("topic", metavar="TOPIC")
    produce.add_argument("file", nargs="?", metavar="FILE", help="default: standard input")
    produce.add_argument("--key-separator", metavar="TEXT", help="a line is KEY TEXT VALUE")
    produce.add_argument("--partition", type=int, help="send everything to this partition")
    produce.add_argument(
        "--acks", choices=("0", "1", "all"), default="all", help="what to wait for (default: all)"
    )
    produce.add_argument(
        "--compression",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        default="none",
        help="codec of the batches",
    )


def _add_consume(commands: Commands) -> None:
    consume = _client(commands.add_parser("consume", help="print records", description=_CONSUME))
    consume.add_argument("topic", metavar="TOPIC")
    consume.add_argument(
        "--partition", type=int, action="append", metavar="N", help="only these; may be repeated"
    )
    consume.add_argument(
        "--from",
        dest="start",
        default="earliest",
        metavar="WHERE",
        help="earliest (default), latest, an offset, -N for N before the end, or @MS for a time",
    )
    consume.add_argument("--exit", action="store_true", help="stop at what is now the end")
    consume.add_argument("--max-records", type=int, metavar="N", help="stop after N records")
    consume.add_argument("--key-separator", metavar="TEXT", help="print KEY TEXT VALUE")


def _add_groups(commands: Commands) -> None:
    groups = commands.add_parser("groups", help="list, describe, reset, delete, watch groups")
    actions = groups.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser

    listing = _client(add("list", help="all groups and their states"))
    listing.add_argument("--state", help="only groups in this state: Stable, Empty, ...")

    describe = _client(add("describe", help="members, offsets and lag of groups"))
    describe.add_argument(
        "names", nargs="+", metavar="GROUP", help="a name, or a pattern: 'orders-*'"
    )

    reset = _client(add("reset", help="move a group to other offsets", description=_RESET))
    reset.add_argument("name", metavar="GROUP")
    where = reset.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to", metavar="WHERE", help="earliest, latest, an offset, -N before the end, @MS a time"
    )
    where.add_argument("--shift", type=int, metavar="N", help="so many on from what is committed")
    where.add_argument("--from-file", metavar="FILE", help="lines of topic,partition,offset")
    reset.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC[:0,3]",
        help="only these topics or partitions (default: all that are committed); may be repeated",
    )
    reset.add_argument("--dry-run", action="store_true", help="show what would be written")

    delete = _client(add("delete", help="delete groups without members, with their offsets"))
    delete.add_argument(
        "names", nargs="+", metavar="GROUP", help="a name, or a pattern: 'orders-*'"
    )

    watch = _client(add("watch", help="describe a group whenever it has changed"))
    watch.add_argument("name", metavar="GROUP")
    watch.add_argument("--interval", type=float, default=1.0, metavar="S", help="default: 1 s")


def _add_transactions(commands: Commands) -> None:
    transactions = commands.add_parser("transactions", help="list, describe, abort transactions")
    actions = transactions.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser

    listing = _client(add("list", help="transactional ids, and what state each is in"))
    listing.add_argument(
        "--state", help="only ids in this state: Ongoing, Empty, CompleteCommit..."
    )
    listing.add_argument(
        "--longer-than", type=float, metavar="S", help="only those begun more than S seconds ago"
    )
    listing.add_argument("--pattern", metavar="RE", help="only ids that this matches as a whole")
    listing.add_argument(
        "--hanging",
        action="store_true",
        help="instead, what is open in a partition and no coordinator is going to end",
    )

    describe = _client(add("describe", help="producer, timeout, age and partitions"))
    describe.add_argument("ids", nargs="+", metavar="ID")

    abort = _client(add("abort", help="abort an open transaction", description=_ABORT))
    abort.add_argument("id", nargs="?", metavar="ID", help="transactional id")
    abort.add_argument("--topic", help="where a transaction hangs")
    abort.add_argument("--partition", type=int, metavar="N")
    abort.add_argument("--producer-id", type=int, metavar="N", help="whose transaction hangs")


def _add_inspect(commands: Commands) -> None:
    inspect = commands.add_parser("inspect", help="look into a data folder", description=_INSPECT)
    inspect.add_argument("folder", metavar="DIR", nargs="?", default="./ottla-data")
    inspect.add_argument("--records", action="store_true", help="print the batches of --partition")
    inspect.add_argument("--partition", type=int, metavar="N", help="the log's own number")
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


def _client(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        default=DEFAULT_BROKER,
        metavar="HOST:PORT",
        help=f"a broker of the cluster (default: {DEFAULT_BROKER})",
    )
    parser.add_argument("--json", action="store_true", help="JSON, one object a line")
    return parser


def _settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the topic; may be repeated",
    )
