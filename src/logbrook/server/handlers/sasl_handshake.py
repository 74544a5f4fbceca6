"""SaslHandshake: choose the mechanism of the authentication that follows with SaslAuthenticate.

After version 0 the tokens follow without Kafka's header (KIP-43): a length and the token, in both directions, and an
authentication that fails is answered by closing the connection. On an authenticated connection it begins a
re-authentication (KIP-368), which must use the same mechanism and version 1.
"""

from logbrook.model.security import SaslMechanism
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services
from logbrook.server.session import ConnectionSession


def handle(services: Services, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    session, authentication = context.session, services.authentication
    if not session.protocol.uses_sasl:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    mechanisms = [mechanism.value for mechanism in authentication.mechanisms]
    if request.mechanism not in mechanisms:
        # As in Kafka, the client is told the mechanisms, and the connection is closed.
        session.is_failed = True
        reason = f"the mechanism is not one of {', '.join(mechanisms)}"
        services.audit.authentication_failed(session.host, session.listener, request.mechanism, "", reason)
        return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
    mechanism = SaslMechanism(request.mechanism)
    is_changed = session.mechanism is not None and session.mechanism is not mechanism
    is_raw = context.version == 0
    if session.is_authenticating or is_changed or (is_raw and session.is_authenticated):
        reason = _illegal_state(session, mechanism)
        services.audit.authentication_failed(session.host, session.listener, mechanism, "", reason)
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=mechanisms)
    session.exchange = authentication.new_exchange(mechanism, session.host)
    session.has_raw_tokens = is_raw
    return SaslHandshakeResponse(mechanisms=mechanisms)


def _illegal_state(session: ConnectionSession, mechanism: SaslMechanism) -> str:
    """Return why a handshake with this mechanism is refused, for the log."""
    if session.is_authenticating:
        return "SaslHandshake before the response to SaslAuthenticate"
    if session.mechanism is not mechanism:
        return f"{session.principal} re-authenticates with another mechanism than {session.mechanism}"
    return "a re-authentication begins with SaslHandshake version 1, not 0"


API = Api(SaslHandshakeRequest, SaslHandshakeResponse, handle)
