"""DescribeUserScramCredentials: the mechanisms and iterations of users' credentials, never the keys (KIP-554).

The users of `security.users_file` are not part of the cluster's metadata, and are left out.
"""

from collections import Counter

from logbrook.core.acls import AclOperation
from logbrook.core.users import SCRAM_NUMBERS
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services


def handle(
    services: Services, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    refusal = services.authorizer.cluster_refusal(context, AclOperation.DESCRIBE)
    if refusal is not None:
        return DescribeUserScramCredentialsResponse(error_code=refusal.code, error_message=str(refusal))
    # Null and an empty list mean all users.
    named = Counter(user.name for user in request.users or ())
    names = named or Counter(sorted(services.security.users.names))
    return DescribeUserScramCredentialsResponse(
        results=[_describe(services, name, count) for name, count in names.items()]
    )


API = Api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, handle)


def _describe(services: Services, user: str, times_named: int) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=user)
    credentials = services.security.users.credentials(user)
    if times_named > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = f"user {user!r} is named {times_named} times"
    elif not credentials:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"user {user!r} has no SCRAM credentials"
    result.credential_infos = (
        [
            CredentialInfo(mechanism=SCRAM_NUMBERS[mechanism], iterations=credential.iterations)
            for mechanism, credential in sorted(credentials.items())
        ]
        if times_named == 1
        else []
    )
    return result
