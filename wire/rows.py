"""A long array of structs that is written as its elements come.

An answer about thousands of things would otherwise be as many objects at a time, several times its
size, and encoding them at the end one long piece of work. Here a few hundred are written together
and then forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from ottla.wire.compile import encode
from ottla.wire.primitives import Buffer, encode_uvarint
from ottla.wire.schema import FIELDS, NEVER, Field, Message, array, message

CHUNK: Final = 200
"""Elements that are written together, those within them counted."""


class Rows:
    """The elements of an array of structs, anywhere in a message.

        topics = Rows(XResponse, "topics", version)
        topics.add(XTopic(name="a"))                            a whole element, or
        yield from topics.add_of(XTopic(name="b"), "partitions", partitions)
        buffers = topics.within(XResponse(error_code=0))

    The array in the object that `within` is given is empty; other fields are written as they are.
    """

    __slots__ = ("_count", "_shape", "_version", "_waiting", "_weight", "_written", "of")

    def __init__(
        self, of: type[Message], field: str, version: int, *, owner: type | None = None
    ) -> None:
        """`of`: the message; `field`: the array; `owner`: the struct that has it, unless it is the
        message itself."""
        self.of = of
        self._version = version
        hashable: Any = of
        self._shape = _shape(hashable, owner or of, field)
        self._waiting: list[object] = []
        self._weight = 0
        self._written: list[Buffer] = []
        self._count = 0

    def inner(self, field: str) -> Rows:
        """For the array `field` of one of these elements."""
        return Rows(self.of, field, self._version, owner=self._shape.element)

    def add(self, row: object, weight: int = 1) -> None:
        """Add an element. `weight`: how many structs it comes to."""
        self._waiting.append(row)
        self._weight += weight
        if self._weight >= CHUNK:
            self._write()

    def add_with(self, row: object, rows: Rows) -> None:
        """Add an element with `rows`, an `inner`, in their place. The same may be used for many."""
        self._write()
        self._written += rows.within(row)
        self._count += 1

    def add_of(self, row: Any, field: str, parts: Iterable[object]) -> Iterator[None]:
        """Steps that add an element whose array `field`, empty so far, has these parts."""
        parts = iter(parts)
        few: list[object] = []
        for part in parts:
            few.append(part)
            if len(few) == CHUNK:
                break
            yield
        else:
            setattr(row, field, few)
            self.add(row, 1 + len(few))
            yield
            return
        rows = self.inner(field)
        for part in few:
            rows.add(part)
        for part in parts:
            rows.add(part)
            yield
        self.add_with(row, rows)
        yield

    def within(self, row: object) -> list[Buffer]:
        """`row`, the message or struct that has the array, with these elements in it."""
        self._write()
        shape = self._shape
        compact = self._version >= self.of.flexible
        head = _encoded(shape.head, row, self._version)
        if compact:
            head = head[: -len(_NO_TAGS)]
            count = encode_uvarint(self._count + 1)
        else:
            count = self._count.to_bytes(4, "big")
        tail = _encoded(shape.tail, row, self._version)
        return [head + count, *self._written, tail] if tail else [head + count, *self._written]

    def _write(self) -> None:
        rows, self._waiting = self._waiting, []
        self._weight = 0
        if not rows:
            return
        self._count += len(rows)
        data = _encoded(self._shape.elements, _Elements(rows), self._version)
        if self._version >= self.of.flexible:
            self._written.append(data[len(encode_uvarint(len(rows) + 1)) : -len(_NO_TAGS)])
        else:
            self._written.append(data[4:])


#: How a flexible struct ends that has no tagged fields.
_NO_TAGS: Final = b"\0"


class _Elements:
    """In the place of a message with this one field."""

    __slots__ = ("elements",)

    def __init__(self, elements: list[object]) -> None:
        self.elements = elements


class _Shape(NamedTuple):
    """A struct cut in three: what is before an array, its elements, what is behind it."""

    element: type
    head: type[Message]
    elements: type[Message]
    tail: type[Message]


@cache
def _shape(of: type[Any], owner: type, name: str) -> _Shape:
    fields = FIELDS[owner]
    (at,) = (n for n, field in enumerate(fields) if field.name == name)
    found = fields[at]
    assert found.item is not None
    assert found.item.struct is not None
    assert found.tag is None
    tagged = [field for field in fields[:at] if field.tag is not None]
    before = [field for field in fields[:at] if field.tag is None]
    return _Shape(
        found.item.struct,
        _part(of, before),
        _part(of, [array(found.item.struct)], ["elements"]),
        _part(of, [*tagged, *fields[at + 1 :]]),
    )


def _part(of: type[Message], fields: list[Any], names: list[str] | None = None) -> type[Message]:
    """A message of these fields, in the versions of another."""
    found: list[Field] = fields
    called = names or [field.name for field in found]
    body = {"__annotations__": dict.fromkeys(called, Any), **dict(zip(called, found, strict=True))}
    flexible = "none" if of.flexible == NEVER else f"{of.flexible}+"
    made = type(f"{of.__name__}Part", (Message,), body)
    return message(versions=f"{of.versions[0]}-{of.versions[1]}", flexible=flexible)(made)


def _encoded(part: type[Message], row: object, version: int) -> bytes:
    """The fields of `part` as `row` has them."""
    values = {field.name: getattr(row, field.name) for field in FIELDS[part]}
    return b"".join(encode(part(**values), version))
