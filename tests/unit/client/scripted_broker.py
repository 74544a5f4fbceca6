"""A broker whose responses the test scripts, for behaviour that a real one would not show."""

import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from struct import Struct
from types import TracebackType
from typing import TypeVar, cast

from logbrook.protocol.decoding import decode
from logbrook.protocol.encoding import Pieces, encode
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.framing import RequestStart, frame_response, read_request_body, read_request_start
from logbrook.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.schema import ApiMessage

Q = TypeVar("Q", bound=ApiMessage)

_LENGTH = Struct(">i")

# From a request's frame to the frame of its response: None sends nothing, empty bytes close the connection.
Respond = Callable[[memoryview], bytes | None]


class ScriptedBroker:
    """Answers each request with the next of `responses`, repeating the last one. `frames` has what it received.

    With `tls` its listener speaks TLS.
    """

    def __init__(self, *responses: Respond, tls: ssl.SSLContext | None = None) -> None:
        self.responses = responses
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self.frames: list[memoryview] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def starts(self) -> list[RequestStart]:
        return [read_request_start(frame) for frame in self.frames]

    def __enter__(self) -> "ScriptedBroker":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Wakes the thread from `accept`; it ends with the listener.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            with connected:
                try:
                    with connected if self._tls is None else self._tls.wrap_socket(connected, server_side=True) as peer:
                        self._talk(peer)
                except OSError:
                    # The handshake failed, or the client has closed the connection.
                    continue

    def _talk(self, connected: socket.socket) -> None:
        try:
            while len(prefix := _receive(connected, 4)) == 4:
                (size,) = _LENGTH.unpack(prefix)
                frame = memoryview(_receive(connected, size))
                self.frames.append(frame)
                response = self.responses[min(len(self.frames), len(self.responses)) - 1](frame)
                if response == b"":
                    return
                if response is not None:
                    connected.sendall(response)
        except ConnectionError:
            return


def _receive(connected: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size and (part := connected.recv(size - len(received))):
        received += part
    return received


def answer(
    frame: memoryview, response: ApiMessage, version: int | None = None, correlation_id: int | None = None
) -> bytes:
    """Return the frame of `response` to the request in `frame`."""
    start = read_request_start(frame)
    version = start.api_version if version is None else version
    has_tags = version >= response.FLEXIBLE_SINCE and not isinstance(response, ApiVersionsResponse)
    correlation_id = start.correlation_id if correlation_id is None else correlation_id
    pieces, _ = frame_response(correlation_id, encode(response, version), has_tags=has_tags)
    return b"".join(cast(Pieces, pieces))


def responds(response: ApiMessage) -> Respond:
    return lambda frame: answer(frame, response)


def supports(*requests: type[ApiMessage]) -> Respond:
    """Respond to ApiVersions with these APIs."""
    return responds(ApiVersionsResponse(api_keys=[api_version(ApiVersionsRequest), *map(api_version, requests)]))


def api_version(request: type[ApiMessage], first: int | None = None, last: int | None = None) -> ApiVersion:
    ours = request.VERSIONS
    return ApiVersion(
        api_key=request.API_KEY,
        min_version=ours.first if first is None else first,
        max_version=ours.last if last is None else last,
    )


def supports_only_version_0(api_keys: Sequence[ApiVersion]) -> Respond:
    """KIP-511: answer other versions of ApiVersions in version 0, with UNSUPPORTED_VERSION and the list."""

    def respond(frame: memoryview) -> bytes:
        code = ErrorCode.NONE if read_request_start(frame).api_version == 0 else ErrorCode.UNSUPPORTED_VERSION
        return answer(frame, ApiVersionsResponse(error_code=code, api_keys=api_keys), version=0)

    return respond


def request_in(frame: memoryview, request: type[Q]) -> Q:
    """Decode the request in `frame`."""
    version = read_request_start(frame).api_version
    _, reader = read_request_body(frame, has_tags=version >= request.FLEXIBLE_SINCE)
    return decode(request, version, reader)
