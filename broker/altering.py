"""AlterConfigs and IncrementalAlterConfigs of any number of resources: in slices, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from ottla.broker.answers import Encoded
from ottla.broker.config_alter import Resource
from ottla.broker.context import Context, Parked
from ottla.broker.metadata import ResourceType
from ottla.broker.slices import answer_in_slices, reply_in_slices_after
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

R = TypeVar("R", bound=Resource)

#: Settings of one resource, which are looked at in one go. Kafka has some 300 for a broker.
MOST_SETTINGS: Final = 4096


def alter(
    ctx: Context,
    resources: Sequence[R],
    own_of: Callable[[R], Mapping[str, str] | None],
    *,
    validate_only: bool,
    row: type,
    response: type[Message],
) -> Message | Parked:
    """Give resources other settings and answer when that is true.

    `own_of`: what a resource is to have; None where nothing is kept. It may raise KafkaError, and
    is asked again where something it may have looked at has changed meanwhile. `row`, `response`:
    what the answer is made of.
    """
    prepared = ctx.broker.topics.prepare()
    refused: list[KafkaError | None] = []
    rows = Rows(response, "responses", ctx.header.api_version)

    def prepare() -> Iterator[None]:
        nonlocal prepared
        times: dict[tuple[int, str], int] = {}
        for resource in resources:
            named = resource.resource_type, resource.resource_name
            times[named] = times.get(named, 0) + 1
            yield
        while True:
            prepared = ctx.broker.topics.prepare()
            refused.clear()
            for resource in resources:
                kind, name = resource.resource_type, resource.resource_name
                try:
                    if times[kind, name] > 1:
                        raise KafkaError(
                            Error.INVALID_REQUEST, "the request names this resource twice"
                        )
                    if len(resource.configs) > MOST_SETTINGS:
                        raise KafkaError(
                            Error.INVALID_REQUEST,
                            f"{len(resource.configs)} settings of one resource;"
                            f" {MOST_SETTINGS} are the most",
                        )
                    own = own_of(resource)
                except KafkaError as error:
                    refused.append(error)
                else:
                    refused.append(None)
                    if own is not None and not validate_only:
                        prepared.configure(ResourceType(kind), name, own)
                yield
            if prepared.stands():
                return

    def tell() -> Iterator[None]:
        for resource, error in zip(resources, refused, strict=True):
            answer = row(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                error_message=None,
            )
            if error is not None:
                answer.error_code, answer.error_message = error.error, error.message
            rows.add(answer)
            yield

    def finish() -> Parked:
        topics = ctx.broker.topics
        ticket = topics.admit(prepared) if prepared.changes else topics.settled()
        return reply_in_slices_after(ticket, ctx, tell(), lambda: Encoded(rows.within(response())))

    return answer_in_slices(ctx, prepare(), finish)
