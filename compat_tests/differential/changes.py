"""Every request that differs from a valid one in one place: a field, a tagged field, its end."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from compat_tests.raw.schema import Field, Message

UNKNOWN_TAG = {99: b"unknown"}
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


class Change(NamedTuple):
    """A request, and in which place it is not the valid one."""

    place: str
    value: object
    fields: dict[str, Any]
    behind: bytes = b""


def changes(message: Message, version: int, base: dict[str, Any]) -> Iterator[Change]:
    """The valid request first."""
    yield Change("", None, base)
    yield Change("(behind)", b"\0" * 4, base, b"\0" * 4)
    flexible = version in message.flexible
    yield from _of_struct(message.fields, version, flexible, base, base, "")


def _of_struct(
    fields: tuple[Field, ...],
    version: int,
    flexible: bool,
    base: dict[str, Any],
    inside: dict[str, Any],
    path: str,
) -> Iterator[Change]:
    """Changes of the struct `inside`, which is part of `base`."""
    if flexible:
        yield _changed(base, inside, "_tags", UNKNOWN_TAG, f"{path}(tag)")
    for field in fields:
        if version not in field.versions:
            continue
        place, value = f"{path}{field.name}", inside.get(field.name, field.default)
        for other in _others(field, version, value):
            yield _changed(base, inside, field.name, other, place)
        first = value[0] if field.is_array and value else None if field.is_array else value
        if field.fields and isinstance(first, dict):
            # The default of a nested struct is shared: change one that belongs to the request.
            yield from _of_struct(field.fields, version, flexible, base, first, f"{place}.")


def _changed(
    base: dict[str, Any], inside: dict[str, Any], name: str, value: object, place: str
) -> Change:
    missing = object()
    before = inside.get(name, missing)
    inside[name] = value
    fields = copy.deepcopy(base)
    if before is missing:
        del inside[name]
    else:
        inside[name] = before
    return Change(place, value, fields)


def _others(field: Field, version: int, value: Any) -> Iterator[object]:
    """Boundary values of a field that are not the one it has."""
    found = _array(field, version, value) if field.is_array else _single(field, version)
    for other in found:
        if other != value or type(other) is not type(value):
            yield other


def _array(field: Field, version: int, value: Any) -> Iterator[object]:
    yield None
    yield []
    if value:
        yield [*value, *value]
    elif not field.fields:
        yield list(_single(field, version))[-1:]


def _single(field: Field, version: int) -> Iterator[object]:
    if field.type in _BITS:
        top = 1 << _BITS[field.type] - 1
        yield from (-1, 0, 1, 2, top - 1, -top)
    elif field.type == "bool":
        yield from (False, True)
    elif field.type == "string":
        yield from (None, "", "no-such-thing", "not legal ü", "x" * 300)
    elif field.type == "uuid":
        yield from (uuid.UUID(int=0), uuid.UUID(int=7 << 64 | 7))
    elif field.type in ("bytes", "records"):
        yield from (None, b"", b"garbage")
    elif version in field.nullable:
        yield None
