"""From a frame to the handler it is for, and from the handler's answer to a frame.

The header is looked at before the body: an API or a version that is not served costs nothing to refuse. The list of
what is served is the handlers themselves, and the ApiVersions answer is made from it.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from logbrook.protocol.decoding import decode, skip_tags
from logbrook.protocol.encoding import Pieces, encode
from logbrook.protocol.errors import UnsupportedApiError, UnsupportedVersionError
from logbrook.protocol.frame_memory import FrameMemory
from logbrook.protocol.framing import FrameReader, RequestStart, frame_response, read_request_start, request_reader
from logbrook.protocol.reader import primitive
from logbrook.protocol.schema import ApiMessage
from logbrook.server.api import Answer, Api, Call, Handled
from logbrook.server.probe import ServerProbe
from logbrook.server.services import Services

_PRODUCE = 0
_API_VERSIONS = 18
_OTHERS_BYTES_MIN = 1 << 20
_read_client_id, _ = primitive("string", flexible=False, nullable=True)


class Received(NamedTuple):
    """A request, decoded."""

    api: Api[Any]
    version: int
    correlation_id: int
    request: ApiMessage
    call: Call
    size: int
    at_s: float

    @property
    def name(self) -> str:
        return self.api.name


class Dispatcher:
    """Knows the handlers and gives them what they work with."""

    def __init__(
        self, services: Services, apis: Iterable[Api[Any]], request_bytes_max: int, now_s: Callable[[], float]
    ) -> None:
        self.probe: ServerProbe = services.probe
        self._services = services
        self._apis = {api.key: api for api in apis}
        self._produce_bytes_max = request_bytes_max
        self._others_bytes_max = min(request_bytes_max, max(_OTHERS_BYTES_MIN, request_bytes_max // 16))
        self._now_s = now_s

    def new_reader(self, memory: FrameMemory) -> FrameReader:
        return FrameReader(memory, self.size_max)

    def size_max(self, start: RequestStart) -> int:
        """How long a request may be that starts like this. Raises UnsupportedApiError."""
        if start.api_key not in self._apis:
            raise UnsupportedApiError(start.api_key)
        return self._produce_bytes_max if start.api_key == _PRODUCE else self._others_bytes_max

    def receive(self, frame: memoryview, host: str) -> Received:
        """Raises ProtocolError; then hanging up is the only answer that the protocol knows."""
        start = read_request_start(frame)
        api = self._apis.get(start.api_key)
        if api is None:
            raise UnsupportedApiError(start.api_key)
        version = start.api_version
        size = len(frame)
        if version not in api.versions:
            if api.key != _API_VERSIONS:
                raise UnsupportedVersionError(api.name, version, *api.versions)
            # KIP-511: this one request is answered in version 0, whose answer every client can read.
            return self._received(api, start._replace(api_version=0), api.request(), Call(version, "", host), size)
        reader = request_reader(frame)
        client_id = _read_client_id(reader) or ""
        if version >= api.request.FLEXIBLE_SINCE:
            skip_tags(reader)
        request = decode(api.request, version, reader)
        return self._received(api, start, request, Call(version, client_id, host), size)

    def handle(self, received: Received) -> Handled:
        return received.api.handle(self._services, received.request, received.call)

    def answer(self, received: Received, answer: Answer) -> tuple[Pieces, int]:
        """The frame to send, in pieces, and its size; nothing for a request that expects no answer."""
        api, probe = received.api, self.probe
        probe.latencies[api.name].add(self._now_s() - received.at_s)
        if answer is None:
            return [], 0
        version = received.version
        # KIP-511: the header of an ApiVersions answer never has tags, so that it can always be read.
        has_tags = version >= answer.FLEXIBLE_SINCE and api.key != _API_VERSIONS
        pieces, size = frame_response(received.correlation_id, encode(answer, version), has_tags=has_tags)
        probe.bytes_sent += size
        return pieces, size

    def _received(self, api: Api[Any], start: RequestStart, request: ApiMessage, call: Call, size: int) -> Received:
        self.probe.requests[api.name, start.api_version] += 1
        self.probe.bytes_received += size
        return Received(api, start.api_version, start.correlation_id, request, call, size, self._now_s())
