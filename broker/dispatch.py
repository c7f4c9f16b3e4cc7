"""From a frame to a handler and back: once, for every API.

The registry is made of the files in broker/handlers: a new file with an `API` is a new API,
announced by ApiVersions, and nothing else has to know. What a handler raises is turned into an
answer here and nowhere else: KafkaError and trouble with the log through the handler's `on_error`,
a broken frame by closing the connection, anything else is a bug: logged with its traceback,
answered UNKNOWN_SERVER_ERROR.

A request or an answer of many elements is read, handled and written in slices (slices.py); its
connection starts nothing else meanwhile. The usual small one knows nothing of that: it is read and
written by functions that give up at FEW_ELEMENTS.
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Generator, Mapping, Sequence
from importlib import import_module
from struct import Struct
from struct import error as StructError
from types import GeneratorType
from typing import Any, Final

from ottla.broker import handlers
from ottla.broker.answers import Encoded
from ottla.broker.api_names import api_name
from ottla.broker.connection import Connection, Slot
from ottla.broker.context import Api, Broker, CloseConnection, Context
from ottla.broker.deeds import DEEDS
from ottla.broker.loggers import shown
from ottla.log.errors import LogError
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.compile import decode_steps, decoders, encode_few, encode_steps
from ottla.wire.errors import Error, FrameError, KafkaError, Long
from ottla.wire.frame import PREFIX
from ottla.wire.header import RequestHeader, decode_request_header
from ottla.wire.primitives import Buffer
from ottla.wire.schema import Message

_logger = logging.getLogger(__name__)

API_VERSIONS: Final = 18

#: What a long request counts for in the budget while it is handled, in multiples of its frame, and
#: at most in bytes: that many objects are made of it.
_LONG_FACTOR: Final = 8
_LONG_MOST: Final = 32 << 20

_START: Final = Struct(">hhi")  # api_key, api_version, correlation_id: the same in every header
_HEAD: Final = Struct(">ii").pack  # size, correlation_id
_FLEXIBLE_HEAD: Final = Struct(">iix").pack  # and no tagged fields


def load_apis() -> dict[int, Api]:
    """Every API that broker/handlers serves, by key."""
    apis: dict[int, Api] = {}
    for module in pkgutil.iter_modules(handlers.__path__, f"{handlers.__name__}."):
        api: Api = import_module(module.name).API
        key = api.request.api_key
        assert key not in apis, f"two handlers of API {key}"
        assert api.response.api_key == key
        apis[key] = api
    return apis


def announced(apis: Mapping[int, Api]) -> list[ApiVersion]:
    """What ApiVersions says of them, by key."""
    return [
        ApiVersion(
            api_key=key,
            min_version=apis[key].request.versions[0]
            if apis[key].announced_from is None
            else apis[key].announced_from or 0,
            max_version=apis[key].request.versions[1],
        )
        for key in sorted(apis)
    ]


class Route:
    """One version of one API."""

    __slots__ = ("_flexible_response", "ahead", "api", "decoders", "deed", "flexible", "version")

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self.ahead = api.ahead
        #: What is to be logged of its requests, if anything is.
        self.deed = DEEDS.get(api.request.api_key)
        self.decoders = decoders(api.request)
        self.flexible = version >= api.request.flexible
        # A client that does not know yet what we speak has to be able to read the answer.
        self._flexible_response = self.flexible and api.request.api_key != API_VERSIONS

    def frame(self, correlation_id: int, response: Message) -> Sequence[Buffer]:
        """The answer as it goes out: buffers, the first with size and header. Raises Long."""
        if type(response) is Encoded:
            return self._enclosed(correlation_id, [b"", *response.body])
        return self._enclosed(correlation_id, encode_few(response, self.version))

    def _enclosed(self, correlation_id: int, body: list[Buffer]) -> Sequence[Buffer]:
        if self._flexible_response:
            size = sum(map(len, body)) + 5
            body[0] = _FLEXIBLE_HEAD(size, correlation_id) + body[0]
        else:
            size = sum(map(len, body)) + 4
            body[0] = _HEAD(size, correlation_id) + body[0]
        return body

    def reply(self, ctx: Context, slot: Slot, response: Message) -> None:
        """Answer a parked request."""
        if self.deed is not None:
            self.note(ctx, response)
        try:
            buffers = self.frame(ctx.header.correlation_id, response)
        except Long:
            ctx.broker.slices.start(self.write(ctx, slot, response))
        except Exception:
            slot.close(_unanswerable(ctx))
        else:
            slot.fill(buffers)

    def note(self, ctx: Context, response: Message) -> None:
        """Log what the request has changed."""
        assert self.deed is not None
        if not self.deed.changes(ctx.request):
            return
        ctx.broker.slices.run(ctx.broker.deeds.write(self.deed, ctx, self.api.response, response))

    def write(self, ctx: Context, slot: Slot, response: Message) -> Generator[None, None, None]:
        """Answer with a long response, step by step."""
        try:
            steps = encode_steps(response, self.version)
            while not slot.filled:  # else the client has gone
                try:
                    next(steps)
                except StopIteration as end:
                    slot.fill(self._enclosed(ctx.header.correlation_id, end.value))
                    return
                yield
        except Exception:
            slot.close(_unanswerable(ctx))

    def fail(self, ctx: Context, slot: Slot, error: Exception) -> None:
        """Answer a parked request as if its handler had raised `error`."""
        if isinstance(error, CloseConnection):
            slot.close(str(error))
            return
        request, told, on_error = ctx.request, _refusal(ctx, error), self.api.on_error

        def made(response: Message | Exception) -> None:
            if isinstance(response, Message):
                self.reply(ctx, slot, response)
            elif isinstance(response, CloseConnection):
                slot.close(str(response))
            else:
                slot.close(_unanswerable(ctx, response))

        if ctx.is_long:  # so is what is made of it
            ctx.broker.store.aside(lambda: on_error(request, told), made)
            return
        try:
            response = on_error(request, told)
        except Exception as failed:
            made(failed)
        else:
            made(response)


class Dispatcher:
    """Handles one request of one connection at a time; see connection.py for their order."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routes = {
            key << 16 | version: Route(api, version)
            for key, api in broker.apis.items()
            for version in range(api.request.versions[0], api.request.versions[1] + 1)
        }
        #: See connection.py.
        self.ahead = frozenset(key for key, api in broker.apis.items() if api.ahead)

    def handle(self, connection: Connection, frame: Buffer) -> None:
        """Answer, park or refuse the request in `frame`, whose size is still in front. Never
        raises."""
        try:
            key, version, correlation_id = _START.unpack_from(frame, PREFIX)
            route = self._routes.get(key << 16 | version & 0xFFFF)
            if route is None:
                connection.answer(self._unknown_version(key, version, correlation_id))
                return
            api = route.api
            header, body = decode_request_header(frame, PREFIX, route.flexible)
            try:
                request = route.decoders[version](frame, body)
            except Long:
                slot = connection.park(ahead=False)
                steps = decode_steps(api.request, version, frame, body)
                slices = self._broker.slices
                slices.start(self._read(route, connection, slot, header, steps, len(frame)))
                return
            ctx = Context(route, self._broker, connection, header, request)
            try:
                response = api.handle(ctx, request)
                if response.__class__ is GeneratorType:
                    if not self._broker.slices.run(self._take(ctx, response)):
                        ctx.hold()
                elif response is not ctx:
                    self._answer(ctx, response)
            except CloseConnection as error:
                _close(ctx, str(error))
            except Exception as error:
                self._failed(ctx, error)
        except (FrameError, CloseConnection) as error:
            connection.close_in_turn(_concerning(frame, error))
        except StructError:
            connection.close_in_turn(f"a request of {len(frame) - PREFIX} bytes has no header")

    def _read(
        self,
        route: Route,
        connection: Connection,
        slot: Slot,
        header: RequestHeader,
        steps: Generator[None, None, Message],
        size: int,
    ) -> Generator[None, None, None]:
        """Read and handle a long request, step by step."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                request = end.value
                break
            except FrameError as error:
                slot.close(str(error))
                return
            if slot.filled:
                return  # the client has gone
            yield
        del steps  # and with it the frame
        slot.grow(min(_LONG_FACTOR * size, _LONG_MOST))
        ctx = Context(route, self._broker, connection, header, request)
        ctx._held = slot
        yield
        try:
            response = route.api.handle(ctx, request)
        except CloseConnection as error:
            _close(ctx, str(error))
        except Exception as error:
            self._failed(ctx, error)
        else:
            yield from self._take(ctx, response)

    def _take(self, ctx: Context, response: Any) -> Generator[None, None, None]:
        """Take the steps of a handler, if it has any, and answer with what it returns."""
        try:
            if response.__class__ is GeneratorType:
                response = yield from response
            if response is not ctx:
                self._answer(ctx, response)
        except CloseConnection as error:
            _close(ctx, str(error))
        except Exception as error:
            self._failed(ctx, error)

    def _answer(self, ctx: Context, response: Message) -> None:
        slot = ctx._slot or ctx._held
        if slot is not None:
            ctx._route.reply(ctx, slot, response)
            return
        if ctx._route.deed is not None:
            ctx._route.note(ctx, response)
        try:
            buffers = ctx._route.frame(ctx.header.correlation_id, response)
        except Long:
            slot = ctx.hold()
            self._broker.slices.run(ctx._route.write(ctx, slot, response))
        else:
            ctx.connection.answer(buffers)

    def _failed(self, ctx: Context, error: Exception) -> None:
        slot = ctx._slot or ctx._held
        if slot is not None:
            ctx._route.fail(ctx, slot, error)
            return
        try:
            response = ctx._route.api.on_error(ctx.request, _refusal(ctx, error))
            self._answer(ctx, response)
        except CloseConnection as closing:
            _close(ctx, str(closing))
        except Exception:
            _close(ctx, _unanswerable(ctx))

    def _unknown_version(self, key: int, version: int, correlation_id: int) -> Sequence[Buffer]:
        """Only ApiVersions can answer what it cannot read: in version 0, with its own range, from
        which the client picks. Closing instead would lose the client. Anything else is closed as
        Kafka does it: no layout can be guessed."""
        api = self._broker.apis.get(key)
        if key != API_VERSIONS or api is None:
            what = "it is not served" if api is None else "this version was not announced"
            raise CloseConnection(what)
        own = announced({key: api})
        response = ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=own)
        return Route(api, 0).frame(correlation_id, response)


def as_kafka_error(ctx: Context, error: Exception) -> KafkaError:
    """What the client is told of it. The one place where trouble with the log becomes
    KAFKA_STORAGE_ERROR (which clients retry) and a bug UNKNOWN_SERVER_ERROR."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, LogError):
        return KafkaError(Error.KAFKA_STORAGE_ERROR, str(error))
    _logger.error("%s failed", _name(ctx.header), exc_info=error)
    return KafkaError(Error.UNKNOWN_SERVER_ERROR)


