"""SaslAuthenticate: connections are not authenticated, so Kafka's answer is ILLEGAL_SASL_STATE."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services


def handle(services: Services, request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="this broker does not authenticate its clients; use security.protocol=PLAINTEXT",
    )


API = Api(SaslAuthenticateRequest, SaslAuthenticateResponse, handle)
