"""AlterUserScramCredentials: clients are not authenticated, so there are no credentials, and new ones are refused."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services


def handle(
    services: Services, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    refusals = {
        deletion.name: (ErrorCode.RESOURCE_NOT_FOUND, "this user has no credentials") for deletion in request.deletions
    }
    for upsertion in request.upsertions:
        refusals[upsertion.name] = ErrorCode.UNSUPPORTED_SASL_MECHANISM, "this broker does not authenticate its clients"
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
            for user, (code, message) in refusals.items()
        ]
    )


API = Api(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, handle)
