"""A connection to one broker that speaks any of its messages, over a blocking socket.

A broker answers the requests of a connection in the order in which it got them. So `send` gives something to wait for,
and `receive` is asked for the oldest of them; `request` does both. After an error on the way (the broker hung up, took
too long or answered something else) the connection is closed, because nobody knows any more where an answer begins.

Answers are distrusted as requests are: a frame has a largest size, it gets memory as its bytes arrive, and it is
decoded by the same bounded decoder. A connection belongs to one thread.
"""

import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from types import TracebackType
from typing import Generic, TypeVar

from logbrook.client.errors import (
    BrokerError,
    ConnectFailedError,
    ConnectionClosedError,
    TimedOutError,
    UnexpectedAnswerError,
)
from logbrook.model.version import VERSION
from logbrook.protocol.decoding import decode, skip_tags
from logbrook.protocol.encoding import Piece, encode
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import (
    FrameTooLargeError,
    MalformedMessageError,
    ProtocolError,
    UnsupportedApiError,
    UnsupportedVersionError,
)
from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.reader import Reader, read_int32
from logbrook.protocol.schema import ApiMessage, Versions

R = TypeVar("R", bound=ApiMessage)
T = TypeVar("T")

FRAME_BYTES_MAX = 256 << 20
_SOFTWARE = "logbrook"
_LENGTH = Struct(">i")
_UNSUPPORTED_VERSION = Struct(">h").pack(ErrorCode.UNSUPPORTED_VERSION)
_CORRELATION_ID_BYTES = 4
_CORRELATION_ID_MAX = 2**31 - 1
# An answer is given this much memory at first, and then each time as much again as it has filled.
_GROWTH_BYTES = 256 * 1024
# What a broker may answer with: its topics and partitions are many, and this side waits for nobody else.
_ELEMENTS_MAX = 10_000_000
# How many pieces the system takes at once (IOV_MAX).
_PIECES_MAX = 1024


@dataclass(frozen=True, slots=True)
class Sent(Generic[R]):
    """A request that was sent and not yet answered."""

    correlation_id: int
    response: type[R]
    version: int


