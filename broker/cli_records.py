"""Records as lines of text and as JSON, in both directions without loss.

A JSON line is an object with `value` and, if wanted, `key`, `headers`, `timestamp` (ms or ISO 8601)
and `partition`; `offset`, which `consume` writes, is allowed and has no effect. Bytes that are not
UTF-8 are base64 under `value_base64` and `key_base64`. Headers are [name, value] pairs or an
object; a name or value that is not UTF-8 is {"base64": ...}. A key or value that is not a string
but an object, a list, a number or a boolean stands for its own JSON text, without blanks.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Final, NamedTuple

from ottla.broker.cli_values import INT32, moment_ms
from ottla.wire.records import NO_TIMESTAMP, Record

Headers = tuple[tuple[bytes, bytes | None], ...]

FIELDS: Final = (
    *("value", "value_base64", "key", "key_base64"),
    *("headers", "timestamp", "partition", "offset"),
)
_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_STRINGS_AND_BLANKS: Final = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\n\r]+')


class Line(NamedTuple):
    """The record that one line of the input stands for; without timestamp: now, without partition:
    by its key."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None


class BadLine(Exception):
    """The line does not stand for a record; the text says why."""


def text_parser(separator: bytes | None, null: bytes | None) -> Callable[[bytes], Line]:
    """A parser of plain lines: VALUE, or with `separator` KEY SEPARATOR VALUE; what equals `null`
    is a null. It raises BadLine."""

    def or_null(data: bytes) -> bytes | None:
        return None if data == null else data

    def keyed(line: bytes) -> Line:
        assert separator is not None
        key, found, value = line.partition(separator)
        if not found:
            raise BadLine(f"has no {shown(separator)} between key and value")
        return Line(or_null(key), or_null(value))

    return (lambda line: Line(None, or_null(line))) if separator is None else keyed


# --------------------------------------------------------------------------------- from JSON


def from_json(line: bytes) -> Line:
    """The record of one JSON line. Raises BadLine."""
    try:
        fields = dict(_members(line.decode()))
    except UnicodeDecodeError:
        raise BadLine("is not UTF-8") from None
    except RecursionError:
        raise BadLine("is not a valid JSON record: it is nested too deeply") from None
    except json.JSONDecodeError as error:
        words = f"{error.msg[:1].lower()}{error.msg[1:]} at column {error.colno}"
        raise BadLine(f"is not a valid JSON record: {words}") from None
    except ValueError as error:
        raise BadLine(f"is not a valid JSON record: {error}") from None
    if "value" not in fields and "value_base64" not in fields:
        raise BadLine(
            'has no value: give "value", "value_base64", or "value": null for a tombstone'
        )
    return Line(
        _content(fields, "key"),
        _content(fields, "value"),
        _headers(fields.get("headers")),
        _timestamp(fields.get("timestamp")),
        _partition(fields.get("partition")),
    )


class _Member(NamedTuple):
    """The value of a JSON object's member, and the text it was written as."""

    value: object
    text: str


def _members(text: str) -> Iterator[tuple[str, _Member]]:
    """The members of a JSON object. Raises BadLine for names that are unknown or repeated,
    ValueError for other text."""
    decoder = JSONDecoder(parse_constant=_refuse_constant)

    def skip(at: int) -> int:
        found = _BLANKS.match(text, at)
        return found.end() if found else at

    def expect(at: int, characters: str) -> str:
        if at >= len(text) or text[at] not in characters:
            there = repr(text[at]) if at < len(text) else "its end"
            raise ValueError(f"{' or '.join(characters)} expected, not {there}, at column {at + 1}")
        return text[at]

    at = skip(0)
    if text[at : at + 1] != "{":
        raise BadLine('is not a JSON object: give {"value": ...}')
    seen: set[str] = set()
    at = skip(at + 1)
    while text[at : at + 1] != "}" or seen:
        expect(at, '"')
        name, at = scanstring(text, at + 1, True)
        if name not in FIELDS:
            raise BadLine(f"has an unknown field {name!r}: it may have {', '.join(FIELDS)}")
        if name in seen:
            raise BadLine(f"has the field {name!r} twice")
        seen.add(name)
        at = skip(at)
        expect(at, ":")
        start = skip(at + 1)
        if start == len(text):
            raise ValueError("it ends where a value is expected")
        value, end = decoder.raw_decode(text, start)
        yield name, _Member(value, text[start:end])
        at = skip(end)
        if expect(at, ",}") == "}":
            break
        at = skip(at + 1)
    if skip(at + 1) != len(text):
        raise ValueError(f"something follows the object at column {skip(at + 1) + 1}")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _content(fields: dict[str, _Member], name: str) -> bytes | None:
    """A key or value: text, base64, or any other JSON as its own text."""
    encoded = fields.get(f"{name}_base64")
    plain = fields.get(name)
    if encoded is not None:
        if plain is not None:
            raise BadLine(f"has both {name} and {name}_base64")
        return _from_base64(encoded.value, f"{name}_base64")
    if plain is None or plain.value is None:
        return None
    if isinstance(plain.value, str):
        return _utf8(plain.value, name)
    compact = _STRINGS_AND_BLANKS.sub(lambda found: found[1] or "", plain.text)
    return _utf8(compact, name)