def _refusal(ctx: Context, error: Exception) -> KafkaError:
    """What the client is told, which is logged, too."""
    told = as_kafka_error(ctx, error)
    if ctx._route.deed is None:
        ctx.broker.complaints.refused(ctx, told)
    return told


def _concerning(frame: Buffer, error: Exception) -> str:
    """What is wrong with a request that was not understood, with its name as far as that can be
    read."""
    try:
        header, _ = decode_request_header(frame, PREFIX)
    except FrameError:
        return str(error)
    return f"{_name(header)}: {error}"


def _close(ctx: Context, reason: str) -> None:
    """Close the connection instead of answering; also a request that is parked already, which
    nobody else is going to answer."""
    reason = f"{_name(ctx.header)}: {reason}"
    slot = ctx._slot or ctx._held
    if slot is None:
        ctx.connection.close_in_turn(reason)
    else:
        slot.close(reason)


def _unanswerable(ctx: Context, error: Exception | None = None) -> str:
    """Logs the exception (else the one at hand) that kept an answer from being made."""
    _logger.error("no answer could be made to %s", _name(ctx.header), exc_info=error or True)
    return "no answer could be made"


def _name(header: RequestHeader) -> str:
    name = "none" if header.client_id is None else shown(header.client_id)
    return f"{api_name(header.api_key)} version {header.api_version} of client id {name}"
