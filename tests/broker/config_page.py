"""The tables of docs/configuration.md, made from the broker's own.

`python -m tests.broker.config_page` rewrites the page from its marker on.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from ottla.broker.config import default_text
from ottla.broker.config_honoured import BROKER, TOPIC
from ottla.broker.config_kept import BROKER_KEPT, TOPIC_KEPT
from ottla.broker.config_keys import Key, any_broker_key, broker_key, keys

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
MARKER = "## Settings of the broker\n"


def tables() -> str:
    """The page from its marker on."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield MARKER
    yield "| setting | type | default | changes | what it does |"
    yield "| --- | --- | --- | --- | --- |"
    for name in sorted(BROKER):
        key = broker_key(name)
        assert key is not None
        default = default_text(name)
        mark = " (Kafka: " + _shown(key.default) + ")" if default != key.default else ""
        when = "at once" if BROKER[name].dynamic else "at start"
        yield _row(name, key, _shown(default) + mark, when, BROKER[name].doc)
    yield "\n## Settings of topics\n"
    yield "All of them change at once. Without a setting of its own a topic has the broker's.\n"
    yield "| setting | type | default | broker's setting | what it does |"
    yield "| --- | --- | --- | --- | --- |"
    for name in sorted(TOPIC):
        key = keys("topic")[name]
        inherited = ", ".join(f"`{synonym.name}`" for synonym in key.synonyms)
        yield _row(name, key, _shown(key.default), inherited, TOPIC[name])
    yield "\n## Known, without effect\n"
    yield "Kafka's other settings are known. Those in these two tables are accepted, kept and"
    yield "described as Kafka does, with its checks, and do nothing; the broker says so once in its"
    yield "log.\n"
    yield "| setting of topics | type | default | no effect, because |"
    yield "| --- | --- | --- | --- |"
    for name, reason in sorted(TOPIC_KEPT.items()):
        yield _kept(keys("topic")[name], reason)
    yield ""
    yield "| setting of the broker | type | default | no effect, because |"
    yield "| --- | --- | --- | --- |"
    for name, reason in sorted(BROKER_KEPT.items()):
        found = any_broker_key(name)
        assert found is not None
        yield _kept(found, reason)
    yield ""
    yield "A file may hold the others, DescribeConfigs answers them as read-only, and a request to"
    yield "change one is refused.\n"
    yield from _names("Of the broker", keys("broker").values(), [*BROKER, *BROKER_KEPT])
    yield from _names("Of groups", keys("group").values(), ())
    yield from _names("Of client metrics", keys("metrics").values(), ())


def _row(name: str, key: Key, default: str, middle: str, doc: str) -> str:
    return f"| `{name}` | {key.type} | {default} | {middle} | {doc} |"


def _kept(key: Key, reason: str) -> str:
    return f"| `{key.name}` | {key.type} | {_shown(key.default)} | {reason} |"


def _shown(text: str | None) -> str:
    if text is None:
        return "not set"
    return f"`{text}`" if text else "empty"


def _names(title: str, found: Iterable[Key], honoured: Iterable[str]) -> Iterator[str]:
    skipped = set(honoured)
    names = [f"`{key.name}`" for key in found if key.name not in skipped and not key.internal]
    text = f"{title}: {', '.join(sorted(names))}."
    yield textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().partition(MARKER)[0] + tables())
