"""DescribeDelegationToken: refused, as Kafka does on a PLAINTEXT listener, where nobody is authenticated (KIP-48)."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services


def handle(
    services: Services, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


API = Api(DescribeDelegationTokenRequest, DescribeDelegationTokenResponse, handle)
