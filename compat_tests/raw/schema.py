"""Requests and responses of any API and version, from Kafka's own message definitions.

The definitions are the JSON files that the package kafka-python ships. Fields are given and read
by Kafka's names in snake_case (`max_wait_ms`); a field left out has the definition's default.
In any struct the key `_tags` adds raw tagged fields: `{"_tags": {99: b"x"}}`.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
import re
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FIXED = {
    "bool": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "uint32": struct.Struct(">I"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
ZERO_UUID = uuid.UUID(int=0)


class Struct:
    """One decoded struct: fields are attributes, but for those that the version does not have."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        self._name = name
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self._name} of this version has no {name}")

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items() if k != "_name")
        return f"{self._name}({shown})"


@dataclass(frozen=True)
class Message:
    """One side of one API."""

    name: str
    key: int
    flexible: Versions
    fields: tuple[Field, ...]

    def encode(self, version: int, values: Mapping[str, Any]) -> bytes:
        return encode_struct(self.fields, version, version in self.flexible, values, self.name)

    def decode(self, version: int, data: bytes) -> Struct:
        """Raises ValueError when bytes are left over or missing."""
        reader = Reader(data)
        result = decode_struct(self.fields, version, version in self.flexible, reader, self.name)
        if reader.position != len(data):
            raise ValueError(
                f"{self.name} v{version}: {len(data) - reader.position} bytes too many"
            )
        return result


@dataclass(frozen=True)
class Versions:
    """A range as the definitions write it: "3", "3-7", "3+" or "none"."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        if text is None or text == "none":
            return cls(1, 0)
        first, _, last = text.replace("+", f"-{2**15}").partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


@dataclass(frozen=True)
class Field:
    name: str
    type: str  # of the element when `is_array`; "struct" for nested ones
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    default: Any
    fields: tuple[Field, ...]


@functools.cache
def request(api: str) -> Message:
    return _load(f"{api}Request")


@functools.cache
def response(api: str) -> Message:
    return _load(f"{api}Response")


def _load(name: str) -> Message:
    folder = importlib.resources.files("kafka.protocol.schemas.resources")
    text = folder.joinpath(f"{name}.json").read_text()
    raw = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    shared = {struct["name"]: struct["fields"] for struct in raw.get("commonStructs", ())}
    fields = tuple(_field(one, shared) for one in raw["fields"])
    return Message(name, raw["apiKey"], Versions.parse(raw["flexibleVersions"]), fields)


def _field(raw: Mapping[str, Any], shared: Mapping[str, Any]) -> Field:
    element = raw["type"].removeprefix("[]")
    is_array = element != raw["type"]
    is_struct = element[0].isupper()
    inner = raw.get("fields") or (shared[element] if is_struct else ())
    nested = tuple(_field(one, shared) for one in inner)
    return Field(
        name=snake_case(raw["name"]),
        type="struct" if is_struct else element,
        is_array=is_array,
        versions=Versions.parse(raw["versions"]),
        nullable=Versions.parse(raw.get("nullableVersions")),
        tag=raw.get("tag"),
        tagged=Versions.parse(raw.get("taggedVersions")),
        default=_default(element, is_array, nested, raw.get("default")),
        fields=nested,
    )


def _default(kind: str, is_array: bool, nested: tuple[Field, ...], given: Any) -> Any:
    if given == "null":
        return None
    if is_array:
        return []
    if kind == "bool":
        return given in (True, "true")
    if kind == "float64":
        return float(given or 0)
    if kind in FIXED:
        return int(str(given or 0), 0)
    if kind == "uuid":
        return ZERO_UUID
    if kind in ("bytes", "records"):
        return b""
    if nested:
        return {}
    return given or ""


def snake_case(name: str) -> str:
    """`TimeoutMs` and `timeoutMs` to `timeout_ms`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


