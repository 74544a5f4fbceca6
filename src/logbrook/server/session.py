"""The security state of one client connection: its listener, its principal, and how far its authentication is.

On a listener without SASL a connection is authenticated from the start: as the principal of its certificate, or as
User:ANONYMOUS. On one with SASL it is not, and until it is, only `UNAUTHENTICATED_APIS` are served, in small frames.
"""

import asyncio
from typing import TYPE_CHECKING

from logbrook.config.network import DEFAULT_LISTENER
from logbrook.model.security import ANONYMOUS, Principal, SaslMechanism, SecurityProtocol
from logbrook.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from logbrook.server.security.sasl import SaslExchange

_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 17, 18, 36
# Keys of the APIs that are served before the authentication, and after the session has expired.
UNAUTHENTICATED_APIS = frozenset({_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE})
# Largest request of a connection that is not authenticated, as in Kafka.
UNAUTHENTICATED_BYTES_MAX = 512 * 1024


class NotAuthenticatedError(ProtocolError):
    """A request that needs authentication, on a connection that is not authenticated. The connection is closed."""

    def __init__(self, api_key: int) -> None:
        super().__init__(f"a request with API key {api_key} before the authentication")


class SessionExpiredError(ProtocolError):
    """A request after the end of the session: the client had to authenticate again (KIP-368)."""

    def __init__(self, principal: Principal) -> None:
        super().__init__(f"the session of {principal} has expired; the client has to authenticate again")


class ConnectionSession:
    """One per connection, on the event loop. Changed by the handlers of SASL, and by the enforcement of quotas."""

    __slots__ = (
        "_is_ended",
        "_waking",
        "exchange",
        "expires_s",
        "has_raw_tokens",
        "host",
        "is_authenticated",
        "is_authenticating",
        "is_failed",
        "listener",
        "mechanism",
        "muted_until_s",
        "principal",
        "protocol",
    )

    def __init__(
        self,
        host: str = "",
        listener: str = DEFAULT_LISTENER,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.host = host
        self.listener = listener
        self.protocol = protocol
        self.principal = principal
        self.is_authenticated = not protocol.uses_sasl
        # The mechanism of the authentication that has succeeded.
        self.mechanism: SaslMechanism | None = None
        # The authentication that was begun by SaslHandshake and is not complete.
        self.exchange: SaslExchange | None = None
        # The tokens of the exchange come without Kafka's header: it was begun by SaslHandshake version 0.
        self.has_raw_tokens = False
        # A step of the exchange is being verified.
        self.is_authenticating = False
        # An authentication has failed: the connection is closed after the response.
        self.is_failed = False
        # The end of the session in seconds of the event loop's clock, None without one.
        self.expires_s: float | None = None
        # No request is read before this time of the event loop's clock: a quota is exceeded. 0 without one.
        self.muted_until_s = 0.0
        self._is_ended = False
        # Ends `wait`.
        self._waking: asyncio.Event | None = None

    def check(self, api_key: int, now_s: float) -> None:
        """Raises NotAuthenticatedError or SessionExpiredError if a request of this API must not be served."""
        if api_key in UNAUTHENTICATED_APIS:
            return
        if not self.is_authenticated:
            raise NotAuthenticatedError(api_key)
        if self.expires_s is not None and now_s >= self.expires_s:
            raise SessionExpiredError(self.principal)

    async def wait(self, seconds: float) -> None:
        """Return after this time, or when the connection is lost: then nobody waits for the response."""
        if self._is_ended:
            return
        self._waking = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(seconds, self._waking.set)
        await self._waking.wait()
        timer.cancel()

    def end(self) -> None:
        """The connection is lost."""
        self._is_ended = True
        if self._waking is not None:
            self._waking.set()


ANONYMOUS_SESSION = ConnectionSession()
