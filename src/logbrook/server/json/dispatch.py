"""From a JSON frame to the handler it is for, and from the handler's answer to a frame.

A handler takes the broker and the request, and answers with an object (or its text), or with a future or coroutine of
one. What it cannot do it raises as a LogbrookError, and that is the answer then: the connection goes on.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import CoroutineType
from typing import Any, NamedTuple, TypeAlias

from logbrook.model import LogbrookError
from logbrook.protocol.encoding import Pieces
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.frame_memory import FrameMemory
from logbrook.protocol.json_frames import (
    ANSWER_BIT,
    ERROR_TYPE,
    InvalidRequestError,
    JsonFrameReader,
    RequestType,
    decode_object,
    encode_frame,
)
from logbrook.protocol.json_requests import Fetch, MetricsFetch, Request, read_id, read_request
from logbrook.server.json import fetch, offsets, produce, topics
from logbrook.server.json.errors import error_object, json_error
from logbrook.server.json.metrics import fetch_metrics
from logbrook.server.metrics.pages import Pages
from logbrook.server.metrics.scrape import Observed
from logbrook.server.probe import ServerProbe

Answer: TypeAlias = Mapping[str, Any] | str | LogbrookError
Handler: TypeAlias = Callable[[Observed, Any], Any]

_HANDLERS: Mapping[RequestType, Handler] = {
    RequestType.PRODUCE: produce.produce,
    RequestType.OFFSET_COMMIT: offsets.commit_offset,
    RequestType.OFFSET_FETCH: offsets.fetch_offset,
    RequestType.CREATE_TOPIC: topics.create_topic,
    RequestType.LIST_TOPICS: topics.list_topics,
    RequestType.DESCRIBE_TOPIC: topics.describe_topic,
    RequestType.DESCRIBE_PARTITION: topics.describe_partition,
    RequestType.PING: lambda _broker, _request: {"pong": True},
}
_LARGELY_ANSWERED = frozenset({RequestType.FETCH, RequestType.METRICS_FETCH})
# These stop when nobody waits for them any more; what may change something is always finished.
_CHANGE_NOTHING = frozenset({RequestType.FETCH, RequestType.OFFSET_FETCH, RequestType.METRICS_FETCH})
_UNKNOWN = "Unknown"
# Kafka's requests have versions, these have one.
_VERSION = 0


class JsonReceived(NamedTuple):
    """A request, or why a frame is none."""

    type: RequestType | None
    request_id: str | int | None
    request: Request | LogbrookError
    size: int
    at_s: float
    # Set when an answer that may be large can be sent; None for all others.
    may_be_written: asyncio.Event | None = None

    @property
    def name(self) -> str:
        """What it is counted as, apart from Kafka's requests of the same name."""
        return f"Json{_UNKNOWN if self.type is None else self.type.title}"


class JsonDispatcher:
    """Knows the handlers and gives them the broker."""

    def __init__(self, broker: Observed, request_bytes_max: int, now_s: Callable[[], float]) -> None:
        self.probe: ServerProbe = broker.services.probe
        self._broker = broker
        self._loop = broker.services.loop
        self._request_bytes_max = request_bytes_max
        self._now_s = now_s
        self._handlers = dict(_HANDLERS)
        self._pages = Pages(broker)
        self._fetches_written = asyncio.Semaphore(fetch.ANSWERS_AT_ONCE)

    def new_reader(self, memory: FrameMemory) -> JsonFrameReader:
        return JsonFrameReader(memory, self._request_bytes_max)

    def receive(self, frame: memoryview, _host: str) -> JsonReceived:
        kind: RequestType | None = None
        request_id: str | int | None = None
        request: Request | LogbrookError
        try:
            kind = _request_type(frame[0])
            found = decode_object(frame[1:])
            request_id = read_id(found)
            request = read_request(kind, found)
        except InvalidRequestError as error:
            request = error.with_traceback(None)
        may_be_written = asyncio.Event() if kind in _LARGELY_ANSWERED else None
        received = JsonReceived(kind, request_id, request, len(frame), self._now_s(), may_be_written)
        self.probe.requests[received.name, _VERSION] += 1
        self.probe.bytes_received += len(frame)
        return received

    def receive_broken(self, error: ProtocolError) -> JsonReceived:
        """What stands for a frame that cannot be read: its answer is the last one."""
        return JsonReceived(None, None, error, 0, self._now_s())

    def handle(self, received: JsonReceived) -> Any:
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
        return _cancellable(self._loop, answer) if received.type in _CHANGE_NOTHING else answer

    def _begin(self, kind: RequestType, received: JsonReceived) -> Any:
        """Raises LogbrookError."""
        if isinstance(received.request, Fetch):
            assert received.may_be_written is not None
            turn = fetch.Turn(received.may_be_written, self._fetches_written)
            return fetch.fetch(self._broker, received.request, turn)
        if isinstance(received.request, MetricsFetch):
            assert received.may_be_written is not None
            return fetch_metrics(self._pages, received.request, received.may_be_written)
        return self._handlers[kind](self._broker, received.request)

    def answer(self, received: JsonReceived, answer: Answer) -> tuple[Pieces, int]:
        """The frame to send, in pieces, and its size."""
        name, probe = received.name, self.probe
        probe.latencies[name].add(self._now_s() - received.at_s)
        if isinstance(answer, LogbrookError):
            probe.errors[name, json_error(answer).value] += 1
            asked = None if received.type is None else received.type.title
            frame = encode_frame(ERROR_TYPE, error_object(answer, asked), received.request_id)
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
        raise InvalidRequestError(f"there is no request of type {number}, they are 1 to {last}") from None


async def _settle(work: Coroutine[Any, Any, Answer]) -> Answer:
    """An error is an answer like any other, so that nobody has to fetch it if the client has gone."""
    try:
        return await work
    except LogbrookError as error:
        return error.with_traceback(None)


def _cancellable(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Answer]) -> "asyncio.Future[Answer]":
    """A future of what `work` returns; cancelling it, as a connection does that ends, cancels the work."""
    task = loop.create_task(work)
    answer: asyncio.Future[Answer] = loop.create_future()

    def finish(task: "asyncio.Task[Answer]") -> None:
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