# --- writing


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def encode_struct(
    fields: Sequence[Field], version: int, flexible: bool, values: Mapping[str, Any], name: str = ""
) -> bytes:
    known = {field.name for field in fields} | {"_tags"}
    if unknown := values.keys() - known:
        raise TypeError(f"{name}: no field {sorted(unknown)}, only {sorted(known)}")
    out = bytearray()
    tags: dict[int, bytes] = dict(values.get("_tags", {}))
    for field in fields:
        if version not in field.versions:
            continue
        value = values.get(field.name, field.default)
        if version in field.tagged:
            assert field.tag is not None
            if value != field.default:
                tags[field.tag] = _encode(field, version, flexible, value)
        else:
            out += _encode(field, version, flexible, value)
    if flexible:
        out += unsigned_varint(len(tags))
        for tag, data in sorted(tags.items()):
            out += unsigned_varint(tag) + unsigned_varint(len(data)) + data
    return bytes(out)


def _encode(field: Field, version: int, flexible: bool, value: Any) -> bytes:
    if not field.is_array:
        return _encode_one(field, version, flexible, value)
    if value is None:
        return b"\0" if flexible else b"\xff\xff\xff\xff"
    count = unsigned_varint(len(value) + 1) if flexible else struct.pack(">i", len(value))
    return count + b"".join(_encode_one(field, version, flexible, one) for one in value)


def _encode_one(field: Field, version: int, flexible: bool, value: Any) -> bytes:
    if field.type in FIXED:
        return FIXED[field.type].pack(value)
    if field.type == "string":
        return compact_string(value) if flexible else string(value)
    if field.type == "uuid":
        return bytes((value or ZERO_UUID).bytes)
    if field.type in ("bytes", "records"):
        if value is None:
            return b"\0" if flexible else b"\xff\xff\xff\xff"
        return (
            unsigned_varint(len(value) + 1) if flexible else struct.pack(">i", len(value))
        ) + bytes(value)
    if value is None:
        return b"\xff"
    presence = b"\x01" if version in field.nullable and not field.is_array else b""
    return presence + encode_struct(field.fields, version, flexible, value, field.name)


# --- reading


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise ValueError(f"{size} bytes wanted at {self.position} of {len(self.data)}")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def fixed(self, kind: str) -> Any:
        packing = FIXED[kind]
        return packing.unpack(self.take(packing.size))[0]

    def unsigned_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def length(self, flexible: bool, kind: str) -> int:
        """-1 for null."""
        return self.unsigned_varint() - 1 if flexible else int(self.fixed(kind))


def decode_struct(
    fields: Sequence[Field], version: int, flexible: bool, reader: Reader, name: str
) -> Struct:
    values: dict[str, Any] = {}
    tagged = {}
    for field in fields:
        if version not in field.versions:
            continue
        if version in field.tagged:
            values[field.name] = field.default
            tagged[field.tag] = field
        else:
            values[field.name] = _decode(field, version, flexible, reader)
    if flexible:
        for _ in range(reader.unsigned_varint()):
            tag, size = reader.unsigned_varint(), reader.unsigned_varint()
            data = Reader(reader.take(size))
            if tag in tagged:
                values[tagged[tag].name] = _decode(tagged[tag], version, flexible, data)
            else:
                values.setdefault("_tags", {})[tag] = data.data
    return Struct(name, values)


def _decode(field: Field, version: int, flexible: bool, reader: Reader) -> Any:
    if not field.is_array:
        return _decode_one(field, version, flexible, reader)
    count = reader.length(flexible, "int32")
    if count < 0:
        return None
    return [_decode_one(field, version, flexible, reader) for _ in range(count)]


def _decode_one(field: Field, version: int, flexible: bool, reader: Reader) -> Any:
    if field.type in FIXED:
        return reader.fixed(field.type)
    if field.type == "uuid":
        return uuid.UUID(bytes=reader.take(16))
    if field.type == "string":
        size = reader.length(flexible, "int16")
        return None if size < 0 else reader.take(size).decode()
    if field.type in ("bytes", "records"):
        size = reader.length(flexible, "int32")
        return None if size < 0 else reader.take(size)
    if version in field.nullable and not field.is_array and reader.fixed("int8") < 0:
        return None
    return decode_struct(field.fields, version, flexible, reader, field.name)
