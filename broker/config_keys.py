"""Every configuration key that Kafka 4.3 knows: its type, default and limits (config_keys.tsv).

Knowing all of them is what lets a server.properties written for Kafka be read without a stumble
and DescribeConfigs answer what tools look for; which of them Ottla acts on is another table,
`config_honoured`. Source of the facts: the ConfigDef objects of Kafka 4.3.1 (KafkaConfig,
LogConfig, GroupConfig, ClientMetricsConfigs).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from ottla.broker.config_values import ConfigError, KeyType, check, parse, text_of

Scope = Literal["broker", "topic", "group", "metrics", "dynamic"]
Update = Literal["read-only", "cluster", "node"]
"""How Kafka lets a broker key change while it runs: not at all, for the whole cluster or a node,
or for a node alone."""


class Synonym(NamedTuple):
    """A broker key that a topic or group key takes its default from; `factor` turns its unit into
    the key's (log.retention.hours -> retention.ms: 3600000)."""

    name: str
    factor: int = 1


class Key(NamedTuple):
    """One key as Kafka defines it. `default`: its text; None when Kafka leaves it unset."""

    name: str
    type: KeyType
    default: str | None
    check: str = ""
    update: Update = "read-only"
    internal: bool = False
    synonyms: tuple[Synonym, ...] = ()

    @property
    def sensitive(self) -> bool:
        """Passwords never leave the broker: DescribeConfigs answers null."""
        return self.type == "password"

    def parse(self, text: str) -> object:
        """The typed value of `text`. Raises ConfigError: the key, the value and the fix."""
        value = parse(self.name, self.type, text)
        check(self.name, self.check, value, text)
        return value

    def canonical(self, text: str) -> str:
        """`text` as DescribeConfigs spells it: "true" for " TRUE ". Raises ConfigError."""
        return text_of(self.parse(text))


def keys(scope: Scope) -> dict[str, Key]:
    """All keys of a scope by name, sorted. "dynamic": quota keys that no file may hold."""
    return _table()[scope]


def broker_key(name: str) -> Key | None:
    """The broker key of that name: Kafka's or one of `OWN_KEYS`; None when there is none."""
    return keys("broker").get(name) or OWN_KEYS.get(name)


def any_broker_key(name: str) -> Key | None:
    """`broker_key`, or one of the quotas that only a running broker can be given."""
    return broker_key(name) or keys("dynamic").get(name)


OWN_KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        Key("ottla.cluster.id", "string", None),
        Key("ottla.connection.parked.max.requests", "int", "128", "1.."),
        Key("ottla.connection.send.max.bytes", "long", str(1 << 20), "65536.."),
        Key("ottla.durability", "string", "fsync", "in:fsync,os"),
        Key("ottla.fetch.session.cache.max.partitions", "int", "100000", "0.."),
        Key("ottla.request.max.bytes", "int", str(16 << 20), "1048576.."),
        Key("ottla.file.mode", "string", "0640", "in:0600,0640,0644,0660,0664"),
        Key("ottla.producer.states.max.count", "int", "250000", "1000.."),
        Key("ottla.send.max.bytes", "long", str(256 << 20), "0.."),
    )
}
"""Keys that Kafka does not have. The prefix keeps a later Kafka key from meaning something else."""


@cache
def _table() -> dict[Scope, dict[str, Key]]:
    scopes: dict[Scope, dict[str, Key]] = {
        "broker": {},
        "topic": {},
        "group": {},
        "metrics": {},
        "dynamic": {},
    }
    for line in Path(__file__).with_suffix(".tsv").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            scope, key = _row(line)
            scopes[scope][key.name] = key
    return scopes


def _row(line: str) -> tuple[Scope, Key]:
    scope, name, kind, default, rule, flags = (line + "\t" * 5).split("\t")[:6]
    words = flags.split()
    update: Update = "cluster" if "cluster" in words else "node" if "node" in words else "read-only"
    synonyms: tuple[Synonym, ...] = ()
    if scope in ("topic", "group"):
        synonyms = tuple(_synonym(word) for word in words if word != "internal")
    return scope, Key(  # type: ignore[return-value]  # the table's own words; a test reads them all
        name,
        kind,  # type: ignore[arg-type]
        None if default in ("<null>", "<none>") else default,
        rule,
        update,
        "internal" in words,
        synonyms,
    )


def _synonym(word: str) -> Synonym:
    name, _, factor = word.partition("*")
    return Synonym(name, int(factor or 1))


__all__ = [
    "OWN_KEYS",
    "ConfigError",
    "Key",
    "Scope",
    "Synonym",
    "Update",
    "any_broker_key",
    "broker_key",
    "keys",
]
