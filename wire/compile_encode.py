"""Makes the function that writes one version of one message.

As in reading, fixed-size fields wait in a run, which takes in arrays of numbers too and ends with
the length of a string or the count of an array: one `pack` each. Pieces gather in `parts` and
are joined at the end, or where records go between them uncopied.

The function raises Long when it comes to more than FEW_ELEMENTS (numbers do not count: they are
packed at once); the same function made as a generator writes the message in steps.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from ottla.wire import primitives
from ottla.wire.compile_source import (
    Source,
    has_records,
    is_columns,
    is_numbers,
    literal,
    struct_format,
)
from ottla.wire.errors import EncodeError, Long
from ottla.wire.packed import Packed
from ottla.wire.primitives import FEW_ELEMENTS, STEP_ELEMENTS, Buffer, encode_uvarint
from ottla.wire.schema import FIELDS, FIXED, Field, Message

Encode = Callable[[Any], list[Buffer]]

UNFIT = (TypeError, ValueError, AttributeError, StructError, OverflowError)


class Atom(NamedTuple):
    """A part of a run: a struct letter and the expression it packs. For an array of numbers that
    is the array, and `counted` the local name of its count as it travels."""

    letter: str
    value: str
    path: list[str]
    counted: str = ""


def encoder(cls: type[Message], version: int) -> Source:
    """The source of `encode(o)`, which gives the buffers of the message. It raises Long when there
    are more than FEW_ELEMENTS."""
    return _Encoder(cls, version, in_steps=False).source


def long_encoder(cls: type[Message], version: int) -> Source:
    """The source of `encode(o)`, a generator: it yields every STEP_ELEMENTS and returns the
    buffers."""
    return _Encoder(cls, version, in_steps=True).source


def unfit(error: Exception, title: str, paths: tuple[str, ...]) -> EncodeError:
    """What is heard of an error inside an encoder."""
    trace = error.__traceback__
    field = paths[trace.tb_lineno] if trace is not None else ""
    return EncodeError(f"{title}: {field}: {error}")


def absent(value: object, version: int) -> ValueError:
    """The error for a field that is set though the version lacks it."""
    return ValueError(f"{value!r} cannot be sent in version {version}, which has no such field")


class _Encoder:
    def __init__(self, cls: type[Message], version: int, in_steps: bool) -> None:
        self.source = source = Source(cls, version, "encode")
        self.in_steps = in_steps
        self.version = version
        self.compact = source.compact
        self.parts = "parts"
        self.begun = False
        self.pieces: list[tuple[str, list[str]]] = []
        self.run: list[Atom] = []
        for helper in (
            absent,
            primitives.encode_string_length,
            primitives.encode_uvarint,
            unfit,
        ):
            source.names[helper.__name__] = helper
        source.names["ONE_BYTE"] = primitives.ONE_BYTE
        source.names["UNFIT"] = UNFIT
        source.names["Long"] = Long
        records = has_records(cls, version)
        with source.block("def encode(o):"):
            with source.block("try:"):
                counter = f"left = {STEP_ELEMENTS}" if in_steps else f"room = {FEW_ELEMENTS}"
                source.emit(counter)
                if in_steps:
                    source.emit("if left < 0: yield")  # a generator, with or without arrays
                if records:
                    source.emit("out = []")
                self.struct(cls, "o")
                if self.begun:
                    self.gather()
                    source.emit("last = b''.join(parts)")
                else:
                    self.flush()
                    self.literal("last = b''.join((", "))")
                if records:
                    source.emit("if last: out.append(last)", "return out")
                else:
                    source.emit("return [last]")
            with source.block("except UNFIT as error:"):
                source.emit("raise unfit(error, TITLE, PATHS) from error")

    def struct(self, cls: type, var: str) -> None:
        """Write the fields of the struct in the local name `var`."""
        source = self.source
        tagged = []
        for field in FIELDS[cls]:
            with source.about([*source.path, field.name]):
                value = f"{var}.{field.name}"
                if self.version not in field.versions:
                    if not field.ignorable:
                        source.emit(
                            f"if {self.is_set(field, value)}: raise absent({value}, {self.version})"
                        )
                elif field.tag is None:
                    self.value(field, value)
                else:
                    tagged.append(field)
        if self.compact:
            self.tags(sorted(tagged, key=lambda field: field.tag or 0), var)

    def is_set(self, field: Field, value: str) -> str:
        """The condition that a field is not at its default, as an expression."""
        if field.default is None:
            return f"{value} is not None"
        if field.default is list:
            return f"{value} != []" if len(field.null) else value
        if field.default in (0, "", b""):
            return value
        return f"{value} != {literal(field, self.source)}"

    def value(self, field: Field, value: str) -> None:
        """Write the value of an expression."""
        if field.kind in FIXED:
            self.atom(FIXED[field.kind][0], value)
        elif field.kind == "array":
            (self.numbers if is_numbers(field) else self.array)(field, value)
        elif field.kind == "struct":
            self.nested(field, value)
        elif field.kind == "records":
            self.records(field, value)
        else:
            self.text(field, value)

    def atom(self, letter: str, value: str, counted: str = "") -> None:
        self.run.append(Atom(letter, value, self.source.path, counted))

    def piece(self, expression: str) -> None:
        """The bytes of `expression` come next. Pieces wait, so that as many as possible are
        added to `parts` at once."""
        self.pieces.append((expression, self.source.path))

    def flush(self) -> None:
        """Write the run."""
        run, self.run = self.run, []
        if run:
            with self.source.about(self.source.joint([atom.path for atom in run])):
                self.piece(self.packed(run))

    def gather(self) -> None:
        """Write the run and add the waiting pieces: where the flow of control parts or joins."""
        self.flush()
        if not self.pieces:
            return
        if not self.begun:
            self.begun = True
            self.literal("parts = [", "]")
        elif len(self.pieces) == 1:
            self.literal(f"{self.parts}.append(", ")", comma="")
        else:
            self.literal(f"{self.parts} += (", ")")

    def literal(self, begin: str, end: str, comma: str = ",") -> None:
        """Write the waiting pieces between brackets: a line each, for the sake of errors."""
        source, pieces, self.pieces = self.source, self.pieces, []
        with source.block(begin):
            for expression, path in pieces:
                with source.about(path):
                    source.emit(expression + comma)
        source.emit(end)

    def packed(self, run: list[Atom]) -> str:
        """The expression that packs a run."""
        if not any(atom.counted for atom in run):
            if all(atom.letter == "x" for atom in run):
                return repr(bytes(len(run)))
            if len(run) == 1 and run[0].letter == "B":
                return f"ONE_BYTE[{run[0].value}]"
            letters = "".join(atom.letter for atom in run)
            pack = struct_format(letters).pack
            values = ", ".join(atom.value for atom in run if atom.letter != "x")
            return f"{self.source.name('P', pack)}({values})"
        pieces = tuple((atom.letter, bool(atom.counted)) for atom in run)
        table = self.source.name("T", Formats.of(pieces, self.compact))
        counts = ", ".join(atom.counted for atom in run if atom.counted)
        values = ", ".join(
            f"{atom.counted}, *{atom.value}" if atom.counted else atom.value
            for atom in run
            if atom.letter != "x"
        )
        return f"{table}[{counts}]({values})"

    def prefix(self, letter: str, name: str, longer: str = "encode_uvarint") -> None:
        """End the run with the length or count in the local `name`."""
        if not self.compact:
            self.atom(letter, name)
            self.flush()
            return
        source, run, self.run = self.source, self.run, []
        whole = [*run, Atom("B", name, source.path)]
        apart = f"{self.packed(run)} + " if run else ""
        with source.about(source.joint([atom.path for atom in whole])):
            self.piece(f"{self.packed(whole)} if {name} < 128 else {apart}{longer}({name})")

    def measure(self, field: Field, value: str, name: str, size: str, none: str) -> None:
        """Set the local `name` to the length as it travels of what `value` holds."""
        source = self.source
        if self.version in field.null:
            with source.block(f"if {value} is None:"):
                source.emit(f"{name} = {0 if self.compact else -1}", none)
            with source.block("else:"):
                source.emit(*size.split("; "))
        else:
            source.emit(*size.split("; "))

    def text(self, field: Field, value: str) -> None:
        """A string or bytes."""
        source = self.source
        s, n = source.fresh("s"), source.fresh("n")
        code = ".encode()" if field.kind == "string" else ""
        one = " + 1" if self.compact else ""
        source.emit(f"{s} = {value}")
        self.measure(field, s, n, f"{s} = {s}{code}; {n} = len({s}){one}", f"{s} = b''")
        if field.kind == "string":
            self.prefix("h", n, "encode_string_length")
        else:
            self.prefix("i", n)
        self.piece(s)

    def records(self, field: Field, value: str) -> None:
        """Buffers that are handed on; what came before them is joined first."""
        source = self.source
        r, n = source.fresh("r"), source.fresh("n")
        one = " + 1" if self.compact else ""
        source.emit(f"{r} = {value}")
        size = f"{n} = (sum(map(len, {r})) if {r}.__class__ is list else len({r})){one}"
        self.measure(field, r, n, size, f"{r} = ()")
        self.prefix("i", n)
        self.gather()
        with source.block(f"if {n} > {1 if self.compact else 0}:"):
            source.emit("out.append(b''.join(parts))", "parts = []")
            source.emit(f"if {r}.__class__ is list: out += {r}", f"else: out.append({r})")

    def numbers(self, field: Field, value: str) -> None:
        """An array of numbers joins the run."""
        source = self.source
        assert field.item is not None
        a, n = source.fresh("a"), source.fresh("n")
        one = " + 1" if self.compact else ""
        source.emit(f"{a} = {value}")
        self.measure(field, a, n, f"{n} = len({a}){one}", f"{a} = ()")
        self.atom(FIXED[field.item.kind][0], a, n)

    def array(self, field: Field, value: str) -> None:
        """An array of anything else: a loop."""
        source = self.source
        item = field.item
        assert item is not None
        a, n, element = source.fresh("a"), source.fresh("n"), source.fresh("o")
        one = " + 1" if self.compact else ""
        source.emit(f"{a} = {value}")
        self.measure(field, a, n, f"{n} = len({a}){one}", f"{a} = ()")
        self.prefix("i", n)
        self.gather()
        if item.struct is not None and is_columns(item.struct, self.version):
            source.names["Packed"] = Packed
            with source.block(f"if {a}.__class__ is Packed:"):
                source.emit(f"{self.parts}.append({a}.rows({self.compact}))", f"{a} = (); {n} = 0")
        if not self.in_steps:
            source.emit(f"room -= {n}", "if room < 0: raise Long")
        with source.block(f"for {element} in {a}:"):
            if item.struct is not None:
                self.struct(item.struct, element)
            else:
                self.value(item, element)
            self.gather()
            if self.in_steps:
                source.emit("left -= 1")
                with source.block("if left <= 0:"):
                    source.emit("yield", f"left = {STEP_ELEMENTS}")

    def nested(self, field: Field, value: str) -> None:
        """A struct that is a field by itself. One that may be null has a byte before it."""
        source = self.source
        assert field.struct is not None
        var = source.fresh("o")
        source.emit(f"{var} = {value}")
        if self.version not in field.null:
            self.struct(field.struct, var)
            return
        self.atom("b", f"-1 if {var} is None else 1")
        self.gather()
        with source.block(f"if {var} is not None:"):
            self.struct(field.struct, var)
            self.gather()

    def tags(self, tagged: list[Field], var: str) -> None:
        """The tagged section that ends a struct: a zero in the run unless a field is set."""
        source = self.source
        here = [*source.path, "tagged fields"]
        if not tagged:
            self.run.append(Atom("x", "", here))
            return
        count = source.fresh("t")
        tests = [f"({self.is_set(field, f'{var}.{field.name}')})" for field in tagged]
        source.emit(f"{count} = " + " + ".join(f"(1 if {test} else 0)" for test in tests))
        self.run.append(Atom("B", count, here))
        self.gather()
        with source.block(f"if {count}:"):
            for field, test in zip(tagged, tests, strict=True):
                with source.block(f"if {test}:"), source.about([*source.path, field.name]):
                    self.tagged(field, f"{var}.{field.name}")

    def tagged(self, field: Field, value: str) -> None:
        """One tagged field: its value is gathered apart, to learn its size."""
        source, outer = self.source, self.parts
        self.parts = source.fresh("parts")
        source.emit(f"{self.parts} = []")
        self.value(field, value)
        self.gather()
        inner, self.parts = self.parts, outer
        tag = encode_uvarint(field.tag or 0)
        source.emit(
            f"{inner} = b''.join({inner})",
            f"{outer} += {tag!r}, encode_uvarint(len({inner})), {inner}",
        )


class Formats(dict[Any, Callable[..., bytes]]):
    """`pack` for a run with arrays of numbers, by their counts (as they travel): one entry for
    every combination met, up to LIMIT. Replica lists have few lengths."""

    LIMIT = 1024

    def __init__(self, pieces: tuple[tuple[str, bool], ...], compact: bool) -> None:
        super().__init__()
        self.pieces = pieces
        self.compact = compact

    @staticmethod
    @cache
    def of(pieces: tuple[tuple[str, bool], ...], compact: bool) -> "Formats":
        """One table for all runs of the same shape."""
        return Formats(pieces, compact)

    def __missing__(self, key: int | tuple[int, ...]) -> Callable[..., bytes]:
        counts = list(key) if isinstance(key, tuple) else [key]
        letters, prefixes = [">"], []
        index = 0
        for letter, is_array in self.pieces:
            if not is_array:
                letters.append(letter)
                index += letter != "x"
                continue
            count = counts.pop(0)
            size = max(count - self.compact, 0)
            if not self.compact:
                letters.append(f"i{size}{letter}")
            elif count < 128:
                letters.append(f"B{size}{letter}")
            else:
                varint = encode_uvarint(count)
                letters.append(f"{len(varint)}s{size}{letter}")
                prefixes.append((index, varint))
            index += 1 + size
        pack = Struct("".join(letters)).pack
        if prefixes:
            return _with_varints(pack, prefixes)
        if len(self) < self.LIMIT:
            self[key] = pack
        return pack


def _with_varints(
    pack: Callable[..., bytes], prefixes: list[tuple[int, bytes]]
) -> Callable[..., bytes]:
    """`pack`, with the counts at these places written as the varints they are too long for."""

    def packed(*values: Any) -> bytes:
        patched = list(values)
        for index, varint in prefixes:
            patched[index] = varint
        return pack(*patched)

    return packed
