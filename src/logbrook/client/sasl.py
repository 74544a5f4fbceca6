"""The client's side of SASL over Kafka's messages, without I/O: SaslHandshake, then SaslAuthenticate until done.

    exchange = SaslClientExchange(options, host, port, nonce=new_nonce(), token=...)
    while exchange.request is not None:
        exchange.receive(<the response, of type exchange.response, to exchange.request>)
    exchange.session_lifetime_ms

The same exchange re-authenticates a connection (KIP-368): `renewal_delay_s` says when. `receive` of SCRAM derives a
key, which takes milliseconds; an event loop lets a thread do it.
"""

import random
import secrets
from collections.abc import Generator
from typing import Any, TypeAlias

from logbrook.client.errors import BrokerError, MechanismNotOfferedError, SaslRefusedError, WrongSecurityProtocolError
from logbrook.client.sasl_options import SaslOptions
from logbrook.model.security import SaslMechanism
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from logbrook.protocol.schema import ApiMessage
from logbrook.protocol.scram import ScramClientExchange, ScramError

# The version in which tokens are sent in SaslAuthenticate (KIP-152), and the one with session lifetimes and tags.
HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 2

_NONCE_BYTES = 24
# As Java's clients: before the next request after 85 to 95 % of the session's lifetime.
_RENEWAL_PART_MIN, _RENEWAL_PART_MAX = 0.85, 0.95
# RFC 7628: the client ends a failed exchange with this message.
_OAUTH_FAILED = b"\x01"

# Takes what the server sends, yields what the client sends.
Mechanism: TypeAlias = Generator[bytes, bytes, None]


def new_nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


def renewal_delay_s(session_lifetime_ms: int) -> float | None:
    """Return after how long to authenticate again; None if the session does not end."""
    if session_lifetime_ms <= 0:
        return None
    return session_lifetime_ms / 1000 * random.uniform(_RENEWAL_PART_MIN, _RENEWAL_PART_MAX)


class SaslClientExchange:
    """One authentication of a connection. `request` is the next message to send, None once it is authenticated.

    `receive` raises MechanismNotOfferedError, SaslRefusedError, WrongSecurityProtocolError or BrokerError.
    """

    def __init__(self, options: SaslOptions, host: str, port: int, *, nonce: str, token: str = "") -> None:
        """`token` is that of OAUTHBEARER, `nonce` is a random text for SCRAM."""
        self.request: ApiMessage | None = SaslHandshakeRequest(mechanism=str(options.mechanism))
        self.session_lifetime_ms = 0
        self._options = options
        self._host = host
        self._port = port
        self._mechanism = _mechanism(options, nonce, token)

    @property
    def response(self) -> type[Any]:
        is_handshake = isinstance(self.request, SaslHandshakeRequest)
        return SaslHandshakeResponse if is_handshake else SaslAuthenticateResponse

    @property
    def version(self) -> int:
        """The version for a broker that is known to support it, such as one of the same cluster."""
        return HANDSHAKE_VERSION if isinstance(self.request, SaslHandshakeRequest) else AUTHENTICATE_VERSION

    def receive(self, response: SaslHandshakeResponse | SaslAuthenticateResponse) -> None:
        """Take the response to `request` and set the next one."""
        if isinstance(response, SaslHandshakeResponse):
            self._check_handshake(response)
            self.request = SaslAuthenticateRequest(auth_bytes=next(self._mechanism))
            return
        self._check_authenticated(response)
        try:
            self.request = SaslAuthenticateRequest(auth_bytes=self._mechanism.send(bytes(response.auth_bytes)))
        except StopIteration:
            self.request = None
            self.session_lifetime_ms = response.session_lifetime_ms
        except ScramError as error:
            raise self._refused(str(error)) from None

    def _check_handshake(self, response: SaslHandshakeResponse) -> None:
        code, mechanism = response.error_code, self._options.mechanism
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise MechanismNotOfferedError(self._host, self._port, mechanism, response.mechanisms)
        if code == ErrorCode.ILLEGAL_SASL_STATE:
            hint = "set security.protocol to PLAINTEXT, or to SSL if it has TLS"
            message = f"{self._host}:{self._port} does not authenticate with SASL; {hint}"
            raise WrongSecurityProtocolError(self._host, self._port, message)
        if code:
            raise BrokerError(code, f"authenticating at {self._host}:{self._port}")

    def _check_authenticated(self, response: SaslAuthenticateResponse) -> None:
        if response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise self._refused(response.error_message or "authentication failed")
        if response.error_code:
            operation = f"authenticating at {self._host}:{self._port}"
            raise BrokerError(response.error_code, operation, response.error_message)

    def _refused(self, reason: str) -> SaslRefusedError:
        user, mechanism = self._options.shown_user, self._options.mechanism
        address = f"{self._host}:{self._port}"
        return SaslRefusedError(
            self._host, self._port, f"authentication of {user} at {address} with {mechanism} failed: {reason}"
        )


def _mechanism(options: SaslOptions, nonce: str, token: str) -> Mechanism:
    match options.mechanism:
        case SaslMechanism.PLAIN:
            return _plain(options)
        case SaslMechanism.OAUTHBEARER:
            return _oauthbearer(options, token)
        case _:
            return _scram(options, nonce)


def _plain(options: SaslOptions) -> Mechanism:
    # RFC 4616: an empty authorization id, the user and the password.
    yield f"\0{options.username}\0{options.password}".encode()


def _scram(options: SaslOptions, nonce: str) -> Mechanism:
    exchange = ScramClientExchange(options.mechanism, options.username, options.password, nonce)
    server_first = yield exchange.first_message()
    server_final = yield exchange.final_message(server_first)
    exchange.verify(server_final)


def _oauthbearer(options: SaslOptions, token: str) -> Mechanism:
    pairs = [("auth", f"Bearer {token}"), *(options.oauth.extensions if options.oauth else ())]
    fields = "".join(f"\x01{key}={value}" for key, value in pairs)
    refusal = yield f"n,,{fields}\x01\x01".encode()
    if refusal:
        # The reason is in a JSON document; the response to this has it as a message.
        yield _OAUTH_FAILED
        raise ScramError("the broker refuses the token")
