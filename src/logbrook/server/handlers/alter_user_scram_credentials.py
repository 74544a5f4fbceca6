"""AlterUserScramCredentials: create, replace and delete the SCRAM credentials of users (KIP-554).

Clients send salted passwords, so this broker never sees the password of a user who is created over the protocol.
"""

from collections.abc import Callable

from logbrook.core.acls import AclOperation
from logbrook.core.users import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_NUMBERS
from logbrook.model.security import SaslMechanism, ScramCredential
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from logbrook.protocol.scram import credential_of
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.services import Services


async def handle(
    services: Services, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    names = [deletion.name for deletion in request.deletions]
    names += [upsert.name for upsert in request.upsertions]
    results = []
    for user in dict.fromkeys(names):
        result = AlterUserScramCredentialsResult(user=user)
        results.append(result)
        with errors_in(result):
            services.authorizer.check_cluster(context, AclOperation.ALTER)
            upserts, deletions = _changes_of(request, user)
            await services.topics.change_security(_decision(services, user, upserts, deletions))
    return AlterUserScramCredentialsResponse(results=results)


API = Api(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, handle)


def _decision(
    services: Services,
    user: str,
    upserts: dict[SaslMechanism, ScramCredential],
    deletions: list[SaslMechanism],
) -> Callable[[], list[tuple[str, bytes | None]]]:
    return lambda: services.security.users.change(user, upserts, deletions)


def _changes_of(
    request: AlterUserScramCredentialsRequest, user: str
) -> tuple[dict[SaslMechanism, ScramCredential], list[SaslMechanism]]:
    """Return the changes of one user. Raises RequestRefusedError."""
    if not user:
        raise RequestRefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user name is empty")
    deletions = [_mechanism(deletion.mechanism) for deletion in request.deletions if deletion.name == user]
    upserts = [upsert for upsert in request.upsertions if upsert.name == user]
    mechanisms = [*deletions, *(_mechanism(upsert.mechanism) for upsert in upserts)]
    if len(set(mechanisms)) < len(mechanisms):
        raise RequestRefusedError(
            ErrorCode.DUPLICATE_RESOURCE, "a user's credential of one mechanism may be changed only once in a request"
        )
    return {_mechanism(upsert.mechanism): _credential(upsert) for upsert in upserts}, deletions


def _mechanism(number: int) -> SaslMechanism:
    """Raises RequestRefusedError."""
    mechanism = next((name for name, other in SCRAM_NUMBERS.items() if other == number), None)
    if mechanism is None:
        raise RequestRefusedError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {number}")
    return mechanism


def _credential(upsert: ScramCredentialUpsertion) -> ScramCredential:
    """Raises RequestRefusedError."""
    if not ITERATIONS_MIN <= upsert.iterations <= ITERATIONS_MAX:
        raise RequestRefusedError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{upsert.iterations} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed",
        )
    if not upsert.salt or not upsert.salted_password:
        raise RequestRefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt or the salted password is empty")
    mechanism = _mechanism(upsert.mechanism)
    return credential_of(mechanism, bytes(upsert.salted_password), bytes(upsert.salt), upsert.iterations)
