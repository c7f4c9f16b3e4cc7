"""How a message is written down: one class for all its versions, one line a field.

    @message(key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest(Message):
        group_id: str = string()
        generation_id: int = int32()
        group_instance_id: str | None = string("3+", null="3+", default=None)

The class becomes a slotted dataclass with keyword construction and a default for every field;
compile.py turns it into functions that read and write it. What the arguments of a field mean, in
the words of Kafka's message definitions (KIP-482):

versions    where the field exists: "3+", "0-7", "5"; left out, in all versions of the message
null        where it may be null (its annotation then says `| None`)
default     what it is when a version lacks it or nobody sets it: 0, "", b"", [] unless given
ignorable   a value other than the default is dropped, not refused, by a version without the field
tag         it is optional and travels in the tagged section under this number

A tagged struct is None when it is not sent, rather than a struct of defaults: a fetch answer has
three of them in each partition and building those would cost more than everything else in it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform, overload

from ottla.wire.primitives import ZERO_UUID, Buffer

T = TypeVar("T")

FIXED = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Types of fixed size: struct letter and bytes."""

NEVER = 0x8000
"""A version that no message reaches: `flexible` of messages that have no flexible version."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message as its specifier describes it."""

    kind: str
    """A key of FIXED, or string, bytes, records, array, struct."""
    versions: range
    null: range
    default: Any
    ignorable: bool
    tag: int | None
    item: "Field | None" = None
    struct: type | None = None
    name: str = ""


class Message:
    """Base of every message. A request and its response share `api_key` and `versions`."""

    __slots__ = ()
    api_key: ClassVar[int]
    """-1 for messages that travel inside others, such as a consumer's subscription."""
    versions: ClassVar[tuple[int, int]]
    """First and last version, both included."""
    flexible: ClassVar[int]
    """First flexible version (compact lengths, tagged fields), or NEVER."""


FIELDS: dict[type, tuple[Field, ...]] = {}
"""The fields of every message and struct, in the order they travel."""


def parse_versions(text: str) -> range:
    """ "3+", "0-7", "5" or "none" as a range; "" is every version."""
    if text == "none":
        return range(0)
    first, dash, last = text.rstrip("+").partition("-")
    start = int(first or 0)
    if dash:
        return range(start, int(last) + 1)
    return range(start, NEVER if text.endswith("+") or not text else start + 1)


@dataclass_transform(kw_only_default=True)
def message(*, key: int = -1, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    """Make a message of a class that derives from Message."""

    def decorate(cls: type[T]) -> type[T]:
        for name in cls.__annotations__:
            if hasattr(Message, name) or name in Message.__annotations__:
                raise TypeError(f"{cls.__name__}.{name} hides an attribute of Message")
        made: Any = struct(cls)
        span = parse_versions(versions)
        made.api_key = key
        made.versions = (span[0], span[-1])
        made.flexible = parse_versions(flexible).start if flexible != "none" else NEVER
        return made  # type: ignore[no-any-return]  # the same class, now with slots

    return decorate


@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Make a struct, the element of an array or a nested value, of a class.

    It behaves like `dataclass(slots=True, kw_only=True)`, which would take a quarter of the
    broker's start for all classes: here `__init__` is compiled for the first instance.
    """
    fields = []
    for name in cls.__annotations__:
        spec = cls.__dict__.get(name)
        if not isinstance(spec, Field):
            raise TypeError(f"{cls.__name__}.{name} has no field specifier")
        fields.append(replace(spec, name=name))
    names = tuple(spec.name for spec in fields)
    body = {key: value for key, value in cls.__dict__.items() if key not in (*names, *_OF_THE_DICT)}
    body |= {
        "__slots__": names,
        "__match_args__": (),
        "__init__": _first_init,
        "__eq__": _equal,
        "__repr__": _represent,
        "__hash__": None,
    }
    made = type(cls.__name__, cls.__bases__, body)
    FIELDS[made] = tuple(fields)
    return cast(type[T], made)


#: What a class gets from having a __dict__ and weak references; one with slots has neither.
_OF_THE_DICT = ("__dict__", "__weakref__")


def _first_init(self: Any, **values: Any) -> None:
    """Compile the class's own __init__, put it in place and go on with it."""
    cls = type(self)
    parameters, lines, names = [], [], {"_unset": object()}
    for spec in FIELDS[cls]:
        name = spec.name
        if callable(spec.default):
            names[f"_make_{name}"] = spec.default
            parameters.append(f"{name}=_unset")
            lines.append(f"self.{name} = _make_{name}() if {name} is _unset else {name}")
        else:
            names[f"_default_{name}"] = spec.default
            parameters.append(f"{name}=_default_{name}")
            lines.append(f"self.{name} = {name}")
    star = ", *, " if parameters else ""
    source = f"def __init__(self{star}{', '.join(parameters)}):\n "
    exec(source + ("\n ".join(lines) or "pass"), names)
    init: Any = names["__init__"]
    cls.__init__ = init
    init(self, **values)


def _equal(self: Any, other: object) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return all(getattr(self, f.name) == getattr(other, f.name) for f in FIELDS[type(self)])


def _represent(self: Any) -> str:
    values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in FIELDS[type(self)])
    return f"{type(self).__name__}({values})"


