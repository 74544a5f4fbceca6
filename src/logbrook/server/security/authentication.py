"""Authentication: begins SASL exchanges, verifies passwords and tokens, and delays failures.

Passwords are hashed in one thread, so that the event loop and other threads go on; the number of those that wait is
bounded. An unknown user costs the same time as a wrong password: a made-up credential is used, which is the same each
time, so that it does not tell unknown users from known ones either.
"""

import asyncio
import hmac
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha512

from logbrook.config.security import SecurityConfig
from logbrook.core.failed_attempts import FailedAttempts
from logbrook.model.security import USER, Principal, SaslMechanism, ScramCredential
from logbrook.ports import Clock, Random
from logbrook.protocol.scram import credential_of, salted_password
from logbrook.server.cluster.background import pause
from logbrook.server.security.audit import AuditLog
from logbrook.server.security.errors import AuthenticationFailedError, InvalidSecurityError
from logbrook.server.security.oauth import TokenVerifier, new_token_verifier
from logbrook.server.security.sasl import Authenticated, OAuthExchange, PlainExchange, SaslExchange, ScramExchange
from logbrook.server.security.state import SecurityState
from logbrook.server.security.users_file import read_users_file

# Passwords that wait to be hashed, 5 ms each. More are refused.
_WAITING_MAX = 1_000
_NONCE_BYTES = 24
_SCRAM = (SaslMechanism.SCRAM_SHA_512, SaslMechanism.SCRAM_SHA_256)
# Iterations of users who do not exist: what `logbrook user create` uses.
_MADE_UP_ITERATIONS = 8_192


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
        self._tokens: TokenVerifier | None = new_token_verifier(config, clock) if config.oauth_jwks else None
        if SaslMechanism.OAUTHBEARER in self.mechanisms and self._tokens is None:
            raise InvalidSecurityError("the SASL mechanism OAUTHBEARER needs security.oauth_jwks")
        self._failed = FailedAttempts(config.failed_authentication_delay_ms / 1000)
        # Salts of users that do not exist are derived from it.
        self._secret = random.token(32)
        self._hashing: ThreadPoolExecutor | None = None
        self._waiting = 0

    def stop(self) -> None:
        if self._hashing is not None:
            self._hashing.shutdown(cancel_futures=True)

    def new_exchange(self, mechanism: SaslMechanism) -> SaslExchange:
        """Begin an authentication with an enabled mechanism."""
        assert mechanism in self.mechanisms
        if mechanism is SaslMechanism.PLAIN:
            return PlainExchange(self._verify_password)
        if mechanism is SaslMechanism.OAUTHBEARER:
            return OAuthExchange(self._verify_token)
        nonce = b64encode(self._random.token(_NONCE_BYTES)).decode()
        return ScramExchange(mechanism, nonce, self._credential_of)

    async def verify_password(self, user: str, password: str, host: str) -> Principal:
        """Verify a password outside of SASL, for a client at the address `host`. Raises AuthenticationFailedError."""
        try:
            return await self._verify_password(user, password)
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
        self.audit.authentication_failed(host, listener, mechanism, user, str(error))
        await pause(self._failed.add(host, self._clock.monotonic_s()))

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

    async def _verify_password(self, user: str, password: str) -> Principal:
        credentials = self._state.users.credentials(user) or self._file_users.get(user, {})
        mechanism = next((mechanism for mechanism in _SCRAM if mechanism in credentials), SaslMechanism.SCRAM_SHA_512)
        stored = credentials.get(mechanism) or self._made_up_credential(user, mechanism)
        derived = await self._hash(mechanism, password, stored)
        if not hmac.compare_digest(derived.stored_key, stored.stored_key):
            raise AuthenticationFailedError("wrong password" if credentials else "unknown user")
        return Principal(USER, user)

    async def _hash(self, mechanism: SaslMechanism, password: str, stored: ScramCredential) -> ScramCredential:
        if self._waiting >= _WAITING_MAX:
            raise AuthenticationFailedError("too many passwords wait to be verified")
        if self._hashing is None:
            self._hashing = ThreadPoolExecutor(1, "password")

        def derive() -> ScramCredential:
            salted = salted_password(mechanism, password, stored.salt, stored.iterations)
            return credential_of(mechanism, salted, stored.salt, stored.iterations)

        self._waiting += 1
        try:
            return await self._loop.run_in_executor(self._hashing, derive)
        finally:
            self._waiting -= 1

    def _credential_of(self, user: str, mechanism: SaslMechanism) -> ScramCredential:
        stored = self._state.users.credentials(user) or self._file_users.get(user, {})
        return stored.get(mechanism) or self._made_up_credential(user, mechanism)

    def _made_up_credential(self, user: str, mechanism: SaslMechanism) -> ScramCredential:
        """Return a credential that no password fits."""
        seed = hmac.digest(self._secret, f"{mechanism} {user}".encode(), sha512)
        size = 32 if mechanism is SaslMechanism.SCRAM_SHA_256 else 64
        return ScramCredential(seed[:16], self._random.token(size), self._random.token(size), _MADE_UP_ITERATIONS)
