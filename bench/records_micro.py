"""What one produced batch costs before it is written: checks, CRC, idempotence. Microseconds.

    python bench/records_micro.py

The aim is 2 to 3 us for a small batch of an idempotent producer. Each figure is the best of five
rounds, so that a busy machine spoils it least.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator

from ottla.log.producers import Producers
from ottla.log.validate import Rules, validate
from ottla.wire.codecs import Codec
from ottla.wire.records import (
    Record,
    build_batch,
    crc_ok,
    patch,
    read_header,
    record_heads,
    records,
    walk,
    with_log_append_time,
)

NOW = 1_795_000_000_000


def best(call: Callable[[], object], number: int = 20_000) -> float:
    return min(timeit.repeat(call, number=number, repeat=5)) / number * 1e6


def batch(count: int, size: int, codec: Codec = Codec.none, **options: int) -> bytearray:
    rows = [Record(i, NOW, b"key-%d" % i, b"v" * size) for i in range(count)]
    return build_batch(rows, codec=codec, **options)


def judging() -> Callable[[], None]:
    producers = Producers()
    header = read_header(batch(1, 100, producer_id=7, producer_epoch=0, base_sequence=0))
    offset = 0

    def one() -> None:
        nonlocal offset
        sent = header._replace(base_sequence=offset & 0x7FFFFFFF)
        producers.judge(1, sent)
        producers.record(1, sent, offset, offset - 3, NOW)
        offset += 1

    return one


def large_batches() -> Iterator[tuple[str, float]]:
    rules = Rules(max_message_bytes=2 << 20)
    for size in (16 << 10, 1 << 20):
        large = memoryview(batch(1, size))
        header = read_header(large)
        checked = best(lambda: validate(large, rules, NOW), 500)  # noqa: B023
        yield f"validate, {size >> 10} KiB", checked
        stamped = best(lambda: with_log_append_time(large, header, NOW), 200)  # noqa: B023
        yield f"LogAppendTime, {size >> 10} KiB", stamped


def opening(rules: Rules) -> Iterator[tuple[str, float]]:
    for codec in Codec:
        packed = batch(100, 100, codec)
        opened = best(lambda: validate(packed, rules, NOW), 500)  # noqa: B023
        yield f"open 100 records, {codec.name}", opened


def main() -> None:
    rules = Rules()
    compacted = Rules(compacted=True)
    small = memoryview(batch(1, 100, producer_id=7, producer_epoch=0, base_sequence=0))
    header = read_header(small)
    many = batch(100, 100)
    replace = best(lambda: header._replace(base_sequence=5))
    rows: list[tuple[str, float]] = [
        ("read_header", best(lambda: read_header(small))),
        ("crc_ok, 180 B", best(lambda: crc_ok(small, header))),
        ("patch", best(lambda: patch(small, 0, 0, 0))),
        ("validate, 180 B", best(lambda: validate(small, rules, NOW))),
        ("judge and record", best(judging()) - replace),
        *large_batches(),
        ("validate, 100 records, compacted", best(lambda: validate(many, compacted, NOW), 500)),
        ("a record's head", best(lambda: list(record_heads(many[61:], 100)), 500) / 100),
        ("a record, copied", best(lambda: list(records(many)), 500) / 100),
        ("walk, a batch", best(lambda: list(walk(many + many)), 500) / 2),
        *opening(compacted),
    ]
    for name, figure in rows:
        print(f"{name:34}{figure:10.2f}")


if __name__ == "__main__":
    main()
