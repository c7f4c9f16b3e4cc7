"""Text to typed values, with Kafka's types and ranges (ConfigDef.parseType and its validators)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

KeyType = Literal[
    "boolean", "int", "short", "long", "double", "string", "class", "list", "password"
]
Value = bool | int | float | str | tuple[str, ...]

_BOUNDS = {"short": 15, "int": 31, "long": 63}


class ConfigError(ValueError):
    """A setting that cannot be taken. The text names the setting, the value and the way out.

    `key` and `value` are kept apart for callers that answer a request instead of a person.
    """

    def __init__(self, key: str, value: object, reason: str) -> None:
        super().__init__(f"{key}={value}: {reason}" if value is not None else f"{key}: {reason}")
        self.key = key
        self.value = value
        self.reason = reason


def parse(name: str, kind: KeyType, text: str) -> Value:
    """The value of `text` as Kafka reads it: trimmed; lists split at commas, without repeats.

    Raises ConfigError.
    """
    text = text.strip()
    if kind in _BOUNDS:
        return _whole(name, kind, text)
    if kind == "boolean":
        if text.lower() not in ("true", "false"):
            raise ConfigError(name, text, "must be true or false")
        return text.lower() == "true"
    if kind == "double":
        try:
            return float(text)
        except ValueError:
            raise ConfigError(name, text, "must be a number") from None
    if kind == "list":
        parts = (part.strip() for part in text.split(","))
        return tuple(dict.fromkeys(parts)) if text else ()
    return text


def _whole(name: str, kind: str, text: str) -> int:
    bits = _BOUNDS[kind]
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ConfigError(name, text, f"must be a whole number ({bits + 1} bit)")
    digits = text.lstrip("+-").lstrip("0")  # Python does not read thousands of them
    value = int(text) if len(digits) < 20 else 1 << 64
    if not -(1 << bits) <= value < 1 << bits:
        raise ConfigError(name, text, f"does not fit into {bits + 1} bits")
    return value


def text_of(value: object) -> str:
    """A value spelt as Kafka's answers spell it (ConfigDef.convertToString)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        mantissa, _, exponent = repr(value).partition("e")
        if not exponent:
            return mantissa
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
    return str(value)


def check(name: str, rule: str, value: object, text: str) -> None:
    """Hold `value` against a rule of config_keys.tsv. Raises ConfigError: what is allowed."""
    if rule:
        kind, _, argument = rule.partition(":")
        _CHECKS.get(kind, _check_range)(name, argument or rule, value, text)


def _check_range(name: str, rule: str, value: object, text: str) -> None:
    """`lo..`, `lo..hi`, or either with `|x` for one more allowed value."""
    assert isinstance(value, (int, float))
    span, _, extra = rule.partition("|")
    low, _, high = span.partition("..")
    if extra and value == float(extra):
        return
    if value < float(low) or (high and value > float(high)):
        allowed = f"between {low} and {high}" if high else f"at least {low}"
        raise ConfigError(name, text, f"must be {allowed}" + (f", or {extra}" if extra else ""))


def _check_in(name: str, allowed: str, value: object, text: str) -> None:
    _one_of(name, allowed.split(","), value, text, lambda word: word)


def _check_in_any_case(name: str, allowed: str, value: object, text: str) -> None:
    _one_of(name, allowed.split(","), value, text, str.upper)


def _one_of(
    name: str, allowed: list[str], value: object, text: str, fold: Callable[[str], str]
) -> None:
    words = value if isinstance(value, tuple) else (str(value),)
    if any(fold(word) not in allowed for word in words):
        what = "a list of" if isinstance(value, tuple) else "one of"
        raise ConfigError(name, text, f"must be {what} {', '.join(allowed)}")


def _check_nonempty(name: str, _: str, value: object, text: str) -> None:
    if value == "":
        raise ConfigError(name, text, "must not be empty")


def _check_replicas(name: str, _: str, value: object, text: str) -> None:
    """partition:broker pairs, or * for all (ThrottledReplicaListValidator)."""
    assert isinstance(value, tuple)
    if value != ("*",) and not all(re.fullmatch(r"[0-9]+:[0-9]+", word) for word in value):
        raise ConfigError(name, text, "must be * or a list of partition:broker")


def _check_reset(name: str, _: str, value: object, text: str) -> None:
    """latest, earliest or by_duration:PnDTnHnMnS (KIP-932)."""
    duration = r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?"
    if value not in ("latest", "earliest") and not re.fullmatch(duration, str(value)):
        raise ConfigError(name, text, "must be latest, earliest or by_duration:PnDTnHnMnS")


def _no_check(name: str, _: str, value: object, text: str) -> None:
    """Any text will do."""


_CHECKS: dict[str, Callable[[str, str, object, str], None]] = {
    "in": _check_in,
    "in*": _check_in_any_case,
    "nonempty": _check_nonempty,
    "nonnull": _no_check,
    "replicas": _check_replicas,
    "reset": _check_reset,
}
