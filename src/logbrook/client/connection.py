"""A connection to one broker over a blocking socket, for any of Kafka's messages.

A broker answers the requests of a connection in order. `send` returns a handle, and `receive` must be called with the
oldest unanswered one; `request` does both. After an error (the broker has closed the connection, is late or has sent
an invalid response) the connection is closed, because the start of the next response is unknown.

Responses are not trusted: a frame has a maximum size, memory is allocated as its bytes arrive, and it is decoded by the
same bounded decoder as requests. An answer in another protocol is recognised by its first bytes, which as the length of
a frame exceed the maximum. A connection belongs to one thread.
"""

import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Generic, TypeVar

from logbrook.client.errors import (
    TLS,
    ConnectFailedError,
    ConnectionClosedError,
    NotKafkaError,
    TimedOutError,
    UnexpectedAnswerError,
    check_code,
)
from logbrook.model.version import VERSION
from logbrook.protocol.decoding import decode
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
from logbrook.protocol.reader import Reader, read_int32, skip_tags
from logbrook.protocol.schema import ApiMessage, Versions

R = TypeVar("R", bound=ApiMessage)
T = TypeVar("T")

FRAME_BYTES_MAX = 256 << 20
_SOFTWARE = "logbrook"
_LENGTH = Struct(">i")
_UNSUPPORTED_VERSION = Struct(">h").pack(ErrorCode.UNSUPPORTED_VERSION)
_CORRELATION_ID_BYTES = 4
_CORRELATION_ID_MAX = 2**31 - 1
# The first allocation for a response; it doubles as bytes arrive.
_GROWTH_BYTES = 256 * 1024
# Bound of the array elements in one response. Metadata of a large cluster has millions.
_ELEMENTS_MAX = 10_000_000
# The first byte of a TLS record with an alert or a handshake, and the second, the major version.
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
# The system's limit of buffers per sendmsg (IOV_MAX).
_PIECES_MAX = 1024


@dataclass(frozen=True, slots=True)
class InFlightRequest(Generic[R]):
    """A request that was sent, and the type and version of the response that it awaits."""

    correlation_id: int
    response: type[R]
    version: int


