"""python -m compat_tests.table: docs/compatibility.md from a run against each target.

The runs are those of `pytest compat_tests --results .cache/results/TARGET.json [--target=TARGET]`;
`make compat-table` makes both and then the table. A part that was run again by itself may write to
TARGET-anything.json beside it: of a test in several files the youngest file counts.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.apache import distribution
from compat_tests.clients import CLIENTS

TARGETS = ("ottla", "apache")
RESULTS = distribution.ROOT / ".cache" / "results"
DOCUMENT = distribution.ROOT / "docs" / "compatibility.md"

# In the order of the document; a module that is not named here comes last, under its own name.
SECTIONS = {
    "test_records.py": "Records",
    "test_consuming.py": "Positions, offsets, waiting",
    "test_admin.py": "Administration",
    "test_single_broker.py": "Administration: calls of clusters of many brokers",
    "test_compaction.py": "Compaction",
    "test_restart.py": "Restarts",
    "groups/test_sharing.py": "Consumer groups: members that come, go, freeze and die",
    "groups/test_positions.py": "Consumer groups: positions",
    "groups/test_static.py": "Consumer groups: static members",
    "groups/test_survival.py": "Consumer groups: the broker restarts or is killed",
    "groups/test_many.py": "Consumer groups: many members, many groups",
    "groups/test_admin.py": "Consumer groups: administration",
    "groups/test_admin_options.py": "Consumer groups: administration, the rest of its options",
    "groups/test_odd.py": "Consumer groups: odd things that happen",
    "groups/test_protocols_not_served.py": "Consumer groups: protocols that are not served yet",
    "groups/test_traces.py": "Byte by byte: conversations of groups",
    "transactions/test_clients.py": "Transactions",
    "transactions/test_exactly_once.py": "Transactions: read, work, write, exactly once",
    "transactions/test_restart.py": "Transactions: the broker restarts or is killed",
    "transactions/test_compaction.py": "Transactions: compacted topics",
    "transactions/test_tools.py": "Transactions: Kafka's own programs",
    "transactions/test_traces.py": "Byte by byte: conversations of transactions",
    "test_tools.py": "Kafka's command-line tools",
    "test_commands.py": "Ottla's own commands, with any cluster",
    "test_kill9.py": "kill -9 under load",
    "traps/test_framing.py": "Byte by byte: framing and versions",
    "traps/test_metadata.py": "Byte by byte: metadata and topics",
    "traps/test_internal_topics.py": "Byte by byte: the broker's own topics",
    "traps/test_produce.py": "Byte by byte: produce",
    "traps/test_fetch.py": "Byte by byte: fetch and offsets",
    "traps/test_groups.py": "Byte by byte: groups",
    "traps/test_administration.py": "Byte by byte: administration",
    "traps/test_settings.py": "Byte by byte: settings",
    "traps/test_single_broker.py": "Byte by byte: calls of clusters of many brokers",
    "traps/test_out_of_range.py": "Byte by byte: fields out of range",
    "differential/test_one_field.py": "Byte by byte: one field of a request changed at a time",
    "spark/test_batch.py": "Spark: batches",
    "spark/test_streams.py": "Spark: streams",
    "spark/test_sinks.py": "Spark: sinks",
    "spark/test_transactions.py": "Spark: transactions",
    "spark/test_source.py": "Spark: the Python data source",
    "spark/test_source_stream.py": "Spark: the Python data source as a stream",
    "test_hostile.py": "Clients that misbehave (Ottla only)",
    "test_disk.py": "Bad times for the data folder (Ottla only)",
}

INTRODUCTION = """\
# Compatibility

Made by `make compat-table` from runs of `compat_tests/` against Ottla {ottla} and against Apache
Kafka {kafka}: the same tests, the same clients, the same bytes. Do not edit by hand.

Clients: {clients}.

In each cell Ottla comes first, Apache Kafka second: ✓ passed, ✗ failed, – not run (the client has
no such call, or the test is about Ottla alone). A number counts the variants of a test: codecs,
versions, error cases.

## The broker's own topics

Kafka keeps committed offsets in `__consumer_offsets` and transactions in `__transaction_state`.
Ottla keeps both in its own state, commits them together with the records they belong to, and writes
nothing into these topics. They are there all the same, because tools look for them: each appears
with the first question for a coordinator of its kind (or a CreateTopics of its name, which is
answered TOPIC_ALREADY_EXISTS), is internal, has Kafka's settings and the partitions that
`offsets.topic.num.partitions` and `transaction.state.log.num.partitions` say, and stays empty.
Produce is refused with INVALID_TOPIC_EXCEPTION, as in Kafka. Deleting them loses no offset here.

