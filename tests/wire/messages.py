"""Every message and version there is, and how to make up values of them."""

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from hypothesis import strategies as st

from ottla.wire import api
from ottla.wire.compile import encode
from ottla.wire.schema import FIELDS, Field, Message

Special = Callable[[Field], st.SearchStrategy[Any] | None]


def messages() -> list[type[Message]]:
    """Every request and response in wire/api."""
    found = []
    for module in pkgutil.iter_modules(api.__path__, f"{api.__name__}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                found.append(value)
    return found


def versions(cls: type[Message]) -> range:
    return range(cls.versions[0], cls.versions[1] + 1)


MESSAGES = messages()


def each_of(found: list[type[Message]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("cls", found, ids=lambda cls: cls.__name__)


def each_version_of(found: list[type[Message]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("cls", "version"),
        [
            pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
            for cls in found
            for version in versions(cls)
        ],
    )


every_message = each_of(MESSAGES)
every_version = each_version_of(MESSAGES)


def _int(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


_TEXT = st.one_of(
    st.text(max_size=12),
    # Around the lengths at which a compact length takes another byte.
    st.integers(120, 140).map("é".__mul__),
    st.just("x" * 32767),
)

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _int(8),
    "int16": _int(16),
    "uint16": st.integers(0, 65535),
    "int32": _int(32),
    "int64": _int(64),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": _TEXT,
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=300),
}


def _nothing_special(field: Field) -> None:
    return None


def value(field: Field, version: int, special: Special) -> st.SearchStrategy[Any]:
    """Values a field can have in a version that has it."""
    made = special(field)
    if made is None:
        if field.kind == "array":
            assert field.item is not None
            item = value(field.item, version, special)
            # Long enough, now and then, for every way there is to read and write a count.
            few, many = st.lists(item, max_size=3), st.lists(item, min_size=14, max_size=20)
            made = few if field.item.struct else st.one_of(few, many)
        elif field.struct is not None:
            made = instances(field.struct, version, special)
        else:
            made = _VALUES[field.kind]
    if version in field.null or (field.tag is not None and field.kind == "struct"):
        made = st.one_of(st.none(), made)
    return made


def instances(
    cls: type, version: int, special: Special = _nothing_special
) -> st.SearchStrategy[Any]:
    """Structs or messages that a version can carry whole."""
    present = [field for field in FIELDS[cls] if version in field.versions]
    return st.builds(cls, **{field.name: value(field, version, special) for field in present})


def written(message: Message, version: int) -> bytes:
    return b"".join(encode(message, version))


def full(cls: type, version: int, elements: int = 2) -> Any:
    """One value of a message with something in every field: what malformed input is made from."""
    made = {}
    for field in FIELDS[cls]:
        if version in field.versions:
            made[field.name] = _full_value(field, version, elements)
    return cls(**made)


def _full_value(field: Field, version: int, elements: int) -> Any:
    if field.kind == "array":
        assert field.item is not None
        return [_full_value(field.item, version, elements) for _ in range(elements)]
    if field.struct is not None:
        return full(field.struct, version, elements)
    samples = {"bool": True, "string": "name", "bytes": b"data", "records": b"batch"}
    return samples.get(field.kind, bytes(range(16)) if field.kind == "uuid" else 3)
