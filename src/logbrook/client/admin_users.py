"""Administration of users and their passwords: SCRAM credentials in the cluster (KIP-554).

The cluster gets a salted and hashed password, never the password itself. The salted password of a mechanism is enough
to log in with it, so it belongs on connections that are encrypted, too.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from logbrook.client.client import Client
from logbrook.client.errors import check_code
from logbrook.model.security import SaslMechanism
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from logbrook.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from logbrook.protocol.scram import salted_password

SCRAM_MECHANISMS = (SaslMechanism.SCRAM_SHA_512, SaslMechanism.SCRAM_SHA_256)
# The bounds of Kafka's brokers.
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16_384
DEFAULT_ITERATIONS = 8192

_NUMBERS = {SaslMechanism.SCRAM_SHA_256: 1, SaslMechanism.SCRAM_SHA_512: 2}
_SALT_BYTES = 32


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user with the number of iterations of each mechanism's credential."""

    name: str
    iterations: dict[SaslMechanism, int]


class UserAdmin:
    """Every call may raise ClientError. A user that does not exist is RESOURCE_NOT_FOUND."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self) -> list[UserInfo]:
        """Return the users that have SCRAM credentials, by name."""
        return self._describe(None)

    def existing(self, names: Sequence[str]) -> dict[str, UserInfo]:
        """Return those of the named users that exist."""
        return {user.name: user for user in self._describe(names)}

    def set_password(
        self,
        name: str,
        password: str,
        mechanisms: Iterable[SaslMechanism] = SCRAM_MECHANISMS,
        iterations: int = DEFAULT_ITERATIONS,
    ) -> None:
        """Create or replace the user's credentials for these mechanisms.

        Kafka takes one credential of a user per request, so there is a request per mechanism.
        """
        for mechanism in mechanisms:
            salt = secrets.token_bytes(_SALT_BYTES)
            upsertion = ScramCredentialUpsertion(
                name=name,
                mechanism=_NUMBERS[mechanism],
                iterations=iterations,
                salt=salt,
                salted_password=salted_password(mechanism, password, salt, iterations),
            )
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
            self._alter(f"setting the password of user {name}", request)

    def delete(self, users: Iterable[UserInfo], mechanisms: Sequence[SaslMechanism] = SCRAM_MECHANISMS) -> None:
        """Delete the users' credentials for these mechanisms. A user without any is gone."""
        chosen = list(users)
        for mechanism in mechanisms:
            names = [user.name for user in chosen if mechanism in user.iterations]
            deletions = [ScramCredentialDeletion(name=name, mechanism=_NUMBERS[mechanism]) for name in names]
            if deletions:
                self._alter(f"deleting {', '.join(names)}", AlterUserScramCredentialsRequest(deletions=deletions))

    def _describe(self, names: Sequence[str] | None) -> list[UserInfo]:
        wanted = None if names is None else [UserName(name=name) for name in dict.fromkeys(names)]
        request = DescribeUserScramCredentialsRequest(users=wanted)
        response = self._client.request(request, DescribeUserScramCredentialsResponse)
        check_code(response.error_code, "listing users", response.error_message)
        users = []
        for result in response.results:
            if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            check_code(result.error_code, f"looking up user {result.user}", result.error_message)
            mechanisms = {number: mechanism for mechanism, number in _NUMBERS.items()}
            iterations = {
                mechanisms[info.mechanism]: info.iterations
                for info in result.credential_infos
                if info.mechanism in mechanisms
            }
            users.append(UserInfo(result.user, iterations))
        return sorted(users, key=lambda user: user.name)

    def _alter(self, operation: str, request: AlterUserScramCredentialsRequest) -> None:
        response = self._client.request_controller(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            check_code(result.error_code, operation, result.error_message)
