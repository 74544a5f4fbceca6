"""SaslHandshake: connections are not authenticated, so Kafka's answer is ILLEGAL_SASL_STATE, without mechanisms."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services


def handle(services: Services, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


API = Api(SaslHandshakeRequest, SaslHandshakeResponse, handle)
