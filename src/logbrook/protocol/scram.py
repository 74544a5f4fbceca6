"""SCRAM (RFC 5802, RFC 7677) as Kafka uses it: the messages and keys of both sides, without I/O and randomness.

    client-first   n,,n=USER,r=CLIENT_NONCE
    server-first   r=CLIENT_NONCE SERVER_NONCE,s=SALT,i=ITERATIONS
    client-final   c=biws,r=CLIENT_NONCE SERVER_NONCE,p=PROOF
    server-final   v=SIGNATURE

The proof shows that the client has the password; the signature shows that the server has the user's credential, from
which the password cannot be derived. Names and passwords are UTF-8 without SASLprep, as in Kafka. There is no channel
binding: a client that demands it is refused. An authorization id must be empty or equal to the user (CVE-2017-12610).
Mandatory extensions (`m=`) are refused, others are ignored.
"""

import base64
import binascii
import hashlib
import hmac
import re

from logbrook.model.security import SaslMechanism, ScramCredential
from logbrook.protocol.errors import ProtocolError

# Kafka's minimum. The maximum of a client protects it from a server that asks for hours of work.
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 10_000_000

_MESSAGE_BYTES_MAX = 16 * 1024
_HASHES = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}
_CLIENT_KEY = b"Client Key"
_SERVER_KEY = b"Server Key"