Tools that ask for offsets (OffsetFetch, ListGroups, DescribeGroups: kafka-consumer-groups, Kafdrop,
AKHQ, Kafbat UI, kafka-lag-exporter, MirrorMaker) find everything. Tools that read the topic find
nothing: Burrow shows no group; kminion shows them with `consumerGroups.scrapeMode: adminApi`, not
with `offsetsTopic`; kafka-console-consumer with an offsets formatter waits in vain.
"""


@dataclass
class Cell:
    """The variants of one test, with one client, against one target."""

    passed: int = 0
    failed: int = 0

    def __str__(self) -> str:
        count = self.passed + self.failed
        if not count:
            return "–"
        if self.failed:
            return f"✗ {self.failed} of {count}"
        return "✓" if count == 1 else f"✓ {count}"


@dataclass
class Row:
    title: str
    cells: dict[tuple[str, str], Cell] = field(default_factory=lambda: defaultdict(Cell))
    """By client ("" for none) and target."""

    def shown(self, client: str) -> str:
        return " / ".join(str(self.cells[client, target]) for target in TARGETS)


def title_of(function: str) -> str:
    """`test_trap_03_a_newer_...` to `3: a newer ...`, `TestAdmin::test_reset` to `admin: reset`."""
    group, _, test = function.rpartition("::")
    text = test.removeprefix("test_").replace("_", " ")
    if group:
        words = re.findall("[A-Z][a-z]+", group.removeprefix("Test"))
        return f"{' '.join(words).lower()}: {text}"
    trap = re.match(r"trap (\d+) (.*)", text)
    return f"{int(trap.group(1))}: {trap.group(2)}" if trap else text


def client_of(name: str, outcome: dict[str, str]) -> str:
    """The client that the test ran with; "" for none. Some tests have it as a parameter."""
    parameters = name.partition("[")[2]
    named = next((client for client in CLIENTS if parameters.startswith(client)), "")
    return outcome.get("client", named)


def outcomes_of(results: Path, target: str) -> dict[str, dict[str, str]]:
    """What every test said by its id, from all files of the target, the youngest last.

    Raises FileNotFoundError when there is none.
    """
    files = sorted(
        [*results.glob(f"{target}.json"), *results.glob(f"{target}-*.json")],
        key=lambda file: file.stat().st_mtime,
    )
    if not files:
        raise FileNotFoundError(
            f"no {target}.json in {results}: run pytest compat_tests --target={target}"
            f" --results {results / target}.json"
        )
    outcomes: dict[str, dict[str, str]] = {}
    for file in files:
        outcomes |= json.loads(file.read_text())["tests"]
    return outcomes


def gather(results: Path) -> dict[str, dict[str, Row]]:
    """Rows by module and test function, in the order in which the tests ran."""
    sections: dict[str, dict[str, Row]] = defaultdict(dict)
    for target in TARGETS:
        for node, outcome in outcomes_of(results, target).items():
            path, _, name = node.partition("::")
            module = path.removeprefix("compat_tests/")
            function = name.partition("[")[0]
            row = sections[module].setdefault(function, Row(title_of(function)))
            cell = row.cells[client_of(name, outcome), target]
            if outcome["outcome"] == "passed":
                cell.passed += 1
            else:
                cell.failed += 1
    return sections


def rendered(rows: list[Row]) -> list[str]:
    clients = [c for c in CLIENTS if any((c, t) in row.cells for row in rows for t in TARGETS)]
    columns = clients if clients else [""]
    heads = [c or "Ottla / Apache Kafka" for c in columns]
    if clients and any(("", t) in row.cells for row in rows for t in TARGETS):
        columns, heads = [*clients, ""], [*clients, "other"]
    lines = [f"| test | {' | '.join(heads)} |", f"| --- |{' --- |' * len(heads)}"]
    lines += [f"| {row.title} | {' | '.join(map(row.shown, columns))} |" for row in rows]
    return lines


def render(sections: dict[str, dict[str, Row]]) -> str:
    named = [f"{name} {importlib.metadata.version(name)}" for name in CLIENTS if name != "java"]
    text = INTRODUCTION.format(
        ottla=importlib.metadata.version("ottla"),
        kafka=distribution.version(),
        clients=", ".join([*named, f"Java's kafka-clients {distribution.version()}"]),
    )
    order = [m for m in SECTIONS if m in sections] + sorted(sections.keys() - SECTIONS.keys())
    for module in order:
        heading = SECTIONS.get(module, module.removesuffix(".py").replace("_", " "))
        rows = sorted(sections[module].values(), key=lambda row: _order(row.title))
        text += f"\n## {heading}\n\n" + "\n".join(rendered(rows)) + "\n"
    return text


def _order(title: str) -> tuple[int, str]:
    number = title.partition(":")[0]
    return (int(number) if number.isdigit() else 1000, title)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.table")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of TARGET.json")
    parser.add_argument("--output", type=Path, default=DOCUMENT)
    options = parser.parse_args()
    options.output.write_text(render(gather(options.results)))


if __name__ == "__main__":
    main()
