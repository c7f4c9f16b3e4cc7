"""Makes the function that reads one version of one message.

Fixed-size fields wait in a run; a string, array or tagged section ends the run with its length,
and the run is read by one `unpack_from`. Of a compact length only the first byte is in the run:
a longer one is rare and read on by a call. Every length is checked against the bytes left before
anything is made from it; whatever else goes wrong (the end of the frame inside a run, bad UTF-8)
raises by itself and is named afterwards, from the line it came from.

Requests are read as Kafka's broker reads them: bytes behind the message are ignored (clients send
some: librdkafka before 1.4.0 four in ApiVersions v0, up to 2.16 three in Metadata), and bytes of a
string that are not UTF-8 become U+FFFD. Other messages are refused for either.

Every element of every array counts. The function reads FEW_ELEMENTS at most and raises Long at
more; then the same function made as a generator reads the message in steps.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from struct import error as StructError
from typing import Any, NamedTuple

from ottla.wire import primitives
from ottla.wire.compile_source import (
    Source,
    has_records,
    is_numbers,
    literal,
    smallest,
    struct_format,
)
from ottla.wire.errors import FrameError, Long
from ottla.wire.primitives import FEW_ELEMENTS, STEP_ELEMENTS, Buffer
from ottla.wire.schema import FIELDS, FIXED, Field, Message

Decode = Callable[[Buffer, int], Message]
Block = AbstractContextManager[None]

REFUSED = (IndexError, StructError, UnicodeDecodeError, FrameError, Long)
TABLE = 17
"""Arrays of fewer numbers than this have an `unpack_from` ready, found by their count."""


class Atom(NamedTuple):
    """A part of a run: one struct letter and where its value goes."""

    letter: str
    size: int
    target: str
    path: list[str]


def decoder(cls: type[Message], version: int) -> Source:
    """The source of `decode(buf, p)`, which wants a message from p to the end of buf. It raises
    Long when there are more than FEW_ELEMENTS."""
    return _Decoder(cls, version, in_steps=False).source


def long_decoder(cls: type[Message], version: int) -> Source:
    """The source of `decode(buf, p, room)`, a generator: it yields every STEP_ELEMENTS, returns the
    message, and raises FrameError when there are more elements than `room`."""
    return _Decoder(cls, version, in_steps=True).source


def refuse(error: Exception, title: str, paths: tuple[str, ...], pos: int, end: int) -> Exception:
    """What the outside hears of an error inside a decoder."""
    if isinstance(error, Long):
        return error
    trace = error.__traceback__
    field = paths[trace.tb_lineno] if trace is not None else ""
    if isinstance(error, FrameError):
        reason = str(error)
    elif isinstance(error, UnicodeDecodeError):
        reason = f"not UTF-8: {error.reason}"
    else:
        reason = "the frame ends too early"
    where = f"{title}: {field}" if field else title
    return FrameError(f"{where}: {reason} (at byte {pos} of {end})")


class _Decoder:
    def __init__(self, cls: type[Message], version: int, in_steps: bool) -> None:
        self.source = source = Source(cls, version, "decode")
        self.in_steps = in_steps
        self.version = version
        self.compact = source.compact
        self.views = has_records(cls, version)
        self.run: list[Atom] = []
        source.names["bad_count"] = primitives.bad_count if in_steps else primitives.bad_or_long
        for helper in (
            primitives.bad_length,
            primitives.bad_tag_size,
            primitives.byte_length,
            primitives.more_uvarint,
            primitives.read_numbers,
            primitives.read_tag,
            primitives.replaced,
            primitives.skip_tags,
            primitives.string_length,
            primitives.tag_count,
            primitives.trailing,
            refuse,
        ):
            source.names[helper.__name__] = helper
        source.names["REFUSED"] = REFUSED
        with source.block("def decode(buf, p, room):" if in_steps else "def decode(buf, p):"):
            # Slices of bytes are the fastest to decode; records must stay where they are.
            copy = "view = memoryview(buf)" if self.views else "buf = bytes(buf)"
            begin = f"left = {STEP_ELEMENTS}" if in_steps else f"room = {FEW_ELEMENTS}"
            source.emit(copy, "end = len(buf)", begin)
            if in_steps:
                source.emit("if end < 0: yield")  # a generator, with or without arrays
            with source.block("try:"):
                source.emit(f"o = new({source.cls_name(cls)})")
                self.struct(cls, "o")
                self.flush()
                if not source.request:
                    source.emit("if p != end: raise trailing(end - p)")
            with source.block("except REFUSED as error:"):
                source.emit("raise refuse(error, TITLE, PATHS, p, end) from None")
            source.emit("return o")

    def struct(self, cls: type, var: str) -> None:
        """Fill the fields of the struct in the local name `var`."""
        source = self.source
        tagged = []
        for field in FIELDS[cls]:
            with source.about([*source.path, field.name]):
                present = self.version in field.versions
                if present and field.tag is None:
                    self.value(field, f"{var}.{field.name}")
                else:
                    source.emit(f"{var}.{field.name} = {literal(field, source)}")
                    if present:
                        tagged.append(field)
        if self.compact:
            self.tags(tagged, var)

    def value(self, field: Field, target: str) -> None:
        """Read one value into the assignable expression `target`."""
        if field.kind in FIXED:
            letter, size = FIXED[field.kind]
            self.run.append(Atom(letter, size, target, self.source.path))
        elif field.kind == "array":
            (self.numbers if is_numbers(field) else self.array)(field, target)
        elif field.kind == "struct":
            self.nested(field, target)
        else:
            self.text(field, target)

    def flush(self, keep: int = 0) -> None:
        """Read the run. Position p then points after it, less `keep` bytes."""
        source, run, self.run = self.source, self.run, []
        if not run:
            return
        with source.about(source.joint([atom.path for atom in run])):
            size = sum(atom.size for atom in run) - keep
            if len(run) == 1 and run[0].letter == "B":
                source.emit(f"{run[0].target} = buf[p]")
            else:
                unpack = struct_format("".join(atom.letter for atom in run)).unpack_from
                targets = ", ".join(atom.target for atom in run)
                comma = "," if len(run) == 1 else ""
                source.emit(f"{targets}{comma} = {source.name('U', unpack)}(buf, p)")
            if size:
                source.emit(f"p += {size}")

    def prefix(self, letter: str, size: int, keep: int = 0) -> str:
        """End the run with a length or count; gives the local name that holds it."""
        name = self.source.fresh("n")
        if self.compact:
            letter, size = "B", 1
        self.run.append(Atom(letter, size, name, self.source.path))
        self.flush(keep if self.compact else 0)
        return name

    def null(self, field: Field, name: str, target: str, step: str = "") -> Block:
        """Emit what a null of this field does; the block reads what is not null."""
        if self.version not in field.null:
            return nullcontext()
        none = 0 if self.compact else -1
        self.source.emit(f"if {name} == {none}: {target} = None{step}")
        return self.source.block("else:")

    def text(self, field: Field, target: str) -> None:
        """A string, bytes or records. While a compact one is read, p is one byte behind: on the
        last byte of the length, so that p + (length + 1) is where the value ends."""
        source, compact = self.source, self.compact
        n = self.prefix(*(("h", 2) if field.kind == "string" else ("i", 4)), keep=1)
        if compact:
            longer = "string_length" if field.kind == "string" else "byte_length"
            source.emit(f"if {n} > 127: {n}, p = {longer}(buf, p, {n})")
        with self.null(field, n, target, "; p += 1" if compact else ""):
            source.emit(f"q = p + {n}")
            if compact:
                source.emit(f"if not p < q <= end: raise bad_length({n} - 1, end - p - 1)")
            else:
                source.emit(f"if not p <= q <= end: raise bad_length({n}, end - p)")
            start = "p + 1" if compact else "p"
            if field.kind == "string":
                self.decoded(f"buf[{start}:q]", target)
            elif field.kind == "bytes":
                made = f"bytes(buf[{start}:q])" if self.views else f"buf[{start}:q]"
                source.emit(f"{target} = {made}")
            else:
                source.emit(f"{target} = view[{start}:q]")
            source.emit("p = q")

    def decoded(self, part: str, target: str) -> None:
        """The string in `part`, an expression. A `try` costs nothing where all is UTF-8."""
        source = self.source
        made = f"str({part}, 'utf-8')" if self.views else f"{part}.decode()"
        if not source.request:
            source.emit(f"{target} = {made}")
            return
        source.emit(
            f"try: {target} = {made}",
            f"except UnicodeDecodeError: {target} = replaced({part})",
        )

    def numbers(self, field: Field, target: str) -> None:
        """An array of numbers: one unpack, from a table when it is short."""
        source, compact = self.source, self.compact
        assert field.item is not None
        letter, size = FIXED[field.item.kind]
        n = self.prefix("i", 4, keep=1)
        unpackers = _unpackers(letter, compact)
        table = source.name("T", unpackers)
        less = [f"room -= {n} - 1" if compact else f"room -= {n}"]
        if self.in_steps:
            less.append(f"left -= {n} >> 4")
        with source.block(
            f"if {'0 <' if compact else '0 <='} {n} < {len(unpackers)} and room >= 0:"
        ):
            source.emit(*less, f"{target} = list({table}[{n}](buf, p))")
            source.emit(f"p += {size} * {n}" + (f" - {size - 1}" if compact and size > 1 else ""))
        if self.version in field.null:
            with source.block(f"elif {n} == {0 if compact else -1}:"):
                source.emit(f"{target} = None", *(["p += 1"] if compact else []))
        with source.block("else:"):
            if compact:
                source.emit(f"if {n} > 127: {n}, p = byte_length(buf, p, {n})")
            at, count = ("p + 1", f"{n} - 1") if compact else ("p", n)
            source.emit(
                *less,
                f"{target}, p = "
                f"read_numbers(buf, {at}, {count}, {letter!r}, {size}, room, bad_count)",
            )

    def array(self, field: Field, target: str) -> None:
        """An array of structs, strings, bytes or uuids: a loop."""
        source = self.source
        item = field.item
        assert item is not None
        n = self.prefix("i", 4)
        if self.compact:
            source.emit(f"if {n} > 127: {n}, p = more_uvarint(buf, p, {n})")
        with self.null(field, n, target):
            if self.compact:
                source.emit(f"{n} -= 1")
            size = smallest(item, self.version, self.compact)
            items = source.fresh("list")
            source.emit(
                f"room -= {n}",
                f"if not 0 <= {n} * {size} <= end - p or room < 0: "
                f"raise bad_count({n}, {size}, end - p)",
                f"{items} = {target} = []",
            )
            if item.struct is not None and not self.in_steps:
                self.flat(item.struct, n, items, size)
            with source.block(f"for _ in range({n}):"):
                element = source.fresh("o")
                if item.struct is not None:
                    source.emit(f"{element} = new({source.cls_name(item.struct)})")
                    self.struct(item.struct, element)
                else:
                    self.value(item, element)
                self.flush()
                source.emit(f"{items}.append({element})")
                if self.in_steps:
                    source.emit("left -= 1")
                    with source.block("if left <= 0:"):
                        source.emit("yield", f"left = {STEP_ELEMENTS}")

    def flat(self, cls: type, n: str, items: str, size: int) -> None:
        """Read a whole array of structs of fixed size in one go, which takes half the time.

        Should one of them have tagged fields after all, the loop that follows reads the array
        from its start; otherwise there is nothing left for it to do.
        """
        source = self.source
        read = [f for f in FIELDS[cls] if self.version in f.versions and f.tag is None]
        rest = [f for f in FIELDS[cls] if f not in read]
        if any(field.kind not in FIXED for field in read):
            return
        letters = "".join(FIXED[field.kind][0] for field in read) + "B" * self.compact
        unpack = source.name("I", struct_format(letters).iter_unpack)
        names = [source.fresh("x") for _ in letters.replace("16s", "s")]
        names_list = ", ".join(names) + ("," if len(names) == 1 else "")
        element = source.fresh("o")
        with source.block(f"for {names_list} in {unpack}(buf[p:p + {n} * {size}]):"):
            if self.compact:
                source.emit(f"if {names[-1]}: {items}.clear(); break")
            source.emit(f"{element} = new({source.cls_name(cls)})")
            for field, name in zip(read, names, strict=False):
                source.emit(f"{element}.{field.name} = {name}")
            for field in rest:
                source.emit(f"{element}.{field.name} = {literal(field, source)}")
            source.emit(f"{items}.append({element})")
        source.emit(f"else: p += {n} * {size}; {n} = 0")

    def nested(self, field: Field, target: str) -> None:
        """A struct that is a field by itself. One that may be null has a byte before it."""
        source = self.source
        assert field.struct is not None
        make = f"new({source.cls_name(field.struct)})"
        var = source.fresh("o")
        if self.version not in field.null:
            source.emit(f"{var} = {target} = {make}")
            self.struct(field.struct, var)
            return
        flag = source.fresh("n")
        self.run.append(Atom("b", 1, flag, source.path))
        self.flush()
        source.emit(f"if {flag} < 0: {target} = None")
        with source.block("else:"):
            source.emit(f"{var} = {target} = {make}")
            self.struct(field.struct, var)
            self.flush()

    def tags(self, tagged: list[Field], var: str) -> None:
        """The tagged section that ends a struct; most often one byte, zero."""
        source = self.source
        count = source.fresh("t")
        self.run.append(Atom("B", 1, count, [*source.path, "tagged fields"]))
        self.flush()
        with source.about([*source.path, "tagged fields"]):
            tag, stop = source.fresh("tag"), source.fresh("stop")
            with source.block(f"if {count}:"):
                source.emit(
                    f"room -= {count}",
                    *([f"left -= {count}"] if self.in_steps else []),
                    f"if room < 0: raise bad_count({count}, 0, 0)",
                )
                if not tagged:
                    source.emit(f"p = skip_tags(buf, p, {count})")
                    return
                source.emit(f"{count}, p = tag_count(buf, p, {count})", f"{tag} = -1")
                with source.block(f"for _ in range({count}):"):
                    source.emit(f"{tag}, p, {stop} = read_tag(buf, p, {tag})")
                    for field in tagged:
                        with source.block(f"if {tag} == {field.tag}:"):
                            self.tagged(field, f"{var}.{field.name}", tag, stop)
                    source.emit(f"p = {stop}")

    def tagged(self, field: Field, target: str, tag: str, stop: str) -> None:
        """A tagged field we know. It has to end where its size says."""
        with self.source.about([*self.source.path[:-1], field.name]):
            self.value(field, target)
            self.flush()
            self.source.emit(f"if p != {stop}: raise bad_tag_size({tag}, {stop}, p)", "continue")


@cache
def _unpackers(letter: str, compact: bool) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """`unpack_from` for short arrays, by count as read: compact counts are one more than there
    are elements, 0 is null (not in the table's range), and p is on the count: "x" skips it."""
    if not compact:
        return tuple(struct_format(f"{n}{letter}").unpack_from for n in range(TABLE))
    return tuple(struct_format(f"x{max(n - 1, 0)}{letter}").unpack_from for n in range(TABLE + 1))