_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/=]+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^\x00,]+)*"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>(?P<binding>[^,]*),(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_SERVER_FIRST = re.compile(rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}")
_CLIENT_FINAL = re.compile(
    rf"(?P<unproven>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[^\x00,]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class ScramError(ProtocolError):
    """The exchange failed: a message is malformed, or the peer did not prove that it knows the user's secret."""


def salted_password(mechanism: SaslMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Derive the salted password. Takes milliseconds by design; it releases the GIL, so a thread can run it."""
    return hashlib.pbkdf2_hmac(_hash(mechanism), _utf8(password), salt, iterations)


def credential_of(mechanism: SaslMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a user from the salted password."""
    stored_key = hashlib.new(_hash(mechanism), _hmac(mechanism, salted, _CLIENT_KEY)).digest()
    return ScramCredential(salt, stored_key, _hmac(mechanism, salted, _SERVER_KEY), iterations)


class ScramClientExchange:
    """One authentication, the client's side: `first_message`, `final_message`, `verify`, in this order."""

    def __init__(self, mechanism: SaslMechanism, username: str, password: str, client_nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = client_nonce
        self._first_bare = f"n={_escaped(username)},r={client_nonce}"
        self._server_signature = b""

    def first_message(self) -> bytes:
        return _utf8(f"n,,{self._first_bare}")

    def final_message(self, server_first: bytes) -> bytes:
        """Return the client's proof. Derives the salted password, which is slow. Raises ScramError."""
        message = _match(_SERVER_FIRST, server_first, "first message of the server")
        nonce, iterations = message["nonce"], int(message["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's nonce does not extend the client's")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            limits = f"{ITERATIONS_MIN} to {ITERATIONS_MAX}"
            raise ScramError(f"the server asks for {iterations} iterations; allowed are {limits}")
        salted = salted_password(self._mechanism, self._password, _base64(message["salt"]), iterations)
        unproven = f"c={_encoded(b'n,,')},r={nonce}"
        auth_message = _utf8(f"{self._first_bare},{message[0]},{unproven}")
        client_key = _hmac(self._mechanism, salted, _CLIENT_KEY)
        stored_key = hashlib.new(_hash(self._mechanism), client_key).digest()
        proof = _xor(client_key, _hmac(self._mechanism, stored_key, auth_message))
        server_key = _hmac(self._mechanism, salted, _SERVER_KEY)
        self._server_signature = _hmac(self._mechanism, server_key, auth_message)
        return _utf8(f"{unproven},p={_encoded(proof)}")

    def verify(self, server_final: bytes) -> None:
        """Raise ScramError unless the server proved that it has the user's credential."""
        message = _match(_SERVER_FINAL, server_final, "final message of the server")
        if message["error"] is not None:
            raise ScramError(f"the server refuses: {message['error']}")
        if not self._server_signature or not hmac.compare_digest(_base64(message["signature"]), self._server_signature):
            raise ScramError("the server did not prove that it knows the user's credential")


class ScramServerExchange:
    """One authentication, the server's side: `read_first`, `first_message`, `final_message`, in this order.

    A server that has no such user goes on with a made-up credential, so that the answers do not tell the two apart.
    """

    def __init__(self, mechanism: SaslMechanism, server_nonce: str) -> None:
        self._mechanism = mechanism
        self._server_nonce = server_nonce
        self.username = ""
        self._header = b""
        self._first_bare = ""
        self._nonce = ""
        # What librdkafka before 2.6.1 sends as the nonce of its final message: its own one twice, then the server's.
        self._doubled_nonce = ""
        self._server_first = ""
        self._credential: ScramCredential | None = None

    def read_first(self, data: bytes) -> None:
        """Read the client's first message; sets `username`. Raises ScramError."""
        message = _match(_CLIENT_FIRST, data, "first message of the client")
        if message["binding"] not in ("n", "y"):
            raise ScramError("the client demands channel binding, which is not supported")
        username = _unescaped(message["name"])
        if message["authzid"] is not None and _unescaped(message["authzid"]) != username:
            raise ScramError("the client asks for an authorization id that differs from its user name")
        self.username = username
        self._header = _utf8(message["header"])
        self._first_bare = message["bare"]
        self._nonce = message["nonce"] + self._server_nonce
        self._doubled_nonce = message["nonce"] + self._nonce

    def first_message(self, credential: ScramCredential) -> bytes:
        """Return the server's first message: the nonce, and the salt and iterations of `credential`."""
        assert self._first_bare, "the client's first message is read first"
        self._credential = credential
        self._server_first = f"r={self._nonce},s={_encoded(credential.salt)},i={credential.iterations}"
        return _utf8(self._server_first)

    def final_message(self, data: bytes) -> bytes:
        """Verify the client's proof and return the server's signature. Raises ScramError."""
        assert self._credential is not None, "the server's first message is sent first"
        credential, self._credential = self._credential, None
        message = _match(_CLIENT_FINAL, data, "final message of the client")
        if _base64(message["binding"]) != self._header:
            raise ScramError("the channel binding differs from that of the client's first message")
        if message["nonce"] not in (self._nonce, self._doubled_nonce):
            raise ScramError("the client's nonce is not that of this exchange")
        auth_message = _utf8(f"{self._first_bare},{self._server_first},{message['unproven']}")
        signature = _hmac(self._mechanism, credential.stored_key, auth_message)
        client_key = _xor(signature, _base64(message["proof"]))
        stored_key = hashlib.new(_hash(self._mechanism), client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise ScramError("the client's proof does not match the user's credential")
        return _utf8(f"v={_encoded(_hmac(self._mechanism, credential.server_key, auth_message))}")


def _match(pattern: re.Pattern[str], data: bytes, what: str) -> re.Match[str]:
    """Match a whole message. The content is not in the error, because it may hold a proof."""
    if len(data) > _MESSAGE_BYTES_MAX:
        raise ScramError(f"the {what} has {len(data)} bytes, more than {_MESSAGE_BYTES_MAX}")
    try:
        message = pattern.fullmatch(data.decode())
    except UnicodeDecodeError:
        message = None
    if message is None:
        raise ScramError(f"the {what} is malformed")
    return message


def _hash(mechanism: SaslMechanism) -> str:
    return _HASHES[mechanism]


def _hmac(mechanism: SaslMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, _hash(mechanism))


def _xor(left: bytes, right: bytes) -> bytes:
    if len(left) != len(right):
        raise ScramError(f"a proof of {len(right)} bytes is not {len(left)} bytes long")
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError("a value is not valid base64") from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ScramError("a name or password has characters that UTF-8 cannot encode") from None
