"""The server's side of one SASL authentication: tokens of the client in, tokens for it out.

An exchange belongs to a connection, from SaslHandshake to its end. Its steps may wait for a password to be hashed or a
key to be fetched, both in a thread. The errors say no more than Kafka's do: a client must not learn which users exist.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeAlias

from logbrook.model.security import USER, Principal, SaslMechanism, ScramCredential
from logbrook.protocol.scram import ScramError, ScramServerExchange
from logbrook.server.security.errors import AuthenticationFailedError


class Authenticated(NamedTuple):
    """The result of an authentication. `expires_ms` is the end of a token's life in milliseconds since 1970."""

    principal: Principal
    expires_ms: int | None = None


class SaslStep(NamedTuple):
    """The token that answers the client's, and the result once the exchange is complete.

    `failure` is why it cannot succeed, if the client is told by a token: its next step raises the same error.
    """

    token: bytes
    authenticated: Authenticated | None = None
    failure: AuthenticationFailedError | None = None


class SaslExchange(Protocol):
    """`user` is the name that the client gave, empty until then."""

    mechanism: SaslMechanism
    user: str

    async def step(self, token: bytes) -> SaslStep:
        """Raises AuthenticationFailedError."""


VerifyPassword: TypeAlias = Callable[[str, str], Awaitable[Principal]]
VerifyToken: TypeAlias = Callable[[str], Awaitable[Authenticated]]
CredentialOf: TypeAlias = Callable[[str, SaslMechanism], ScramCredential]


class PlainExchange:
    """PLAIN (RFC 4616): user name and password in one token. The authorization id must be empty or the user's name."""

    def __init__(self, verify: VerifyPassword) -> None:
        self.mechanism = SaslMechanism.PLAIN
        self.user = ""
        self._verify = verify

    async def step(self, token: bytes) -> SaslStep:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailedError("the PLAIN token is not UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationFailedError("the PLAIN token has no user name and password")
        authorization_id, self.user, password = parts
        if not self.user or not password:
            raise AuthenticationFailedError("the user name or the password is empty")
        if authorization_id not in ("", self.user):
            raise AuthenticationFailedError("a client may authenticate as itself only")
        return SaslStep(b"", Authenticated(await self._verify(self.user, password)))


class ScramExchange:
    """SCRAM (RFC 5802). `credential_of` returns a made-up credential for users that do not exist."""

    def __init__(self, mechanism: SaslMechanism, nonce: str, credential_of: CredentialOf) -> None:
        self.mechanism = mechanism
        self.user = ""
        self._exchange = ScramServerExchange(mechanism, nonce)
        self._credential_of = credential_of
        self._is_begun = False

    async def step(self, token: bytes) -> SaslStep:
        try:
            if not self._is_begun:
                self._is_begun = True
                self._exchange.read_first(token)
                self.user = self._exchange.username
                return SaslStep(self._exchange.first_message(self._credential_of(self.user, self.mechanism)))
            final = self._exchange.final_message(token)
        except ScramError as error:
            raise AuthenticationFailedError(str(error)) from error
        return SaslStep(final, Authenticated(Principal(USER, self.user)))


class OAuthExchange:
    """OAUTHBEARER (RFC 7628). A refused token is answered with an error object, and the client ends with one byte.

    A message that is malformed fails at once, as in Kafka.
    """

    def __init__(self, verify: VerifyToken) -> None:
        self.mechanism = SaslMechanism.OAUTHBEARER
        self.user = ""
        self._verify = verify
        self._failure: AuthenticationFailedError | None = None

    async def step(self, token: bytes) -> SaslStep:
        if self._failure is not None:
            raise self._failure
        bearer = read_bearer_message(token)
        try:
            authenticated = await self._verify(bearer)
        except AuthenticationFailedError as error:
            self._failure = error
            return SaslStep(b'{"status":"invalid_token"}', failure=error)
        self.user = authenticated.principal.name
        return SaslStep(b"", authenticated)


def read_bearer_message(message: bytes) -> str:
    """Return the token of a client's first message. Raises AuthenticationFailedError."""
    try:
        gs2_header, *pairs = message.decode("ascii").split("\x01")
    except UnicodeDecodeError:
        raise AuthenticationFailedError("the OAUTHBEARER message is not ASCII") from None
    if not gs2_header.startswith("n,") or pairs[-2:] != ["", ""]:
        raise AuthenticationFailedError("the OAUTHBEARER message is malformed")
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key == "auth":
            scheme, _, token = value.partition(" ")
            if scheme.lower() == "bearer" and token.strip():
                return token.strip()
    raise AuthenticationFailedError("the OAUTHBEARER message has no bearer token")
