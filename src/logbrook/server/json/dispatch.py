"""From a JSON frame to the handler of its request, and from the handler's answer to a response frame.

A LogbrookError that a handler raises becomes an error frame, and the connection stays open.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import CoroutineType
from typing import Any, NamedTuple, TypeAlias

from logbrook.model import LogbrookError
from logbrook.model.security import ANONYMOUS, SecurityProtocol
from logbrook.protocol.encoding import ResponsePieces
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.framing import ReceiveBuffers
from logbrook.protocol.json_frames import (
    ANSWER_BIT,
    ERROR_TYPE,
    InvalidRequestError,
    JsonFrameReader,
    RequestType,
    decode_object,
    encode_frame,
)
from logbrook.protocol.json_requests import (
    Authenticate,
    CreateTopic,
    Fetch,
    MetricsFetch,
    Request,
    read_id,
    read_request,
)
from logbrook.server.advertised import JSON_LISTENER, needs_authentication
from logbrook.server.api import RequestContext
from logbrook.server.errors import error_code
from logbrook.server.json import access, fetch, handlers
from logbrook.server.json.errors import error_object, json_error
from logbrook.server.metrics.scrape import MetricsPages, RunningBroker
from logbrook.server.probe import ServerProbe
from logbrook.server.security.certificates import certificate_principal, parse_mapping_rules
from logbrook.server.services import Services
from logbrook.server.session import ConnectionSession

# An object, its JSON text, or the error that becomes an error frame.
JsonAnswer: TypeAlias = Mapping[str, Any] | str | LogbrookError
JsonHandler: TypeAlias = Callable[[Services, Any, RequestContext], Any]


def _without_context(handler: Callable[[Services, Any], Any]) -> JsonHandler:
    return lambda services, request, _context: handler(services, request)


_HANDLERS: Mapping[RequestType, JsonHandler] = {
    RequestType.PRODUCE: _without_context(handlers.produce),
    RequestType.OFFSET_COMMIT: _without_context(handlers.commit_offset),
    RequestType.OFFSET_FETCH: _without_context(handlers.fetch_offset),
    RequestType.CREATE_TOPIC: handlers.create_topic,
    RequestType.LIST_TOPICS: handlers.list_topics,
    RequestType.DESCRIBE_TOPIC: handlers.describe_topic,
    RequestType.DESCRIBE_PARTITION: _without_context(handlers.describe_partition),
    RequestType.PING: lambda _services, _request, _context: {"pong": True},
    RequestType.AUTHENTICATE: access.authenticate,
}
_HAVE_LARGE_RESPONSES = frozenset({RequestType.FETCH, RequestType.METRICS_FETCH})
# Cancelled when the client disconnects. Requests that may change something always run to their end.
_READ_ONLY = frozenset({RequestType.FETCH, RequestType.OFFSET_FETCH, RequestType.METRICS_FETCH})
_UNKNOWN = "Unknown"
# The version in the metrics by API and version: this protocol has only one.
_VERSION = 0


class DecodedJsonRequest(NamedTuple):
    """A request, or the error that explains why the frame is not a valid one."""

    type: RequestType | None
    request_id: str | int | None
    request: Request | LogbrookError
    size: int
    at_s: float
    context: RequestContext
    # Set when a response that may be large can be sent; None for all other requests.
    can_send: asyncio.Event | None = None

    @property
    def name(self) -> str:
        """The API name in metrics and logs, distinct from Kafka's request of the same name."""
        return f"Json{_UNKNOWN if self.type is None else self.type.title}"


