"""Authentication: begins SASL exchanges, verifies passwords and tokens, and delays failures.

An unknown user costs the same time as a wrong password: a made-up credential is used. Its salt is the same each time,
and as long as those of users, as is its number of iterations, so that SCRAM does not tell unknown users from known ones
either.
"""

import asyncio
import hmac
from base64 import b64encode
from collections import Counter
from functools import partial
from hashlib import sha512

from logbrook.config.security import SecurityConfig
from logbrook.core.failed_attempts import FailedAttempts
from logbrook.core.users import Credentials, CredentialShape, shapes_of
from logbrook.model.security import USER, Principal, SaslMechanism, ScramCredential
from logbrook.ports import Clock, Random
from logbrook.protocol.scram import ScramError
from logbrook.server.cluster.background import pause
from logbrook.server.security.audit import AuditLog
from logbrook.server.security.errors import AuthenticationFailedError, InvalidSecurityError
from logbrook.server.security.oauth import TokenVerifier, new_token_verifier
from logbrook.server.security.password_hashing import PasswordHashing
from logbrook.server.security.sasl import Authenticated, OAuthExchange, PlainExchange, SaslExchange, ScramExchange
from logbrook.server.security.state import SecurityState
from logbrook.server.security.users_file import read_users_file

_NONCE_BYTES = 24
_SCRAM = (SaslMechanism.SCRAM_SHA_512, SaslMechanism.SCRAM_SHA_256)
# Of made-up credentials while no user has one of the mechanism: what `logbrook user create` uses.
_SALT_BYTES, _ITERATIONS = 16, 8_192


class Authentication:
    """One per broker, on the event loop. `stop` it once."""

    def __init__(
        self,
        config: SecurityConfig,
        state: SecurityState,
        audit: AuditLog,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        random: Random,
    ) -> None:
        """Raises InvalidSecurityError."""
        self._config = config
        self._state = state
        self.audit = audit
        self._loop = loop
        self._clock = clock
        self._random = random
        self.mechanisms = [mechanism for mechanism in SaslMechanism if mechanism in config.sasl_mechanisms]
        self._file_users = read_users_file(config.users_file) if config.users_file else {}
        self._file_shapes = Counter(shape for each in self._file_users.values() for shape in shapes_of(each))
        self._tokens: TokenVerifier | None = new_token_verifier(config, clock) if config.oauth_jwks else None
        if SaslMechanism.OAUTHBEARER in self.mechanisms and self._tokens is None:
            raise InvalidSecurityError("the SASL mechanism OAUTHBEARER needs security.oauth_jwks")
        self._failed = FailedAttempts(config.failed_authentication_delay_ms / 1000)
        # Salts of users that do not exist are derived from it.
        self._secret = random.token(32)
        self._hashing = PasswordHashing(loop)

    def stop(self) -> None:
        self._hashing.stop()
        if self._tokens is not None:
            self._tokens.stop()

    def new_exchange(self, mechanism: SaslMechanism, host: str) -> SaslExchange:
        """Begin an authentication of a client at the address `host` with an enabled mechanism."""
        assert mechanism in self.mechanisms
        if mechanism is SaslMechanism.PLAIN:
            return PlainExchange(partial(self._verify_password, host=host))
        if mechanism is SaslMechanism.OAUTHBEARER:
            return OAuthExchange(self._verify_token)
        nonce = b64encode(self._random.token(_NONCE_BYTES)).decode()
        return ScramExchange(mechanism, nonce, self._credential_of)

    async def verify_password(self, user: str, password: str, host: str) -> Principal:
        """Verify a password outside of SASL, for a client at the address `host`. Raises AuthenticationFailedError."""
        try:
            return await self._verify_password(user, password, host)
        except AuthenticationFailedError as error:
            await self.delay_failure(host, "password", user, error)
            raise

    async def verify_token(self, token: str, host: str) -> Authenticated:
        """Verify a bearer token outside of SASL. Raises AuthenticationFailedError."""
        try:
            return await self._verify_token(token)
        except AuthenticationFailedError as error:
            await self.delay_failure(host, "token", "", error)
            raise

    async def delay_failure(
        self, host: str, mechanism: str, user: str, error: AuthenticationFailedError, listener: str = ""
    ) -> None:
        """Record a failure, and return when it may be answered."""
        await pause(self.count_failure(host, mechanism, user, error, listener))

    def count_failure(
        self, host: str, mechanism: str, user: str, error: AuthenticationFailedError, listener: str = ""
    ) -> float:
        """Record a failure, and return after how many seconds it may be answered."""
        self.audit.authentication_failed(host, listener, mechanism, user, str(error))
        return self._failed.add(host, self._clock.monotonic_s())

    def lifetime_ms(self, authenticated: Authenticated) -> int | None:
        """Return how long a session may last: until the token or the time for re-authentication ends."""
        limits = [self._config.reauthentication_ms] if self._config.reauthentication_ms else []
        if authenticated.expires_ms is not None:
            limits.append(max(1, authenticated.expires_ms - self._clock.now_ms()))
        return min(limits, default=None)

    async def _verify_token(self, token: str) -> Authenticated:
        if self._tokens is None:
            raise AuthenticationFailedError("security.oauth_jwks is not set, so tokens cannot be verified")
        return await self._tokens.verify(token)

    async def _verify_password(self, user: str, password: str, host: str) -> Principal:
        credentials = self._credentials(user)
        mechanism = next((mechanism for mechanism in _SCRAM if mechanism in credentials), SaslMechanism.SCRAM_SHA_512)
        stored = credentials.get(mechanism) or self._made_up_credential(user, mechanism)
        try:
            derived = await self._hashing.derive(host, mechanism, password, stored)
        except ScramError as error:
            raise AuthenticationFailedError(str(error)) from None
        if not hmac.compare_digest(derived.stored_key, stored.stored_key):
            raise AuthenticationFailedError("wrong password" if credentials else "unknown user")
        return Principal(USER, user)

    def _credentials(self, user: str) -> Credentials:
        return self._state.users.credentials(user) or self._file_users.get(user, {})

    def _credential_of(self, user: str, mechanism: SaslMechanism) -> ScramCredential:
        return self._credentials(user).get(mechanism) or self._made_up_credential(user, mechanism)

    def _made_up_credential(self, user: str, mechanism: SaslMechanism) -> ScramCredential:
        """Return a credential that no password fits."""
        seed = hmac.digest(self._secret, f"{mechanism} {user}".encode(errors="surrogatepass"), sha512)
        size = 32 if mechanism is SaslMechanism.SCRAM_SHA_256 else 64
        shape = self._made_up_shape(mechanism, int.from_bytes(seed[:8], "big"))
        salt = seed[8:]
        while len(salt) < shape.salt_bytes:
            salt += hmac.digest(self._secret, salt, sha512)
        keys = self._random.token(2 * size)
        return ScramCredential(salt[: shape.salt_bytes], keys[:size], keys[size:], shape.iterations)

    def _made_up_shape(self, mechanism: SaslMechanism, number: int) -> CredentialShape:
        """Return the shape with this number. A shape has as large a share of the numbers as of all credentials."""
        shapes = self._file_shapes + self._state.users.shapes
        counts = sorted((shape, count) for shape, count in shapes.items() if shape.mechanism is mechanism)
        number %= max(1, sum(count for _, count in counts))
        for shape, count in counts:
            number -= count
            if number < 0:
                return shape
        return CredentialShape(mechanism, _SALT_BYTES, _ITERATIONS)
