"""Dispatch of Kafka requests: from a frame to its handler, and from the handler's response to a frame.

The header is decoded before the body, so that an API or version that is not served is refused at no cost. The handlers
themselves are the list of what is served, and the ApiVersions response is made from it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from logbrook.config.network import DEFAULT_LISTENER
from logbrook.model.security import SecurityProtocol
from logbrook.protocol.decoding import decode
from logbrook.protocol.encoding import ResponsePieces, encode
from logbrook.protocol.errors import UnsupportedApiError, UnsupportedVersionError
from logbrook.protocol.framing import (
    FrameReader,
    ReceiveBuffers,
    SaslFrameReader,
    frame_response,
    frame_token,
    read_request_body,
    read_request_start,
)
from logbrook.protocol.messages.fetch import FetchRequest
from logbrook.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from logbrook.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from logbrook.protocol.response_errors import response_error_codes
from logbrook.protocol.schema import ApiMessage
from logbrook.server.api import Api, HandlerResult, RequestContext, Response, may_act_as_broker
from logbrook.server.probe import ServerProbe
from logbrook.server.security.audited_apis import audited_keys, is_of_broker
from logbrook.server.security.certificates import certificate_principal, parse_mapping_rules
from logbrook.server.security.request_usage import RequestUsage
from logbrook.server.services import Services
from logbrook.server.session import (
    UNAUTHENTICATED_APIS,
    UNAUTHENTICATED_BYTES_MAX,
    ConnectionSession,
    NotAuthenticatedError,
)

_PRODUCE = 0
_API_VERSIONS = 18
_OTHERS_BYTES_MIN = 1 << 20
# The version of a token without Kafka's header.
_RAW_TOKEN = -1


class DecodedRequest:
    """A decoded request, with what its response needs. `version` is that of the response."""

    __slots__ = ("api", "context", "correlation_id", "received_s", "request", "size", "usage", "version")

    def __init__(
        self,
        api: Api[Any],
        version: int,
        correlation_id: int,
        request: ApiMessage,
        context: RequestContext,
        size: int,
        received_s: float,
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.request = request
        self.context = context
        self.size = size
        self.received_s = received_s
        # What it uses of its client's quotas, None if that is not counted.
        self.usage: RequestUsage | None = None

    @property
    def name(self) -> str:
        return self.api.name


class KafkaDispatcher:
    """The handlers of all Kafka APIs, by key, and the services that they use."""

    def __init__(
        self,
        services: Services,
        apis: Iterable[Api[Any]],
        request_bytes_max: int,
        now_s: Callable[[], float],
        *,
        listener: str = DEFAULT_LISTENER,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
    ) -> None:
        """`listener` is the name of the listener whose requests are dispatched. Raises InvalidSecurityError."""
        self.probe: ServerProbe = services.probe
        self._services = services
        self._apis = {api.key: api for api in apis}
        others_bytes_max = min(request_bytes_max, max(_OTHERS_BYTES_MIN, request_bytes_max // 16))
        self._bytes_max = {key: request_bytes_max if key == _PRODUCE else others_bytes_max for key in self._apis}
        self._audited = audited_keys(services.config.cluster, is_cluster=services.replicas is not None)
        self._now_s = now_s
        self._client_quotas = services.security.quotas
        self._listener = listener
        self._protocol = protocol
        self._mapping_rules = parse_mapping_rules(services.config.security.principal_mapping_rules)

    def new_session(self, host: str, certificate: Mapping[str, Any] | None) -> ConnectionSession:
        """Return the session of a new connection, with the client's certificate if it presented one.

        Raises ValueError if the name in the certificate cannot be mapped to a principal.
        """
        principal = certificate_principal(certificate, self._mapping_rules)
        return ConnectionSession(host, self._listener, self._protocol, principal)

    def new_reader(self, buffers: ReceiveBuffers, session: ConnectionSession) -> FrameReader:
        if session.is_authenticated:
            return FrameReader(buffers, self.size_max)
        return SaslFrameReader(
            buffers,
            lambda api_key: self._session_size_max(session, api_key),
            lambda: session.has_raw_tokens,
            UNAUTHENTICATED_BYTES_MAX,
        )

    def _session_size_max(self, session: ConnectionSession, api_key: int) -> int:
        """Raises UnsupportedApiError or NotAuthenticatedError."""
        if session.is_authenticated:
            return self.size_max(api_key)
        if api_key not in UNAUTHENTICATED_APIS:
            raise NotAuthenticatedError(api_key)
        return min(UNAUTHENTICATED_BYTES_MAX, self.size_max(api_key))

    def size_max(self, api_key: int) -> int:
        """Return the largest size of a request of this API, in bytes. Raises UnsupportedApiError."""
        try:
            return self._bytes_max[api_key]
        except KeyError:
            raise UnsupportedApiError(api_key) from None

    def receive(self, frame: memoryview, session: ConnectionSession) -> DecodedRequest:
        """Decode a frame. Raises ProtocolError; the protocol's only response to it is to disconnect."""
        if session.has_raw_tokens:
            return self._receive_token(frame, session)
        api_key, version, correlation_id = read_request_start(frame)
        now_s = self._now_s()
        if session.expires_s is not None or not session.is_authenticated:
            session.check(api_key, now_s)
        api = self._apis.get(api_key)
        if api is None:
            raise UnsupportedApiError(api_key)
        if api.versions.first <= version <= api.versions.last:
            response_version = version
            client_id, reader = read_request_body(frame, has_tags=version >= api.request.FLEXIBLE_SINCE)
            request = decode(api.request, version, reader)
        elif api_key == _API_VERSIONS:
            # KIP-511: this request is answered in version 0, which every client can read.
            response_version, client_id, request = 0, "", api.request()
        else:
            raise UnsupportedVersionError(api.name, version, *api.versions)
        size = len(frame)
        probe = self.probe
        probe.requests[api.name, response_version] += 1
        probe.bytes_received += size
        context = RequestContext(version, client_id, session)
        return DecodedRequest(api, response_version, correlation_id, request, context, size, now_s)

    def _receive_token(self, frame: memoryview, session: ConnectionSession) -> DecodedRequest:
        """Return a token that came without Kafka's header as the request that it would be in."""
        api = self._apis[SaslAuthenticateRequest.API_KEY]
        self.probe.requests[api.name, 0] += 1
        self.probe.bytes_received += len(frame)
        request = SaslAuthenticateRequest(auth_bytes=bytes(frame))
        return DecodedRequest(api, _RAW_TOKEN, 0, request, RequestContext(0, "", session), len(frame), self._now_s())

    def handle(self, request: DecodedRequest) -> HandlerResult:
        if self._client_quotas.has_client_quotas and not _is_exempt(self._services, request):
            result = self._handle_counted(request)
        else:
            result = request.api.handle(self._services, request.request, request.context)
        if request.api.key in self._audited and not is_of_broker(
            request.request, request.context.principal, self._services.config.cluster
        ):
            return self._services.audit.watch(request.request, request.context, result)
        return result

    def _handle_counted(self, request: DecodedRequest) -> HandlerResult:
        produced_bytes = request.size if request.api.key == _PRODUCE else 0
        usage = request.usage = self._services.quotas.begin(request.context, produced_bytes)
        result = request.api.handle(self._services, request.request, request.context)
        usage.add_since(request.received_s)
        return usage.timed(result)

    def encode_response(self, request: DecodedRequest, response: Response) -> tuple[ResponsePieces, int]:
        """Return the buffers of the response frame and its size; no buffers for a request without a response."""
        api, probe, usage = request.api, self.probe, request.usage
        now_s = self._now_s()
        probe.latencies[api.name].add(now_s - request.received_s)
        if usage is not None:
            self._services.quotas.finish(usage, response)
        if response is None:
            return [], 0
        version = request.version
        if version == _RAW_TOKEN:
            return self._encode_token(response)
        if codes := response_error_codes(response, version):
            probe.count_errors(api.name, codes)
        # KIP-511: the header of an ApiVersions response never has tags, so that every client can read it.
        has_tags = version >= response.FLEXIBLE_SINCE and api.key != _API_VERSIONS
        pieces, size = frame_response(request.correlation_id, encode(response, version), has_tags=has_tags)
        probe.bytes_sent += size
        if usage is not None:
            # Delays later requests only.
            usage.add_since(now_s)
            self._services.quotas.count_time(usage)
        return pieces, size

    def _encode_token(self, response: ApiMessage) -> tuple[ResponsePieces, int]:
        """Return a token without Kafka's header; there is none to say that the authentication failed."""
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code:
            self.probe.count_errors(response.API_NAME, response_error_codes(response, 0))
            return [], 0
        pieces, size = frame_token(bytes(response.auth_bytes))
        self.probe.bytes_sent += size
        return pieces, size


def _is_exempt(services: Services, request: DecodedRequest) -> bool:
    """True if no quota applies: to other brokers, and to a client that is not authenticated yet."""
    context = request.context
    if not context.session.is_authenticated:
        return True
    is_of_broker = bool(services.config.cluster.listener) or _is_broker_request(request.request)
    return services.replicas is not None and is_of_broker and may_act_as_broker(services, context)


def _is_broker_request(message: ApiMessage) -> bool:
    if isinstance(message, FetchRequest):
        return message.replica_state is not None and message.replica_state.replica_id >= 0
    return isinstance(message, WriteTxnMarkersRequest)