def _headers(member: _Member | None) -> Headers:
    given = None if member is None else member.value
    if given is None:
        return ()
    if isinstance(given, dict):
        pairs: list[object] = [list(pair) for pair in given.items()]
        if member is not None and len(pairs) < _count_members(member.text):
            raise BadLine("has a header twice: give headers as a list of [name, value] pairs")
    elif isinstance(given, list):
        pairs = given
    else:
        raise BadLine("has headers that are neither a list of [name, value] pairs nor an object")
    found = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise BadLine(f"has a header that is not a [name, value] pair: {json.dumps(pair)}")
        name = _header_bytes(pair[0], "the name of a header")
        if name is None:
            raise BadLine("has a header whose name is null")
        found.append((name, _header_bytes(pair[1], f"header {shown(name)}")))
    return tuple(found)


def _count_members(text: str) -> int:
    pairs: list[int] = []
    json.loads(text, object_pairs_hook=lambda found: pairs.append(len(found)))
    return pairs[-1]  # the outermost object ends last


def _header_bytes(given: object, subject: str) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return _utf8(given, subject)
    if isinstance(given, dict) and list(given) == ["base64"]:
        return _from_base64(given["base64"], subject)
    raise BadLine(f'{subject}: it must be text, null or {{"base64": ...}}')


def _utf8(text: str, subject: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadLine(f"{subject}: half of a surrogate pair is not a character") from None


def _from_base64(given: object, subject: str) -> bytes | None:
    if given is None:
        return None
    try:
        if isinstance(given, str):
            return base64.b64decode(given, validate=True)
    except ValueError:
        pass
    raise BadLine(f"{subject}: it is not base64")


def _timestamp(member: _Member | None) -> int | None:
    if member is None or member.value is None:
        return None
    given = member.value
    if given == NO_TIMESTAMP and isinstance(given, int):
        return NO_TIMESTAMP
    if isinstance(given, (int, str)) and not isinstance(given, bool):
        try:
            return moment_ms(str(given))
        except ValueError:
            pass
    raise BadLine(
        f"timestamp {member.text}: it must be milliseconds since 1970 or a time such as"
        ' "2024-05-01T12:00:00Z"'
    )


def _partition(member: _Member | None) -> int | None:
    if member is None or member.value is None:
        return None
    given = member.value
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= INT32:
        raise BadLine(f"partition {member.text}: it must be a whole number, 0 or more")
    return given


# ----------------------------------------------------------------------------------- to JSON


def to_json(partition: int, record: Record) -> dict[str, object]:
    """A record as `from_json` reads it."""
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [[_header_json(name), _header_json(value)] for name, value in record.headers],
    }


def _field(name: str, data: bytes | None) -> dict[str, str | None]:
    text = _text(data)
    if text is None and data is not None:
        return {f"{name}_base64": base64.b64encode(data).decode()}
    return {name: text}


def _header_json(data: bytes | None) -> object:
    text = _text(data)
    if text is None and data is not None:
        return {"base64": base64.b64encode(data).decode()}
    return text


def _text(data: bytes | None) -> str | None:
    """None for null, and for bytes that are not UTF-8."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def shown(data: bytes) -> str:
    """Bytes in a message: quoted, with what cannot be printed escaped."""
    return repr(data.decode("utf-8", "backslashreplace"))