class JsonDispatcher:
    """Decodes requests, calls their handlers and encodes the responses. One per broker, on its event loop."""

    def __init__(self, broker: RunningBroker, request_bytes_max: int, now_s: Callable[[], float]) -> None:
        self.probe: ServerProbe = broker.services.probe
        self._services = broker.services
        self._loop = broker.services.loop
        self._request_bytes_max = request_bytes_max
        self._now_s = now_s
        self._handlers = dict(_HANDLERS)
        self._pages = MetricsPages(broker)
        self._fetch_slots = asyncio.Semaphore(fetch.CONCURRENT_RESPONSES_MAX)
        config = broker.services.config
        self._is_authentication_required = needs_authentication(config, config.network.json_authentication)
        self._protocol = SecurityProtocol.SSL if config.security.protocol.uses_tls else SecurityProtocol.PLAINTEXT
        self._mapping_rules = parse_mapping_rules(config.security.principal_mapping_rules)

    def new_session(self, host: str, certificate: Mapping[str, Any] | None) -> ConnectionSession:
        """Raises ValueError if the name in the certificate cannot be mapped to a principal."""
        principal = certificate_principal(certificate, self._mapping_rules)
        session = ConnectionSession(host, JSON_LISTENER, self._protocol, principal)
        session.is_authenticated = not self._is_authentication_required or principal != ANONYMOUS
        return session

    def new_reader(self, memory: ReceiveBuffers, session: ConnectionSession) -> JsonFrameReader:
        bytes_max = self._request_bytes_max
        unauthenticated_bytes_max = min(bytes_max, access.UNAUTHENTICATED_BYTES_MAX)
        return JsonFrameReader(memory, lambda: bytes_max if session.is_authenticated else unauthenticated_bytes_max)

    def receive(self, frame: memoryview, session: ConnectionSession) -> DecodedJsonRequest:
        request_type: RequestType | None = None
        request_id: str | int | None = None
        request: Request | LogbrookError
        try:
            request_type = _request_type(frame[0])
            fields = decode_object(frame[1:])
            request_id = read_id(fields)
            access.check_session(session, request_type, self._now_s())
            request = read_request(request_type, fields)
        except (InvalidRequestError, access.AuthenticationRequiredError) as error:
            request = error.with_traceback(None)
        # Requests that follow wait for the result.
        session.is_authenticating = isinstance(request, Authenticate)
        can_send = asyncio.Event() if request_type in _HAVE_LARGE_RESPONSES else None
        context = RequestContext(_VERSION, "", session)
        received = DecodedJsonRequest(request_type, request_id, request, len(frame), self._now_s(), context, can_send)
        self.probe.requests[received.name, _VERSION] += 1
        self.probe.bytes_received += len(frame)
        return received

    def receive_broken(self, error: ProtocolError) -> DecodedJsonRequest:
        """Return the stand-in for an unreadable frame. Its error frame is the last response of the connection."""
        return DecodedJsonRequest(None, None, error, 0, self._now_s(), RequestContext(_VERSION, ""))

    def handle(self, received: DecodedJsonRequest) -> Any:
        if isinstance(received.request, LogbrookError):
            return received.request
        assert received.type is not None
        try:
            handled = self._begin(received.type, received)
        except LogbrookError as error:
            return error.with_traceback(None)
        if not isinstance(handled, CoroutineType):
            return handled
        answer = _settle(handled)
        if isinstance(received.request, CreateTopic):
            answer = self._audited(received.request, received.context, answer)
        return _cancellable(self._loop, answer) if received.type in _READ_ONLY else answer

    def _begin(self, request_type: RequestType, received: DecodedJsonRequest) -> Any:
        """Raises LogbrookError."""
        access.check_rights(self._services, received.context, request_type, received.request)
        if isinstance(received.request, Fetch):
            assert received.can_send is not None
            slot = fetch.ResponseSlot(received.can_send, self._fetch_slots)
            return fetch.fetch(self._services, received.request, slot)
        if isinstance(received.request, MetricsFetch):
            assert received.can_send is not None
            return handlers.fetch_metrics(self._pages, received.request, received.can_send)
        return self._handlers[request_type](self._services, received.request, received.context)

    async def _audited(
        self, request: CreateTopic, context: RequestContext, answering: Coroutine[Any, Any, JsonAnswer]
    ) -> JsonAnswer:
        answer = await answering
        code = error_code(answer) if isinstance(answer, LogbrookError) else 0
        self._services.audit.changed(context, "create topic", f"topic {request.topic}", error_code=code)
        return answer

    def encode_response(self, received: DecodedJsonRequest, answer: JsonAnswer) -> tuple[ResponsePieces, int]:
        """Return the response frame, in pieces, and its size; count its error, if it is one."""
        name, probe = received.name, self.probe
        probe.latencies[name].add(self._now_s() - received.at_s)
        if isinstance(answer, LogbrookError):
            probe.errors[name, json_error(answer).value] += 1
            request_name = None if received.type is None else received.type.title
            frame = encode_frame(ERROR_TYPE, error_object(answer, request_name), received.request_id)
        else:
            assert received.type is not None
            frame = encode_frame(received.type | ANSWER_BIT, answer, received.request_id)
        probe.bytes_sent += len(frame)
        return [frame], len(frame)


def _request_type(number: int) -> RequestType:
    """Raises InvalidRequestError."""
    try:
        return RequestType(number)
    except ValueError:
        last = max(RequestType)
        raise InvalidRequestError(f"unknown request type {number}; types are 1 to {last}") from None


async def _settle(work: Coroutine[Any, Any, JsonAnswer]) -> JsonAnswer:
    """Return a LogbrookError instead of raising it: the task's exception is not retrieved once the client is gone."""
    try:
        return await work
    except LogbrookError as error:
        return error.with_traceback(None)


def _cancellable(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, JsonAnswer]
) -> "asyncio.Future[JsonAnswer]":
    """Run `work` and return a future of its result. Cancelling the future, as a closing connection does, cancels it."""
    task = loop.create_task(work)
    answer: asyncio.Future[JsonAnswer] = loop.create_future()

    def finish(task: "asyncio.Task[JsonAnswer]") -> None:
        if task.cancelled():
            answer.cancel()
            return
        error = task.exception()
        if answer.done():
            return
        if error is None:
            answer.set_result(task.result())
        else:
            answer.set_exception(error)

    task.add_done_callback(finish)
    answer.add_done_callback(lambda answer: task.cancel() if answer.cancelled() else None)
    return answer