def _field(
    kind: str,
    versions: str,
    default: Any,
    *,
    null: str = "none",
    ignorable: bool = False,
    tag: int | None = None,
    item: Field | None = None,
    struct: type | None = None,
) -> Any:
    span, nullable = parse_versions(versions), parse_versions(null)
    return Field(kind, span, nullable, default, ignorable, tag, item, struct)


def boolean(
    versions: str = "", *, default: bool = False, ignorable: bool = False, tag: int | None = None
) -> bool:
    value: bool = _field("bool", versions, default, ignorable=ignorable, tag=tag)
    return value


def int8(
    versions: str = "", *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> int:
    value: int = _field("int8", versions, default, ignorable=ignorable, tag=tag)
    return value


def int16(
    versions: str = "", *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> int:
    value: int = _field("int16", versions, default, ignorable=ignorable, tag=tag)
    return value


def uint16(
    versions: str = "", *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> int:
    value: int = _field("uint16", versions, default, ignorable=ignorable, tag=tag)
    return value


def int32(
    versions: str = "", *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> int:
    value: int = _field("int32", versions, default, ignorable=ignorable, tag=tag)
    return value


def int64(
    versions: str = "", *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> int:
    value: int = _field("int64", versions, default, ignorable=ignorable, tag=tag)
    return value


def float64(
    versions: str = "", *, default: float = 0.0, ignorable: bool = False, tag: int | None = None
) -> float:
    value: float = _field("float64", versions, default, ignorable=ignorable, tag=tag)
    return value


def uuid(
    versions: str = "",
    *,
    default: bytes = ZERO_UUID,
    ignorable: bool = False,
    tag: int | None = None,
) -> bytes:
    """Sixteen bytes; `uuid.UUID` would cost more than the rest of the message."""
    value: bytes = _field("uuid", versions, default, ignorable=ignorable, tag=tag)
    return value


@overload
def string(
    versions: str = ..., *, default: str = ..., ignorable: bool = ..., tag: int | None = ...
) -> str: ...
@overload
def string(
    versions: str = ...,
    *,
    null: str,
    default: str | None = ...,
    ignorable: bool = ...,
    tag: int | None = ...,
) -> str | None: ...
def string(
    versions: str = "",
    *,
    null: str = "none",
    default: str | None = "",
    ignorable: bool = False,
    tag: int | None = None,
) -> str | None:
    """UTF-8, at most 32767 bytes."""
    value: str | None = _field("string", versions, default, null=null, ignorable=ignorable, tag=tag)
    return value


@overload
def byte_string(
    versions: str = ..., *, default: bytes = ..., ignorable: bool = ..., tag: int | None = ...
) -> bytes: ...
@overload
def byte_string(
    versions: str = ...,
    *,
    null: str,
    default: bytes | None = ...,
    ignorable: bool = ...,
    tag: int | None = ...,
) -> bytes | None: ...
def byte_string(
    versions: str = "",
    *,
    null: str = "none",
    default: bytes | None = b"",
    ignorable: bool = False,
    tag: int | None = None,
) -> bytes | None:
    """Kafka's type `bytes`: copied out of the frame, so it may be kept."""
    value: bytes | None = _field(
        "bytes", versions, default, null=null, ignorable=ignorable, tag=tag
    )
    return value


def records(versions: str = "", *, null: str = "none", default: Buffer | None = None) -> Any:
    """Record batches. Read: a memoryview of the frame, or None. Written: any buffer or a list of
    buffers, which are handed on as they are."""
    return _field("records", versions, default, null=null)


@overload
def array(
    item: Callable[..., T], versions: str = ..., *, ignorable: bool = ..., tag: int | None = ...
) -> list[T]: ...
@overload
def array(
    item: Callable[..., T],
    versions: str = ...,
    *,
    null: str,
    default: Callable[[], list[T]] | None = ...,
    ignorable: bool = ...,
    tag: int | None = ...,
) -> list[T] | None: ...
def array(
    item: Callable[..., T],
    versions: str = "",
    *,
    null: str = "none",
    default: Callable[[], list[T]] | None = list,
    ignorable: bool = False,
    tag: int | None = None,
) -> list[T] | None:
    """A list of structs (`item` is their class) or of values (`item` is a specifier: `int32`)."""
    element: Any = _field("struct", "", None, struct=item) if isinstance(item, type) else item()
    value: list[T] | None = _field(
        "array", versions, default, null=null, ignorable=ignorable, tag=tag, item=element
    )
    return value


@overload
def nested(item: type[T], versions: str = ..., *, ignorable: bool = ...) -> T: ...
@overload
def nested(item: type[T], versions: str = ..., *, null: str, ignorable: bool = ...) -> T | None: ...
@overload
def nested(item: type[T], versions: str = ..., *, tag: int, ignorable: bool = ...) -> T | None: ...
def nested(
    item: type[T],
    versions: str = "",
    *,
    null: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
) -> T | None:
    """One struct. None by default where it may be null or is tagged (None: not sent)."""
    default: Any = item if null == "none" and tag is None else None
    value: T | None = _field(
        "struct", versions, default, null=null, ignorable=ignorable, tag=tag, struct=item
    )
    return value