class Connection:
    """Every call may raise ConnectionClosedError, TimedOutError, UnexpectedAnswerError or ProtocolError."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "logbrook",
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Raises ConnectFailedError. Connecting takes as long as an answer may, unless it is told otherwise."""
        self.host = host
        self.port = port
        self.timeout_s = timeout_s
        self._client_id = client_id
        self._frame_bytes_max = frame_bytes_max
        self._correlation_id = 0
        self._pending: deque[int] = deque()
        self._served: dict[int, Versions] | None = None
        self._is_closed = False
        try:
            self._socket = socket.create_connection((host, port), connect_timeout_s or timeout_s)
        except OSError as error:
            raise ConnectFailedError(host, port, str(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def fileno(self) -> int:
        """The socket's descriptor, to wait for answers on several connections at once."""
        return self._socket.fileno()

    def close(self) -> None:
        self._is_closed = True
        self._socket.close()

    def request(
        self,
        message: ApiMessage,
        response: type[R],
        version: int | None = None,
        *,
        timeout_s: float | None = None,
        memory: bytearray | None = None,
    ) -> R:
        """The answer to `message`. Without a version it is the highest that both sides know."""
        return self.receive(self.send(message, response, version), timeout_s=timeout_s, memory=memory)

    def send(self, message: ApiMessage, response: type[R], version: int | None = None) -> Sent[R]:
        """Send `message` and do not wait: its answer, a `response`, is got by `receive`."""
        assert message.API_KEY == response.API_KEY, f"{response.__name__} does not answer {type(message).__name__}"
        version = self.version_of(type(message)) if version is None else version
        sent = Sent(self._send(message, version), response, version)
        self._pending.append(sent.correlation_id)
        return sent

    def send_unanswered(self, message: ApiMessage, version: int | None = None) -> None:
        """Send what has no answer: a Produce request with acks=0."""
        self._send(message, self.version_of(type(message)) if version is None else version)

    def receive(self, sent: Sent[R], *, timeout_s: float | None = None, memory: bytearray | None = None) -> R:
        """The answer to `sent`, which has to be the oldest request without one.

        Its bytes come to stand in `memory` if there is room for them, else in new memory; whoever gives it again
        overwrites them. Using memory again spares clearing as much for each answer, and copying it as it grows.
        """
        return self._decode(sent.response, sent.version, self._receive(sent, timeout_s, memory))

    def version_of(self, message: type[ApiMessage]) -> int:
        """The highest version of a request that both sides know; UnsupportedApiError or -VersionError if none is."""
        if self._served is None:
            self._served = self._ask_versions()
        ours, theirs = message.VERSIONS, self._served.get(message.API_KEY)
        if theirs is None:
            raise UnsupportedApiError(message.API_KEY)
        version = min(ours.last, theirs.last)
        if version < max(ours.first, theirs.first):
            raise UnsupportedVersionError(message.API_NAME, ours.last, *theirs)
        return version

    def _ask_versions(self) -> dict[int, Versions]:
        assert not self._pending, "versions are asked for before requests are pipelined, or given with each"
        answer = self._request_versions(ApiVersionsRequest.VERSIONS.last)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = [one.max_version for one in answer.api_keys if one.api_key == ApiVersionsRequest.API_KEY]
            answer = self._request_versions(min(theirs, default=0))
        if answer.error_code:
            raise BrokerError(answer.error_code, "ApiVersions")
        return {one.api_key: Versions(one.min_version, one.max_version) for one in answer.api_keys}

    def _request_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=VERSION)
        sent = self.send(request, ApiVersionsResponse, version)
        reader = self._receive(sent, None)
        # KIP-511: a broker that does not know the version says so in version 0. The error code is first in any.
        if reader.data[reader.position :][:2] == _UNSUPPORTED_VERSION:
            version = 0
        return self._decode(ApiVersionsResponse, version, reader)

    def _send(self, message: ApiMessage, version: int) -> int:
        self._correlation_id = self._correlation_id % _CORRELATION_ID_MAX + 1
        start = RequestStart(message.API_KEY, version, self._correlation_id)
        has_tags = version >= message.FLEXIBLE_SINCE
        pieces = frame_request(start, self._client_id, encode(message, version), has_tags=has_tags)
        self._guarded(self.timeout_s, lambda until_s: self._send_pieces(pieces, until_s))
        return self._correlation_id

    def _receive(self, sent: Sent[R], timeout_s: float | None, memory: bytearray | None = None) -> Reader:
        """A reader of the answer, placed after its correlation id."""
        oldest = self._pending.popleft()
        assert oldest == sent.correlation_id, "answers come in the order of the requests"
        frame = self._guarded(
            self.timeout_s if timeout_s is None else timeout_s,
            lambda until_s: self._receive_frame(until_s, memory),
        )
        reader = Reader(frame, elements_max=_ELEMENTS_MAX)
        correlation_id = read_int32(reader)
        if correlation_id != sent.correlation_id:
            self.close()
            raise UnexpectedAnswerError(f"an answer to request {correlation_id}, not to {sent.correlation_id}")
        return reader

    def _decode(self, response: type[R], version: int, reader: Reader) -> R:
        try:
            # KIP-511: the header of an ApiVersions answer never has tags, so that it can always be read.
            if version >= response.FLEXIBLE_SINCE and response is not ApiVersionsResponse:
                skip_tags(reader)
            return decode(response, version, reader)
        except ProtocolError:
            self.close()
            raise

    def _guarded(self, timeout_s: float, move: Callable[[float], T]) -> T:
        """Do `move(until_s)` with the socket's errors as ours. Any of them closes the connection."""
        if self._is_closed:
            raise ConnectionClosedError(self.host, self.port, "it was used after it was closed")
        try:
            return move(time.monotonic() + timeout_s)
        except TimeoutError:
            self.close()
            raise TimedOutError(self.host, self.port, timeout_s) from None
        except OSError as error:
            self.close()
            raise ConnectionClosedError(self.host, self.port, str(error)) from error
        except BaseException:
            # Something unreadable, or an interrupt in the middle: nobody knows any more where the next answer begins.
            self.close()
            raise

    def _send_pieces(self, pieces: Sequence[Piece], until_s: float) -> None:
        unsent = deque(memoryview(piece) for piece in pieces if len(piece))
        while unsent:
            self._wait_until(until_s)
            count = self._socket.sendmsg([unsent[n] for n in range(min(len(unsent), _PIECES_MAX))])
            while unsent and count >= len(unsent[0]):
                count -= len(unsent.popleft())
            if count:
                unsent[0] = unsent[0][count:]

    def _receive_frame(self, until_s: float, memory: bytearray | None) -> memoryview:
        (size,) = _LENGTH.unpack(self._receive_bytes(_LENGTH.size, until_s, None))
        if size > self._frame_bytes_max:
            raise FrameTooLargeError(size, self._frame_bytes_max)
        if size < _CORRELATION_ID_BYTES:
            raise MalformedMessageError(f"an answer of {size} bytes, where its header alone has more")
        return self._receive_bytes(size, until_s, memory)

    def _receive_bytes(self, size: int, until_s: float, memory: bytearray | None) -> memoryview:
        received = bytearray(min(size, _GROWTH_BYTES)) if memory is None or len(memory) < size else memory
        filled = 0
        while filled < size:
            if filled == len(received):
                received += bytes(min(filled, size - filled))
            self._wait_until(until_s)
            count = self._socket.recv_into(memoryview(received)[filled:size])
            if not count:
                raise ConnectionResetError("the broker hung up")
            filled += count
        return memoryview(received)[:size]

    def _wait_until(self, until_s: float) -> None:
        """Let the next call to the socket take no longer. Raises TimeoutError."""
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)
