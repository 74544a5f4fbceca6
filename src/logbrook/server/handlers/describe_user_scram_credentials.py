"""DescribeUserScramCredentials: clients are not authenticated, so no user has credentials (KIP-554)."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services


def handle(
    services: Services, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    # Null and an empty list mean all users.
    return DescribeUserScramCredentialsResponse(
        results=[
            DescribeUserScramCredentialsResult(
                user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message="this user has no credentials"
            )
            for name in dict.fromkeys(user.name for user in request.users or ())
        ],
    )


API = Api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, handle)
