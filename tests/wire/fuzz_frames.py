"""Bytes no client would send, in search of a decoder that does anything but refuse them.

    python -m tests.wire.fuzz_frames [--runs 200000] [--seed 1]     mutations of real messages
    python -m tests.wire.fuzz_frames --atheris [libFuzzer options]  guided by coverage

One input is two bytes that pick message and version, then the message. It must be refused with a
FrameError, or read; what was read must be writable, and reading that must give the same again.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module

from tests.wire.messages import MESSAGES, full, versions, written

from ottla.wire.compile import decode
from ottla.wire.errors import FrameError
from ottla.wire.frame import split
from ottla.wire.header import decode_request_header
from ottla.wire.schema import Message

TARGETS = [(cls, version) for cls in MESSAGES for version in versions(cls)]
#: Lengths, counts and tags at which something changes.
PIECES = [
    b"",
    b"\0",
    b"\1",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x00\x00\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x00",
    b"\x01\x00\x00",
    b"\x02\x05\x01\x00\x05\x01\x00",
    b"\xed\xa0\x80",
]


def check(cls: type[Message], version: int, data: bytes) -> bool:
    """Try one input; whether it was a message. Raises what a decoder must not do."""
    try:
        message = decode(cls, version, bytearray(data))
    except FrameError:
        return False
    again = decode(cls, version, written(message, version))
    # A float may be NaN, which differs from itself, but not in its bytes.
    assert again == message or written(again, version) == written(message, version), (
        f"{cls.__name__} v{version}: {message} became {again}"
    )
    return True


def check_all(data: bytes) -> None:
    """Try an input as message, as frames and as a header."""
    if len(data) >= 2:
        cls, version = TARGETS[int.from_bytes(data[:2], "big") % len(TARGETS)]
        check(cls, version, data[2:])
    for flexible in (False, True):
        with suppress(FrameError):
            decode_request_header(data, 0, flexible)
    with suppress(FrameError):
        for frame in split(data, 1 << 20):
            assert len(frame) <= len(data)


def mutations(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Variants of a message, without end."""
    while True:
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
            piece = rng.choice(PIECES) if rng.random() < 0.7 else rng.randbytes(rng.randint(1, 4))
            start = rng.randint(0, len(changed))
            end = start + (len(piece) if rng.random() < 0.6 else rng.randint(0, 4))
            changed[start:end] = piece
        yield bytes(changed)


def run(runs: int, seed: int) -> tuple[int, int]:
    """Try `runs` mutations, spread over all messages: how many were tried, and how many read."""
    rng = random.Random(seed)
    samples = [mutations(written(full(cls, version), version), rng) for cls, version in TARGETS]
    read = 0
    for index in range(runs):
        target = index % len(TARGETS)
        cls, version = TARGETS[target]
        data = next(samples[target])
        try:
            read += check(cls, version, data)
            check_all(data)
        except Exception as error:
            error.add_note(f"{cls.__name__} v{version}, seed {seed}: {data.hex()}")
            raise
    return runs, read


def main(arguments: list[str]) -> int:
    if "--atheris" in arguments:
        atheris = import_module("atheris")  # not in the test extra: it has no wheel for everybody
        # Compile everything first: what is generated is what coverage is wanted of.
        for cls, version in TARGETS:
            check(cls, version, b"")
        atheris.instrument_all()
        arguments.remove("--atheris")
        atheris.Setup([sys.argv[0], *arguments], check_all)
        atheris.Fuzz()
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args(arguments)
    tried, read = run(options.runs, options.seed)
    print(f"{tried} inputs, {read} of them messages, seed {options.seed}: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