class Connection:
    """A connected socket, with the API versions that the broker supports, requested on first use.

    Every call may raise ConnectionClosedError, TimedOutError, UnexpectedAnswerError or ProtocolError.
    """

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
        """Connect, within `connect_timeout_s`, else `timeout_s`. Raises ConnectFailedError."""
        self.host = host
        self.port = port
        self.timeout_s = timeout_s
        self._client_id = client_id
        self._frame_bytes_max = frame_bytes_max
        self._correlation_id = 0
        self._pending: deque[int] = deque()
        self._broker_versions: dict[int, Versions] | None = None
        self.is_closed = False
        try:
            self._socket = socket.create_connection((host, port), connect_timeout_s or timeout_s)
        except OSError as error:
            raise ConnectFailedError(host, port, str(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the socket's descriptor, for polling several connections."""
        return self._socket.fileno()

    def close(self) -> None:
        self.is_closed = True
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
        """Send `message` and return its response. The default version is the highest that both sides support."""
        return self.receive(self.send(message, response, version), timeout_s=timeout_s, memory=memory)

    def send(self, message: ApiMessage, response: type[R], version: int | None = None) -> InFlightRequest[R]:
        """Send `message` without waiting. `receive` returns its response, of type `response`."""
        assert message.API_KEY == response.API_KEY, f"{response.__name__} does not answer {type(message).__name__}"
        version = self.version_of(type(message)) if version is None else version
        sent = InFlightRequest(self._send(message, version), response, version)
        self._pending.append(sent.correlation_id)
        return sent

    def send_unanswered(self, message: ApiMessage, version: int | None = None) -> None:
        """Send a request that has no response: Produce with acks=0."""
        self._send(message, self.version_of(type(message)) if version is None else version)

    def receive(
        self, sent: InFlightRequest[R], *, timeout_s: float | None = None, memory: bytearray | None = None
    ) -> R:
        """Return the response to `sent`, which must be the oldest unanswered request.

        Its bytes are read into `memory` if they fit, else into new memory, and views in the response refer to them:
        passing the same `memory` again overwrites them. Reuse saves allocating and growing a buffer per response.
        """
        return self._decode(sent.response, sent.version, self._receive(sent, timeout_s, memory))

    def version_of(self, message: type[ApiMessage]) -> int:
        """Return the highest version that both sides support. Raises UnsupportedApiError or UnsupportedVersionError."""
        if self._broker_versions is None:
            self._broker_versions = self._fetch_versions()
        ours, theirs = message.VERSIONS, self._broker_versions.get(message.API_KEY)
        if theirs is None:
            raise UnsupportedApiError(message.API_KEY)
        version = min(ours.last, theirs.last)
        if version < max(ours.first, theirs.first):
            raise UnsupportedVersionError(message.API_NAME, ours.last, *theirs)
        return version

    def _fetch_versions(self) -> dict[int, Versions]:
        assert not self._pending, "ApiVersions must be requested before requests are pipelined"
        answer = self._request_versions(ApiVersionsRequest.VERSIONS.last)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = [api.max_version for api in answer.api_keys if api.api_key == ApiVersionsRequest.API_KEY]
            answer = self._request_versions(min(theirs, default=0))
        check_code(answer.error_code, "ApiVersions")
        return {api.api_key: Versions(api.min_version, api.max_version) for api in answer.api_keys}

    def _request_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=VERSION)
        sent = self.send(request, ApiVersionsResponse, version)
        reader = self._receive(sent, None)
        # KIP-511: a broker that does not support the version answers in version 0. The error code comes first in all.
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

    def _receive(self, sent: InFlightRequest[R], timeout_s: float | None, memory: bytearray | None = None) -> Reader:
        """Return a reader of the response, positioned after its correlation id."""
        oldest = self._pending.popleft()
        assert oldest == sent.correlation_id, "responses are received in the order of the requests"
        frame = self._guarded(
            self.timeout_s if timeout_s is None else timeout_s,
            lambda until_s: self._receive_frame(until_s, memory),
        )
        reader = Reader(frame, elements_max=_ELEMENTS_MAX)
        correlation_id = read_int32(reader)
        if correlation_id != sent.correlation_id:
            self.close()
            message = f"a response to request {correlation_id}, expected one to {sent.correlation_id}"
            raise UnexpectedAnswerError(self.host, self.port, message)
        return reader

    def _decode(self, response: type[R], version: int, reader: Reader) -> R:
        try:
            # KIP-511: the header of an ApiVersions response never has tagged fields, so that any client can read it.
            if version >= response.FLEXIBLE_SINCE and response is not ApiVersionsResponse:
                skip_tags(reader)
            return decode(response, version, reader)
        except ProtocolError:
            self.close()
            raise

    def _guarded(self, timeout_s: float, transfer: Callable[[float], T]) -> T:
        """Call `transfer(until_s)`. Any error closes the connection, and socket errors become NetworkErrors."""
        if self.is_closed:
            raise ConnectionClosedError(self.host, self.port, "it was used after it was closed")
        try:
            return transfer(time.monotonic() + timeout_s)
        except TimeoutError:
            self.close()
            raise TimedOutError(self.host, self.port, timeout_s) from None
        except OSError as error:
            self.close()
            raise ConnectionClosedError(self.host, self.port, str(error)) from error
        except BaseException:
            # A malformed frame, or an interrupt in the middle of one: the start of the next response is unknown.
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
        prefix = bytes(self._receive_bytes(_LENGTH.size, until_s, None))
        (size,) = _LENGTH.unpack(prefix)
        if size > self._frame_bytes_max:
            if answer := _other_protocol(prefix):
                raise NotKafkaError(self.host, self.port, answer)
            raise FrameTooLargeError(size, self._frame_bytes_max)
        if size < _CORRELATION_ID_BYTES:
            raise MalformedMessageError(f"a response of {size} bytes is shorter than its header")
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
                raise ConnectionResetError("the broker closed it")
            filled += count
        return memoryview(received)[:size]

    def _wait_until(self, until_s: float) -> None:
        """Set the timeout of the next socket call. Raises TimeoutError if `until_s` has passed."""
        remaining_s = until_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining_s)


def _other_protocol(prefix: bytes) -> str | None:
    """Describe an answer in another protocol by its first four bytes; None if they are not recognised."""
    if prefix == b"HTTP":
        return "HTTP"
    if prefix.startswith(_TLS_RECORDS):
        return TLS
    if prefix.isascii() and prefix.decode().isprintable():
        return f"text that begins with {prefix.decode()!r}"
    return None
