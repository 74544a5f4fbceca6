"""A broker of a few lines, which says whatever the test wants it to: for what a real one would never do."""

import socket
import threading
from collections.abc import Callable, Sequence
from struct import Struct
from types import TracebackType
from typing import TypeVar

from logbrook.protocol.decoding import decode, skip_tags
from logbrook.protocol.encoding import encode
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.framing import RequestStart, frame_response, read_request_start, request_reader
from logbrook.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.reader import primitive
from logbrook.protocol.schema import ApiMessage

Q = TypeVar("Q", bound=ApiMessage)

_LENGTH = Struct(">i")
_read_client_id, _ = primitive("string", flexible=False, nullable=True)

# What the peer says to one request; None is nothing, an empty answer hangs up.
Say = Callable[[memoryview], bytes | None]


class Peer:
    """Answers each request with the next of `says`, the last one again and again. Keeps what it was sent."""

    def __init__(self, *says: Say) -> None:
        self._says = says
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

    def __enter__(self) -> "Peer":
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
                self._talk(connected)

    def _talk(self, connected: socket.socket) -> None:
        try:
            while (prefix := connected.recv(4, socket.MSG_WAITALL)) and len(prefix) == 4:
                (size,) = _LENGTH.unpack(prefix)
                frame = memoryview(connected.recv(size, socket.MSG_WAITALL))
                self.frames.append(frame)
                said = self._says[min(len(self.frames), len(self._says)) - 1](frame)
                if said == b"":
                    return
                if said is not None:
                    connected.sendall(said)
        except ConnectionError:
            return


def answer(
    frame: memoryview, response: ApiMessage, version: int | None = None, correlation_id: int | None = None
) -> bytes:
    """The frame of `response` to the request in `frame`."""
    start = read_request_start(frame)
    version = start.api_version if version is None else version
    has_tags = version >= response.FLEXIBLE_SINCE and not isinstance(response, ApiVersionsResponse)
    correlation_id = start.correlation_id if correlation_id is None else correlation_id
    pieces, _ = frame_response(correlation_id, encode(response, version), has_tags=has_tags)
    return b"".join(pieces)


def says(response: ApiMessage) -> Say:
    return lambda frame: answer(frame, response)


def serves(*requests: type[ApiMessage]) -> Say:
    """An ApiVersions answer that lists these."""
    return says(ApiVersionsResponse(api_keys=[api_version(ApiVersionsRequest), *map(api_version, requests)]))


def api_version(request: type[ApiMessage], first: int | None = None, last: int | None = None) -> ApiVersion:
    ours = request.VERSIONS
    return ApiVersion(
        api_key=request.API_KEY,
        min_version=ours.first if first is None else first,
        max_version=ours.last if last is None else last,
    )


def knows_only_version_0(api_keys: Sequence[ApiVersion]) -> Say:
    """KIP-511: any other version of ApiVersions is answered in version 0, with an error and the list."""

    def say(frame: memoryview) -> bytes:
        code = ErrorCode.NONE if read_request_start(frame).api_version == 0 else ErrorCode.UNSUPPORTED_VERSION
        return answer(frame, ApiVersionsResponse(error_code=code, api_keys=api_keys), version=0)

    return say


def request_in(frame: memoryview, request: type[Q]) -> Q:
    """The request that a client sent in `frame`."""
    version = read_request_start(frame).api_version
    reader = request_reader(frame)
    _read_client_id(reader)
    if version >= request.FLEXIBLE_SINCE:
        skip_tags(reader)
    return decode(request, version, reader)
