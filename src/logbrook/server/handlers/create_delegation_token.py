"""CreateDelegationToken: refused, as Kafka does on a PLAINTEXT listener, where nobody is authenticated (KIP-48)."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services

# The principal of a client that is not authenticated.
_USER, _ANONYMOUS = "User", "ANONYMOUS"
_NO_TIMESTAMP = -1


def handle(
    services: Services, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    # KIP-373: a token may be requested for another owner. The response has both principals.
    has_owner = bool(request.owner_principal_name)
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=request.owner_principal_type or "" if has_owner else _USER,
        principal_name=request.owner_principal_name or _ANONYMOUS,
        token_requester_principal_type=_USER,
        token_requester_principal_name=_ANONYMOUS,
        issue_timestamp_ms=_NO_TIMESTAMP,
        expiry_timestamp_ms=_NO_TIMESTAMP,
        max_timestamp_ms=_NO_TIMESTAMP,
    )


API = Api(CreateDelegationTokenRequest, CreateDelegationTokenResponse, handle)
