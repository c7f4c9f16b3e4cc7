"""Arguments of the commands that work with a cluster. Imported whenever `ottla` starts, so nothing
but argparse and the checks of values."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Final

from ottla.broker import cli_values as values

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT_BROKER: Final = "127.0.0.1:9092"
BROKER_VARIABLE: Final = "OTTLA_BOOTSTRAP_SERVERS"

_PRODUCE = """\
Send records, one a line, from FILE or standard input, as soon as the input pauses. A line is a
value; with --key-separator it is key and value; with --json it is an object with value and, if
wanted, key, headers ([[name, text], ...]), timestamp (ms or ISO 8601) and partition, as `ottla
consume --json` writes it. Records with a key go where Kafka's own clients send them. When a broker
goes away the command waits for it; if it has to give up it says with which line to go on."""

_CONSUME = """\
Print records, the value of each on a line, from the start of the topic (--from) and then as they
come, until interrupted or --exit's end. With --json a line is an object that holds the whole record
and that `ottla produce --json` takes. Records of transactions are shown once they are committed
(--isolation). Without --group no group is joined and no offset committed."""

_WHERE = "earliest, latest, an offset, -N for N before the end, or @TIME (@2024-05-01T12:00, UTC;\
 @MS)"

_RESET = """\
Move a whole group to other offsets, with or without members. Members are removed first, so that
their late commits are refused; then the offsets are written; then the members, which come back by
themselves, continue from there. Offsets outside of a partition's log become its start or end."""

_ABORT = """\
Abort the transaction that an id has open, and fence its producer, as a new instance of it would.
With --topic, --partition and --producer-id instead: end one that hangs, open in a partition while
no coordinator is going to end it; `ottla transactions list --hanging` shows them."""

_CONFIGS = """\
Settings of brokers. Without --broker: the cluster-wide values that brokers without a value of their
own use."""

_DELETE_RECORDS = """\
Delete the records of a topic before an offset, in all of its partitions or those of --partition.
They are gone for every consumer."""


def add_client_commands(commands: Commands) -> None:
    """Add all of them to the parser."""
    _add_topics(commands)
    _add_configs(commands)
    _add_produce(commands)
    _add_consume(commands)
    _add_groups(commands)
    _add_transactions(commands)


def _add_topics(commands: Commands) -> None:
    topics = commands.add_parser("topics", help="list, create, describe, alter, delete topics")
    actions = topics.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser

    _client(
        add(
            "list",
            help="names and sizes of all topics",
            description="Names and sizes of all topics. Records are counted as offsets between"
            " start and end: compaction and transactions leave some of these without a record."
            " Bytes are those of one replica.",
        )
    )

    create = _client(add("create", help="create topics"))
    create.add_argument("names", nargs="+", metavar="TOPIC")
    create.add_argument(
        "--partitions",
        type=values.whole(1),
        default=-1,
        metavar="N",
        help="default: the broker's num.partitions",
    )
    create.add_argument(
        "--replication-factor",
        type=values.whole(1, 2**15 - 1),
        default=-1,
        metavar="N",
        help="default: the broker's default.replication.factor",
    )
    _settings(create, "the topic")
    create.add_argument(
        "--if-not-exists", action="store_true", help="a topic that exists already is no error"
    )

    describe = _client(add("describe", help="partitions, offsets and settings of topics"))
    describe.add_argument("names", nargs="*", metavar="TOPIC", help="default: all")
    describe.add_argument(
        "--all-configs", action="store_true", help="all settings, also those with default values"
    )

    alter = _client(add("alter", help="more partitions, other settings"))
    alter.add_argument("name", metavar="TOPIC")
    alter.add_argument(
        "--partitions", type=values.whole(1), metavar="N", help="the new number; it can only grow"
    )
    _settings(alter, "the topic")
    _delete_settings(alter, "go back to the broker's default")

    delete = _client(add("delete", help="delete topics and all their records"))
    delete.add_argument("names", nargs="+", metavar="TOPIC")

    records = _client(
        add("delete-records", help="delete the oldest records", description=_DELETE_RECORDS)
    )
    records.add_argument("name", metavar="TOPIC")
    records.add_argument(
        "--before", required=True, metavar="WHERE", help=f"{_WHERE}; latest deletes all"
    )
    _partitions(records)


def _add_configs(commands: Commands) -> None:
    configs = commands.add_parser("configs", help="describe and alter settings of brokers")
    actions = configs.add_subparsers(dest="action", required=True, metavar="ACTION")
    describe = _client(actions.add_parser("describe", help="settings", description=_CONFIGS))
    describe.add_argument(
        "--all", action="store_true", help="all settings, also those with default values"
    )
    alter = _client(actions.add_parser("alter", help="other settings", description=_CONFIGS))
    _settings(alter, "the broker")
    _delete_settings(alter, "go back to what the broker started with")
    for parser in (describe, alter):
        parser.add_argument(
            "--broker", type=values.whole(0), metavar="N", help="a broker, by its node.id"
        )


