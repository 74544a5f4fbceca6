"""SaslHandshake: choose the mechanism of the authentication that follows with SaslAuthenticate.

On an authenticated connection it begins a re-authentication (KIP-368), which must use the same mechanism.
"""

from logbrook.model.security import SaslMechanism
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services

# After version 0 a client sends tokens without Kafka's header. That is not supported, but the version is advertised:
# librdkafka up to 2.0 does not use SASL without it, and then sends version 1.
_VERSION_MIN = 1


def handle(services: Services, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    session, authentication = context.session, services.authentication
    if not session.protocol.uses_sasl:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    if context.version < _VERSION_MIN:
        return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, mechanisms=[])
    mechanisms = [mechanism.value for mechanism in authentication.mechanisms]
    if request.mechanism not in mechanisms:
        return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
    mechanism = SaslMechanism(request.mechanism)
    is_changed = session.mechanism is not None and session.mechanism is not mechanism
    if session.is_authenticating or is_changed:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=mechanisms)
    session.exchange = authentication.new_exchange(mechanism)
    return SaslHandshakeResponse(mechanisms=mechanisms)


API = Api(SaslHandshakeRequest, SaslHandshakeResponse, handle)
