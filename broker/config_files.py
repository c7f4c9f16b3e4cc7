"""Reads configuration files: server.properties as Java reads it, and TOML.

Both end as one flat mapping of Kafka's key names to text; what the values mean is for `config`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ottla.broker.config_values import ConfigError, text_of

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_file(path: Path) -> dict[str, str]:
    """The settings of a file; TOML where its name ends so, Java properties otherwise.

    Raises ConfigError when it cannot be read; a later line wins over an earlier one, as in Java.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(str(path), None, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), None, f"is not UTF-8 at byte {error.start}") from None
    except ValueError:  # a NUL
        raise ConfigError(str(path), None, "is not the name of a file") from None
    return parse_toml(text, path) if path.suffix == ".toml" else parse_properties(text)


def parse_overrides(pairs: Iterable[str], option: str = "--override") -> dict[str, str]:
    """`key=value` arguments of `option`. Raises ConfigError for one without "="."""
    settings = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise ConfigError(option, pair, "must be key=value")
        settings[key.strip()] = value.strip()
    return settings


def parse_properties(text: str) -> dict[str, str]:
    """The format of java.util.Properties: comments with # and !, key and value parted by =, : or
    blanks, backslash escapes, lines continued by a backslash at their end."""
    settings = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        settings[_unescape(key)] = _unescape(value).strip()
    return settings


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    """Key and value, parted at the first =, : or blank that no backslash precedes."""
    match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    assert match is not None
    return match[1], match[2]


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code, char = match[1], match[2]
        return chr(int(code, 16)) if code else _ESCAPES.get(char, char)

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replace, text, flags=re.DOTALL)


def parse_toml(text: str, path: Path) -> dict[str, str]:
    """TOML with Kafka's names as (dotted) keys; a list becomes a comma list. Raises ConfigError."""
    import tomllib  # few starts read TOML; all pay for what is imported above

    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), None, f"is not TOML: {error}") from None
    return dict(_flatten("", tree))


def _flatten(prefix: str, tree: dict[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        key = prefix + name
        if isinstance(value, dict):
            yield from _flatten(f"{key}.", value)
        elif isinstance(value, list):
            yield key, ",".join(text_of(item) for item in value)
        else:
            yield key, text_of(value)
