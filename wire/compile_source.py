"""Python source under construction: lines, what each line is about, and the names it uses."""

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from ottla.wire.schema import FIELDS, FIXED, Field, Message


class Source:
    """The text of one function. Every line remembers the field it handles, so that an error can
    name the field by the line it came from, and good input pays nothing for that."""

    def __init__(self, cls: type[Message], version: int, verb: str) -> None:
        self.cls = cls
        self.version = version
        self.compact = version >= cls.flexible
        self.request = cls.__name__.endswith("Request")
        self.title = f"{cls.__name__} v{version}"
        self.verb = verb
        self.names: dict[str, Any] = {"new": object.__new__}
        self.path: list[str] = []
        self._lines: list[str] = []
        self._paths = [""]
        self._depth = 0
        self._count = 0

    def emit(self, *lines: str) -> None:
        """Add lines at the present depth, about the present field."""
        for line in lines:
            self._lines.append("    " * self._depth + line)
            self._paths.append(".".join(self.path))

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines emitted inside belong to the compound statement `head`."""
        self.emit(head)
        self._depth += 1
        yield
        self._depth -= 1

    def joint(self, paths: list[list[str]]) -> list[str]:
        """One path for several fields that are read or written together."""
        names = dict.fromkeys(path[-1] for path in paths if path[:-1] == paths[0][:-1])
        return [*paths[0][:-1], "|".join(names)]

    @contextmanager
    def about(self, path: list[str]) -> Iterator[None]:
        """Lines emitted inside are about the field with this path."""
        self.path, before = path, self.path
        yield
        self.path = before

    def fresh(self, prefix: str) -> str:
        """A local name that nothing else uses."""
        self._count += 1
        return f"{prefix}{self._count}"

    def name(self, prefix: str, value: Any) -> str:
        """The global name under which the function finds `value`."""
        for known, other in self.names.items():
            if other is value:
                return known
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def cls_name(self, cls: type) -> str:
        """The global name of a struct's class: its own, where two do not share it."""
        if self.names.setdefault(cls.__name__, cls) is cls:
            name: str = cls.__name__
            return name
        return self.name(cls.__name__, cls)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def build(self) -> Any:
        """Compile the function called `verb` and give it; its source shows in tracebacks."""
        text = self.text()
        file = f"<{self.verb} {self.title}>"
        self.names["TITLE"] = self.title
        self.names["PATHS"] = tuple(self._paths)
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), self.names)
        return self.names[self.verb]


def struct_format(letters: str) -> Struct:
    return Struct(">" + letters)


def literal(field: Field, source: Source) -> str:
    """The default of a field as an expression that makes a new one each time."""
    if field.default is list:
        return "[]"
    if isinstance(field.default, type):
        return f"{source.cls_name(field.default)}()"
    return repr(field.default)


def is_columns(cls: type, version: int) -> bool:
    """Whether all that travels of a struct is int64, so that an array of it may be Packed."""
    there = [field for field in FIELDS[cls] if version in field.versions]
    return all(field.kind == "int64" and field.tag is None for field in there)


def is_numbers(field: Field) -> bool:
    """Whether an array holds values that one `struct` letter each can read."""
    return field.item is not None and field.item.kind in FIXED and field.item.kind != "uuid"


def has_records(cls: type, version: int) -> bool:
    """Whether a message or struct holds record batches in this version."""
    for field in FIELDS[cls]:
        if version not in field.versions:
            continue
        inner = field.struct if field.item is None else field.item.struct
        if field.kind == "records" or (inner is not None and has_records(inner, version)):
            return True
    return False


def smallest(field: Field, version: int, compact: bool) -> int:
    """The least number of bytes a value of this field takes."""
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if field.kind == "struct":
        if version in field.null:
            return 1
        assert field.struct is not None
        return smallest_struct(field.struct, version, compact)
    if compact:
        return 1
    return 2 if field.kind == "string" else 4


def smallest_struct(cls: type, version: int, compact: bool) -> int:
    fields = (f for f in FIELDS[cls] if version in f.versions and f.tag is None)
    size = sum(smallest(field, version, compact) for field in fields) + compact
    if size == 0:
        raise TypeError(f"{cls.__name__} is empty in v{version}: no count of it can be checked")
    return size
