"""Who changed what: lines about requests that create, alter or delete, and about those refused.

Each request is put beside its answer, as its client reads it, so there is nothing to be done in a
handler, and a line says what became true. Names are put together, a hundred or so in a line; a
request of thousands is written in slices.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.broker.answers import Encoded
from ottla.broker.complaints import Allowance
from ottla.broker.config import is_secret
from ottla.broker.config_alter import Op
from ottla.broker.loggers import shown
from ottla.broker.metadata import ResourceType
from ottla.wire.compile import decode_steps
from ottla.wire.errors import Error
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.broker.clock import Clock
    from ottla.broker.context import Context

_logger = logging.getLogger(__name__)

#: A line ends when it holds so many characters.
LINE_CHARS: Final = 4000
#: So many settings of one resource are named; there are not many more.
SETTINGS: Final = 60


class Row(NamedTuple):
    """What became of one thing that a request names."""

    name: str
    error: int
    #: What more there is to say of it if it was done.
    detail: str = ""


class Deed(NamedTuple):
    """One API."""

    #: The words in front of the names.
    done: str
    #: rows(ctx, request, response)
    rows: Callable[[Any, Any, Any], Iterable[Row]]
    #: Whether a request is one to speak of: it asks for a change.
    changes: Callable[[Any], bool] = bool
    #: What it is about may be done again and again, by programs: few lines about each name.
    often: bool = False


def _in_earnest(request: Any) -> bool:
    return not request.validate_only


def _created(ctx: Context, request: Any, response: Any) -> Iterable[Row]:
    asked = {topic.name: topic for topic in request.topics}
    return (
        Row(one.name, one.error_code, _as_created(ctx, asked.get(one.name)))
        for one in response.topics
    )


def _as_created(ctx: Context, topic: Any) -> str:
    if topic is None:
        return ""
    there = ctx.broker.topics.get(topic.name)
    parts = [] if there is None else [f"partitions={len(there.partitions)}"]
    settings = topic.configs[:SETTINGS]
    parts += [_setting(ResourceType.TOPIC, one.name, "=", one.value) for one in settings]
    return " ".join(parts) + _more(topic.configs)


def _setting(kind: int, name: str, op: str, value: str | None) -> str:
    hidden = kind == ResourceType.BROKER and is_secret(name)
    return f"{shown(name)}{op}{'[hidden]' if hidden else shown(value or '')}"


def _more(settings: Sequence[Any]) -> str:
    return f" and {len(settings) - SETTINGS} more" if len(settings) > SETTINGS else ""


def _deleted(ctx: Context, request: Any, response: Any) -> Iterable[Row]:
    return (Row(one.name or one.topic_id.hex(), one.error_code) for one in response.responses)


def _grown(ctx: Context, request: Any, response: Any) -> Iterable[Row]:
    counts = {topic.name: topic.count for topic in request.topics}
    return (
        Row(one.name, one.error_code, f"{counts.get(one.name)} in all") for one in response.results
    )


_OPS: Final = {Op.SET: "=", Op.DELETE: " removed", Op.APPEND: "+=", Op.SUBTRACT: "-="}


def _altered(ctx: Context, request: Any, response: Any) -> Iterable[Row]:
    asked = {(one.resource_type, one.resource_name): one.configs for one in request.resources}
    return (
        Row(
            _resource(one.resource_type, one.resource_name),
            one.error_code,
            " ".join(
                _setting(
                    one.resource_type,
                    each.name,
                    _OPS.get(getattr(each, "config_operation", Op.SET), "?"),
                    each.value,
                )
                for each in asked.get((one.resource_type, one.resource_name), ())[:SETTINGS]
            )
            + _more(asked.get((one.resource_type, one.resource_name), ())),
        )
        for one in response.responses
    )


def _resource(kind: int, name: str) -> str:
    try:
        words = ResourceType(kind).name.lower().replace("_", " ")
    except ValueError:
        words = f"resource of type {kind}"
    return f"{words} {name}" if name else f"every {words}"


def _emptied(ctx: Context, request: Any, response: Any) -> Iterator[Row]:
    for topic in response.topics:
        done = [one for one in topic.partitions if not one.error_code]
        for code in {one.error_code for one in topic.partitions if one.error_code}:
            yield Row(topic.name, code)
        if done:
            starts = " ".join(f"{one.partition_index}:{one.low_watermark}" for one in done[:20])
            more = f" and {len(done) - 20} more" if len(done) > 20 else ""
            yield Row(topic.name, 0, f"first offsets by partition {starts}{more}")


def _ungrouped(ctx: Context, request: Any, response: Any) -> Iterable[Row]:
    return (Row(one.group_id, one.error_code) for one in response.results)


def _forgotten(ctx: Context, request: Any, response: Any) -> Iterator[Row]:
    if response.error_code:
        yield Row(request.group_id, response.error_code)
    for topic in response.topics:
        for one in topic.partitions:
            yield Row(_offset(request.group_id, topic.name, one.partition_index), one.error_code)


def _offset(group_id: str, topic: str, index: int) -> str:
    return f"group {shown(group_id)}, {shown(topic)}-{index}"


def _outsider(request: Any) -> bool:
    """A member of the group has not sent it: a reset, or a program that does not join."""
    return not request.member_id and request.generation_id_or_member_epoch < 0


def _set(ctx: Context, request: Any, response: Any) -> Iterator[Row]:
    for topic in request.topics:
        known = None if topic.name else ctx.broker.topics.by_id(topic.topic_id)
        name = topic.name or (known.name if known else topic.topic_id.hex())
        places = [f"{one.partition_index}:{one.committed_offset}" for one in topic.partitions[:20]]
        more = len(topic.partitions) - len(places)
        detail = f"{shown(name)} {' '.join(places)}" + (f" and {more} more" if more else "")
        yield Row(f"group {shown(request.group_id)}", 0, detail)


def _features(ctx: Context, request: Any, response: Any) -> Iterable[Row]:
    codes = {one.feature: one.error_code for one in response.results}
    return (
        Row(
            one.feature,
            codes.get(one.feature, response.error_code),
            f"level {one.max_version_level}",
        )
        for one in request.feature_updates
    )


DEEDS: Final = {
    8: Deed("offsets set from outside the group", _set, _outsider, often=True),
    19: Deed("topics created", _created, _in_earnest),
    20: Deed("topics deleted", _deleted),
    21: Deed("records deleted", _emptied, often=True),
    33: Deed("settings replaced", _altered, _in_earnest),
    37: Deed("partitions added", _grown, _in_earnest),
    42: Deed("groups deleted", _ungrouped),
    44: Deed("settings altered", _altered, _in_earnest),
    47: Deed("offsets deleted", _forgotten),
    57: Deed("features altered", _features, _in_earnest),
}


class Deeds:
    """Writes the lines."""

    def __init__(self, clock: Clock) -> None:
        #: By client. Each line may name a hundred topics, so that this is much for an honest one.
        self._lines = Allowance(clock, (200, 2000), (2000, 500))
        #: By name, of what is done again and again.
        self._often = Allowance(clock, (3, 600_000), (1000, 1000))

    def write(
        self, deed: Deed, ctx: Context, response_type: type[Message], response: Message
    ) -> Iterator[object]:
        """Write, step by step. `response`: also one that is bytes already."""
        if not _logger.isEnabledFor(logging.INFO):
            return
        try:
            if isinstance(response, Encoded):
                data = b"".join(response.body)
                steps = decode_steps(response_type, ctx.header.api_version, data, 0, len(data))
                response = yield from steps
            yield from self._write(deed, ctx, deed.rows(ctx, ctx.request, response))
        except Exception:
            _logger.exception("a request of %s could not be described", ctx.client)

    def topics_made(self, ctx: Context, names: Sequence[str]) -> None:
        """Topics were made because a client asked about them."""
        left = [shown(name) for name in names]
        while left:
            line, left = left[:100], left[100:]
            self._flush(line, "topics created at the first question of", ctx, 0)

    def _write(self, deed: Deed, ctx: Context, rows: Iterable[Row]) -> Iterator[None]:
        done: list[str] = []
        refused: list[str] = []
        for row in rows:
            if row.error:
                refused.append(f"{shown(row.name)} {_error(row.error)}")
            else:
                more = self._often.take(row.name) if deed.often else ""
                if more is not None:
                    detail = f" ({row.detail})" if row.detail else ""
                    done.append(f"{shown(row.name)}{detail}{more}")
            self._flush(done, f"{deed.done} by", ctx, LINE_CHARS)
            self._flush(refused, f"refused {ctx.api} of", ctx, LINE_CHARS)
            yield
        self._flush(done, f"{deed.done} by", ctx, 0)
        self._flush(refused, f"refused {ctx.api} of", ctx, 0)

    def _flush(self, names: list[str], words: str, ctx: Context, least: int) -> None:
        """Write a line of `names` and empty the list, if it is long enough."""
        if not names or (least and sum(map(len, names)) < least):
            return
        more = self._lines.take(ctx.client_host)
        if more is not None:
            _logger.info("%s %s: %s%s", words, ctx.client, ", ".join(names), more)
        names.clear()


def _error(code: int) -> str:
    try:
        return Error(code).name
    except ValueError:
        return f"error {code}"
