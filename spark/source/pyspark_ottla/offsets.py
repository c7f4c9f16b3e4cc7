"""Where reading begins and ends: the options' text, and offsets as Spark's checkpoint keeps them.

An offset of the stream is `{"topic": {"0": 23, "1": 7}}`, as the Java connector writes it: the
next record to read of each partition. So a query's progress reads alike with both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyspark_ottla.errors import BadOption
from pyspark_ottla.options import READ_BATCH, Options

EARLIEST: Final = -2
LATEST: Final = -1
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


#: The next offset of each partition.
Offsets = dict[Partition, int]


def to_json(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """As Spark keeps it."""
    found: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.number)] = offsets[partition]
    return found


def from_json(offset: Mapping[str, Mapping[str, int]]) -> Offsets:
    """What Spark hands back."""
    return {
        Partition(topic, int(number)): int(value)
        for topic, numbers in offset.items()
        for number, value in numbers.items()
    }


class Position(NamedTuple):
    """Where to begin or to end: one of the three is not None.

    everywhere: EARLIEST or LATEST. offsets: of all partitions, with EARLIEST and LATEST among
    them. times: milliseconds since 1970 of some partitions, or of all (`everywhere_time`).
    """

    option: str
    everywhere: int | None = None
    offsets: Mapping[Partition, int] | None = None
    times: Mapping[Partition, int] | None = None
    everywhere_time: int | None = None


def starting(options: Options) -> Position:
    """Where reading begins. startingTimestamp wins over startingOffsetsByTimestamp over
    startingOffsets, as in the connector. Raises BadOption."""
    batch = options.use == READ_BATCH
    position = _position(options, "starting", EARLIEST if batch else LATEST)
    strategy = options.get("startingOffsetsByTimestampStrategy")
    if strategy is not None and strategy.strip().lower() not in ("error", "latest"):
        raise BadOption("startingOffsetsByTimestampStrategy", "is neither error nor latest")
    if batch:
        _refuse(position, LATEST, "a batch cannot begin at the end: use offsets or earliest")
    return position


def ending(options: Options) -> Position:
    """Where a batch ends, exclusive. Raises BadOption."""
    position = _position(options, "ending", LATEST)
    _refuse(position, EARLIEST, "a batch cannot end at the beginning: use offsets or latest")
    return position


def no_match_is_latest(options: Options) -> bool:
    """What a starting timestamp behind the last record means (an error, unless said)."""
    return (options.get("startingOffsetsByTimestampStrategy") or "").strip().lower() == "latest"


def assigned(text: str) -> list[Partition]:
    """The partitions of option `assign`: {"topic": [0, 1]}. Raises BadOption."""
    shape = 'is not like {"topicA":[0,1],"topicB":[2]}'
    found = [
        Partition(topic, _whole("assign", number, 0))
        for topic, numbers in _object("assign", text, shape).items()
        for number in _list(numbers, shape)
    ]
    if not found:
        raise BadOption("assign", "names no partition")
    return sorted(set(found))


def check_complete(position: Position, partitions: Iterable[Partition]) -> None:
    """Offsets must be given for exactly the partitions that are read. Raises BadOption."""
    wanted, given = set(partitions), set(position.offsets or {})
    if wanted != given:
        listed = ", ".join(map(str, sorted(wanted ^ given)))
        what = "are missing" if wanted - given else "are not read"
        raise BadOption(
            position.option,
            f"give the offsets of all partitions, -2 for earliest, -1 for latest: {listed} {what}",
        )


def _position(options: Options, side: str, default: int) -> Position:
    name = f"{side}Timestamp"
    if options.get(name) is not None:
        return Position(name, everywhere_time=options.number(name, least=0))
    name = f"{side}OffsetsByTimestamp"
    text = options.get(name)
    if text is not None:
        return Position(name, times=_by_partition(name, text, least=0))
    name = f"{side}Offsets"
    text = options.get(name)
    if text is None:
        return Position(name, everywhere=default)
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return Position(name, everywhere=word)
    return Position(name, offsets=_by_partition(name, text, least=EARLIEST))


def _refuse(position: Position, value: int, reason: str) -> None:
    if position.everywhere == value or value in (position.offsets or {}).values():
        raise BadOption(position.option, reason)


def _by_partition(option: str, text: str, least: int) -> dict[Partition, int]:
    shape = 'is not like {"topicA":{"0":23,"1":-2}}' if least < 0 else 'is not like {"t":{"0":1}}'
    found = {}
    for topic, numbers in _object(option, text, shape).items():
        if not isinstance(numbers, dict):
            raise BadOption(option, f"{text!r} {shape}")
        for number, value in numbers.items():
            partition = Partition(topic, _whole(option, number, 0))
            found[partition] = _whole(option, value, least)
    return found


def _object(option: str, text: str, shape: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadOption(option, f"{text!r} {shape}")
    return found


def _list(numbers: object, shape: str) -> list[object]:
    if not isinstance(numbers, list):
        raise BadOption("assign", shape)
    return numbers


def _whole(option: str, value: object, least: int) -> int:
    try:
        number = int(value) if isinstance(value, int | str) else None
    except ValueError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise BadOption(option, f"{value!r} is no whole number from {least} up")
    return number
