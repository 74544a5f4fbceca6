"""ExpireDelegationToken: refused, as Kafka does on a PLAINTEXT listener, where nobody is authenticated (KIP-48)."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services

_NO_TIMESTAMP = -1


def handle(
    services: Services, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=_NO_TIMESTAMP
    )


API = Api(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, handle)
