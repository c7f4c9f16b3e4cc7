"""What a broker describes of its settings, and what Apache Kafka 4.3.1 does (settings.tsv).

`python -m compat_tests.traps.settings HOST:PORT` writes the file from a broker of Apache Kafka.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from compat_tests.raw import calls
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Wire

FILE = Path(__file__).with_suffix(".tsv")
TOPIC, BROKER = 2, 4
DEFAULT = 5
NONE = "<null>"


class Setting(NamedTuple):
    """What does not depend on what has been set."""

    scope: str
    name: str
    kind: str
    """The number of ConfigEntry.ConfigType."""
    read_only: bool
    sensitive: bool
    default: str
    """NONE where nothing is the default."""
    synonyms: str
    """Names with a default, in order, with commas."""

    @classmethod
    def of(cls, scope: str, config: Struct) -> Setting:
        defaults = [s for s in config.synonyms if s.source == DEFAULT]
        value = config.value if config.config_source == DEFAULT else None
        if defaults:
            value = defaults[-1].value
        return cls(
            scope,
            config.name,
            str(config.config_type),
            config.read_only,
            config.is_sensitive,
            NONE if value is None else value,
            ",".join(s.name for s in defaults),
        )


def described(wire: Wire, kind: int, name: str, keys: list[str] | None = None) -> list[Struct]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    answer = wire.call(
        "DescribeConfigs",
        4,
        resources=[resource],
        include_synonyms=True,
        include_documentation=True,
    ).results[0]
    assert answer.error_code == 0, answer.error_message
    return answer.configs  # type: ignore[no-any-return]


def load(scope: str) -> dict[str, Setting]:
    """The settings of a scope ("topic" or "broker") by name."""
    found = {}
    for line in FILE.read_text().splitlines():
        parts = line.split("\t")
        if parts[0] == scope:
            _, name, kind, read_only, sensitive, default, synonyms = parts
            found[name] = Setting(
                scope, name, kind, read_only == "yes", sensitive == "yes", default, synonyms
            )
    return found


def main(bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    with Wire(host, int(port)) as wire:
        topic = "described"
        calls.create_topic(wire, topic)
        node = str(wire.call("Metadata", 12, topics=[]).controller_id)
        lines = []
        for scope, kind, name in (("topic", TOPIC, topic), ("broker", BROKER, node)):
            for config in sorted(described(wire, kind, name), key=lambda config: config.name):
                row = Setting.of(scope, config)
                flags = ["yes" if flag else "no" for flag in (row.read_only, row.sensitive)]
                lines.append("\t".join([*row[:3], *flags, row.default, row.synonyms]) + "\n")
        calls.delete_topic(wire, topic)
    FILE.write_text("".join(lines))


if __name__ == "__main__":
    main(sys.argv[1])