def _add_produce(commands: Commands) -> None:
    produce = _client(commands.add_parser("produce", help="send records", description=_PRODUCE))
    produce.add_argument("topic", metavar="TOPIC")
    produce.add_argument("file", nargs="?", metavar="FILE", help="default: standard input")
    produce.add_argument(
        "--key-separator",
        type=values.separator,
        metavar="TEXT",
        help=r"a line is KEY TEXT VALUE; \t is a tab",
    )
    produce.add_argument(
        "--null",
        type=values.unescaped,
        metavar="TEXT",
        help="a key or value that is TEXT is a null; a null value is a tombstone",
    )
    produce.add_argument(
        "--header",
        type=values.header,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header of every record; may be repeated",
    )
    produce.add_argument(
        "--partition", type=values.whole(0), metavar="N", help="send everything to this partition"
    )
    produce.add_argument(
        "--acks",
        choices=("0", "1", "all"),
        default="all",
        help="wait for nothing, the leader or all replicas (default: all, which also writes nothing"
        " twice)",
    )
    produce.add_argument(
        "--compression",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        default="none",
        help="codec of the batches (default: none)",
    )
    _timeout(produce)


def _add_consume(commands: Commands) -> None:
    consume = _client(commands.add_parser("consume", help="print records", description=_CONSUME))
    consume.add_argument("topic", metavar="TOPIC")
    _partitions(consume)
    consume.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        help=f"{_WHERE}; or PARTITION:WHERE,... for these partitions alone (default: earliest)",
    )
    consume.add_argument(
        "--group",
        metavar="NAME",
        help="join this consumer group: its members share the partitions, begin where the group"
        " stopped (elsewhere at --from) and commit what is printed",
    )
    consume.add_argument("--exit", action="store_true", help="stop at what is now the end")
    consume.add_argument(
        "--max-records", type=values.whole(0, values.INT64), metavar="N", help="stop after N"
    )
    consume.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="whether records of open and aborted transactions are left out (default:"
        " read_committed) or shown",
    )
    shape = consume.add_mutually_exclusive_group()
    shape.add_argument(
        "--key-separator", type=values.separator, metavar="TEXT", help="print KEY TEXT VALUE"
    )
    shape.add_argument(
        "--print",
        dest="fields",
        type=_fields,
        metavar="FIELDS",
        help=f"of {','.join(FIELDS)}: those to print, with tabs between them",
    )
    consume.add_argument(
        "--null",
        type=values.unescaped,
        default=b"NULL",
        metavar="TEXT",
        help="what a null key or value is printed as (default: NULL)",
    )
    _timeout(consume)


FIELDS: Final = ("partition", "offset", "timestamp", "key", "value", "headers")


def _fields(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in FIELDS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(FIELDS)}")
    return names


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
    where.add_argument("--to", metavar="WHERE", help=_WHERE)
    where.add_argument(
        "--shift",
        type=values.whole(-values.INT64, values.INT64),
        metavar="N",
        help="N further than what is committed, or back with -N",
    )
    where.add_argument("--from-file", metavar="FILE", help="lines of topic,partition,offset")
    reset.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC[:0,3]",
        help="only these topics or partitions (default: those that the group has committed or its"
        " members own); may be repeated",
    )
    reset.add_argument("--dry-run", action="store_true", help="show what would be written")

    delete = _client(add("delete", help="delete groups without members, with their offsets"))
    delete.add_argument(
        "names", nargs="+", metavar="GROUP", help="a name, or a pattern: 'orders-*'"
    )

    watch = _client(add("watch", help="describe a group whenever it has changed"))
    watch.add_argument("name", metavar="GROUP")
    watch.add_argument(
        "--interval", type=values.seconds, default=1.0, metavar="S", help="default: 1 s"
    )


def _add_transactions(commands: Commands) -> None:
    transactions = commands.add_parser("transactions", help="list, describe, abort transactions")
    actions = transactions.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser

    listing = _client(add("list", help="transactional ids and their states"))
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
    abort.add_argument("--partition", type=values.whole(-1), metavar="N")
    abort.add_argument(
        "--producer-id",
        type=values.whole(-values.INT64, values.INT64),
        metavar="N",
        help="whose transaction hangs",
    )


def _client(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    default = os.environ.get(BROKER_VARIABLE) or DEFAULT_BROKER
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        default=default,
        metavar="HOST:PORT",
        help="a broker of the cluster, or several with commas; the port may be left out (default:"
        f" ${BROKER_VARIABLE}, else {DEFAULT_BROKER})",
    )
    parser.add_argument("--json", action="store_true", help="JSON, one object a line")
    return parser


def _partitions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partition",
        type=values.whole(0),
        action="append",
        metavar="N",
        help="only this partition; may be repeated",
    )


def _timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        type=values.seconds,
        default=60.0,
        metavar="S",
        help="give up when the cluster cannot be reached for S seconds (default: 60)",
    )


def _settings(parser: argparse.ArgumentParser, owner: str) -> None:
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"a setting of {owner}; may be repeated",
    )


def _delete_settings(parser: argparse.ArgumentParser, help_text: str) -> None:
    parser.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="KEY",
        help=f"{help_text}; may be repeated",
    )
