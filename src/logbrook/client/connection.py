"""A connection to one broker over a blocking socket, for any of Kafka's messages.

A broker answers the requests of a connection in order. `send` returns a handle, and `receive` must be called with the
oldest unanswered one; `request` does both. After an error (the broker has closed the connection, is late or has sent
an invalid response) the connection is closed, because the start of the next response is unknown.

Responses are not trusted: a frame has a maximum size, memory is allocated as its bytes arrive, and it is decoded by the
same bounded decoder as requests. An answer in another protocol is recognised by its first bytes, which as the length of
a frame exceed the maximum. A connection belongs to one thread.

With SASL the connection is authenticated when it is made, and again before a request that is sent near the end of the
session's lifetime (KIP-368). Responses that are outstanding then are received first and kept for `receive`.
"""

import select
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil
from struct import Struct
from typing import Generic, TypeVar

from logbrook.client.errors import (
    TLS,
    ConnectionClosedError,
    NotKafkaError,
    TimedOutError,
    UnexpectedAnswerError,
    check_code,
)
from logbrook.client.oauth import current_token
from logbrook.client.sasl import HANDSHAKE_VERSION, SaslClientExchange, new_nonce, renewal_delay_s
from logbrook.client.sasl_options import SaslOptions
from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.client.transport import open_transport
from logbrook.model.version import VERSION
from logbrook.protocol.decoding import decode
from logbrook.protocol.encoding import encode
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
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest
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
# Bound of the array elements in one response. Metadata of a large cluster has millions.
_ELEMENTS_MAX = 10_000_000
# The first byte of a TLS record with an alert or a handshake, and the second, the major version.
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")


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
        security: ClientSecurity = PLAINTEXT_SECURITY,
    ) -> None:
        """Connect, within `connect_timeout_s`, else `timeout_s`, and authenticate.

        Raises ConnectFailedError, and as `security` says ConnectionSecurityError or another ClientError.
        """
        self.host = host
        self.port = port
        self.timeout_s = timeout_s
        self._client_id = client_id
        self._frame_bytes_max = frame_bytes_max
        self._correlation_id = 0
        self._pending: deque[int] = deque()
        self._broker_versions: dict[int, Versions] | None = None
        # Responses that were received before their turn, the oldest of those pending.
        self._kept_frames: deque[memoryview] = deque()
        self._has_answered = False
        self._sasl = security.sasl
        # When to authenticate again; None if the session does not end.
        self._renew_at_s: float | None = None
        self._uses_tls = security.protocol.uses_tls
        self.is_closed = False
        self._transport = open_transport(host, port, connect_timeout_s or timeout_s, security)
        if self._sasl is not None:
            self._authenticate(self._sasl)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the socket's descriptor. `poll_connections` waits for several connections."""
        return self._transport.fileno()

    @property
    def has_bytes(self) -> bool:
        """True if bytes of a response are in this process already, which polling the descriptor does not tell."""
        return bool(self._kept_frames) or self._transport.has_bytes

    @property
    def is_usable(self) -> bool:
        """False if the connection is closed, by this side or, while no request is unanswered, by the broker."""
        return not self.is_closed and (bool(self._pending) or not self._transport.is_ended)

    def close(self) -> None:
        self.is_closed = True
        self._transport.close()

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
        self._renew_session()
        version = self.version_of(type(message)) if version is None else version
        sent = InFlightRequest(self._send(message, version), response, version)
        self._pending.append(sent.correlation_id)
        return sent

    def send_unanswered(self, message: ApiMessage, version: int | None = None) -> None:
        """Send a request that has no response: Produce with acks=0."""
        self._renew_session()
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

    def _renew_session(self) -> None:
        """Authenticate again if the session is about to end."""
        if self._renew_at_s is None or self._sasl is None or time.monotonic() < self._renew_at_s:
            return
        while len(self._kept_frames) < len(self._pending):
            self._kept_frames.append(self._read_frame(self.timeout_s))
        self._authenticate(self._sasl)

    def _authenticate(self, sasl: SaslOptions) -> None:
        """Any error closes the connection."""
        try:
            token = "" if sasl.oauth is None else current_token(sasl.oauth)
            started_s = time.monotonic()
            exchange = SaslClientExchange(sasl, self.host, self.port, nonce=new_nonce(), token=token)
            while exchange.request is not None:
                exchange.receive(self._exchange(exchange.request, exchange.response))
        except BaseException:
            self.close()
            raise
        delay_s = renewal_delay_s(exchange.session_lifetime_ms)
        self._renew_at_s = None if delay_s is None else started_s + delay_s

    def _exchange(self, message: ApiMessage, response: type[R]) -> R:
        """Send a message of SASL and return its response, past the pending requests, whose responses are kept."""
        version = self.version_of(type(message))
        if isinstance(message, SaslHandshakeRequest) and version < HANDSHAKE_VERSION:
            raise UnsupportedVersionError(message.API_NAME, HANDSHAKE_VERSION, 0, version)
        correlation_id = self._send(message, version)
        return self._decode(response, version, self._reader(self._read_frame(self.timeout_s), correlation_id))

    def _send(self, message: ApiMessage, version: int) -> int:
        self._correlation_id = self._correlation_id % _CORRELATION_ID_MAX + 1
        start = RequestStart(message.API_KEY, version, self._correlation_id)
        has_tags = version >= message.FLEXIBLE_SINCE
        pieces = frame_request(start, self._client_id, encode(message, version), has_tags=has_tags)
        self._guarded(self.timeout_s, lambda until_s: self._transport.send(pieces, until_s))
        return self._correlation_id

    def _receive(self, sent: InFlightRequest[R], timeout_s: float | None, memory: bytearray | None = None) -> Reader:
        """Return a reader of the response, positioned after its correlation id."""
        oldest = self._pending.popleft()
        assert oldest == sent.correlation_id, "responses are received in the order of the requests"
        if self._kept_frames:
            frame = self._kept_frames.popleft()
        else:
            frame = self._read_frame(self.timeout_s if timeout_s is None else timeout_s, memory)
        return self._reader(frame, sent.correlation_id)

    def _read_frame(self, timeout_s: float, memory: bytearray | None = None) -> memoryview:
        return self._guarded(timeout_s, lambda until_s: self._receive_frame(until_s, memory))

    def _reader(self, frame: memoryview, expected_id: int) -> Reader:
        reader = Reader(frame, elements_max=_ELEMENTS_MAX)
        correlation_id = read_int32(reader)
        if correlation_id != expected_id:
            self.close()
            message = f"a response to request {correlation_id}, expected one to {expected_id}"
            raise UnexpectedAnswerError(self.host, self.port, message)
        return reader

    def _decode(self, response: type[R], version: int, reader: Reader) -> R:
        try:
            # KIP-511: the header of an ApiVersions response never has tagged fields, so that any client can read it.
            if version >= response.FLEXIBLE_SINCE and response is not ApiVersionsResponse:
                skip_tags(reader)
            decoded = decode(response, version, reader)
        except ProtocolError:
            self.close()
            raise
        self._has_answered |= response is not ApiVersionsResponse
        return decoded

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
            raise ConnectionClosedError(self.host, self.port, f"{error}{self._protocol_hint}") from error
        except BaseException:
            # A malformed frame, or an interrupt in the middle of one: the start of the next response is unknown.
            self.close()
            raise

    @property
    def _protocol_hint(self) -> str:
        """Advice for a connection that the broker closed before it answered anything but ApiVersions."""
        if self._has_answered:
            return ""
        protocols = "SASL_SSL, or require a client certificate" if self._uses_tls else "SSL or SASL_SSL"
        return f"; if this repeats, the listener may have another security.protocol, such as {protocols}"

    def _receive_frame(self, until_s: float, memory: bytearray | None) -> memoryview:
        prefix = bytes(self._transport.receive(_LENGTH.size, until_s))
        (size,) = _LENGTH.unpack(prefix)
        if size > self._frame_bytes_max:
            if answer := _other_protocol(prefix):
                raise NotKafkaError(self.host, self.port, answer)
            raise FrameTooLargeError(size, self._frame_bytes_max)
        if size < _CORRELATION_ID_BYTES:
            raise MalformedMessageError(f"a response of {size} bytes is shorter than its header")
        return self._transport.receive(size, until_s, memory)


def poll_connections(connections: Iterable[Connection], timeout_s: float) -> list[Connection]:
    """Wait until at least one of the connections has bytes of a response, or an error. Return those that have."""
    by_descriptor = {connection.fileno(): connection for connection in connections}
    ready = [connection for connection in by_descriptor.values() if connection.has_bytes]
    poller = select.poll()
    for descriptor in by_descriptor:
        poller.register(descriptor, select.POLLIN)
    for descriptor, _ in poller.poll(0 if ready else ceil(max(0.0, timeout_s) * 1000)):
        if not by_descriptor[descriptor].has_bytes:
            ready.append(by_descriptor[descriptor])
    return ready


def _other_protocol(prefix: bytes) -> str | None:
    """Describe an answer in another protocol by its first four bytes; None if they are not recognised."""
    if prefix == b"HTTP":
        return "HTTP"
    if prefix.startswith(_TLS_RECORDS):
        return TLS
    if prefix.isascii() and prefix.decode().isprintable():
        return f"text that begins with {prefix.decode()!r}"
    return None
