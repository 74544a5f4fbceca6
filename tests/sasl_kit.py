"""SASL over bare sockets, for what no client library would send, and users for tests."""

import json
import socket
import ssl
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from logbrook.core.users import encode_credentials
from logbrook.model.security import SaslMechanism
from logbrook.protocol.decoding import decode
from logbrook.protocol.encoding import encode
from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataResponse
from logbrook.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from logbrook.protocol.reader import Reader, read_int32, skip_tags
from logbrook.protocol.schema import ApiMessage
from logbrook.protocol.scram import ScramClientExchange, credential_of, salted_password

R = TypeVar("R", bound=ApiMessage)
SALT = b"0123456789abcdef"
SCRAM = [SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512]


def users_file(folder: Path, users: dict[str, str]) -> Path:
    """Write a users file with these passwords."""
    content = {}
    for user, password in users.items():
        credentials = {
            mechanism: credential_of(mechanism, salted_password(mechanism, password, SALT, 4096), SALT, 4096)
            for mechanism in SCRAM
        }
        content[user] = json.loads(encode_credentials(credentials))
    path = folder / "users.json"
    path.write_text(json.dumps({"users": content}))
    return path


def frame_of(message: ApiMessage, version: int, correlation_id: int = 1) -> bytes:
    start = RequestStart(message.API_KEY, version, correlation_id)
    has_tags = version >= message.FLEXIBLE_SINCE
    return b"".join(frame_request(start, "sasl", encode(message, version), has_tags=has_tags))


class SaslSocket:
    """A connection that authenticates step by step. Every method raises EOFError if the broker has closed it."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def request(self, message: ApiMessage, response: type[R], version: int) -> R:
        try:
            self.socket.sendall(frame_of(message, version))
        except (ConnectionError, ssl.SSLEOFError):
            raise EOFError from None
        return self.receive(response, version)

    def receive(self, response: type[R], version: int) -> R:
        reader = Reader(memoryview(self.receive_frame()))
        read_int32(reader)
        if version >= response.FLEXIBLE_SINCE and response is not ApiVersionsResponse:
            skip_tags(reader)
        return decode(response, version, reader)

    def shake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        return self.request(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version)

    def step(self, token: bytes) -> SaslAuthenticateResponse:
        return self.request(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 2)

    def step_raw(self, token: bytes) -> bytes:
        """Send a token without Kafka's header, as after SaslHandshake version 0."""
        self.socket.sendall(len(token).to_bytes(4, "big") + token)
        return self.receive_frame()

    def log_in(self, user: str, password: str) -> SaslAuthenticateResponse:
        """Authenticate with PLAIN."""
        self.shake("PLAIN")
        return self.step(f"\0{user}\0{password}".encode())

    def log_in_by_scram(self, mechanism: SaslMechanism, user: str, password: str) -> SaslAuthenticateResponse:
        exchange = ScramClientExchange(mechanism, user, password, "nonce")
        self.shake(mechanism)
        first = self.step(exchange.first_message())
        final = self.step(exchange.final_message(bytes(first.auth_bytes)))
        if not final.error_code:
            exchange.verify(bytes(final.auth_bytes))
        return final

    def ask_versions(self) -> ApiVersionsResponse:
        """ApiVersions is served before the authentication, too."""
        return self.request(ApiVersionsRequest(), ApiVersionsResponse, 0)

    def is_served(self) -> bool:
        """True if the broker serves a request that needs authentication."""
        try:
            self.request(MetadataRequest(topics=[]), MetadataResponse, 9)
        except EOFError:
            return False
        return True

    def is_closed(self) -> bool:
        """Wait until the broker closes the connection. False if it sends something before."""
        try:
            return self.socket.recv(1) == b""
        except (ConnectionError, ssl.SSLEOFError):
            return True

    def receive_frame(self) -> bytes:
        return self._receive(int.from_bytes(self._receive(4), "big"))

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            try:
                more = self.socket.recv(size - len(received))
            except (ConnectionError, ssl.SSLEOFError):
                more = b""
            if not more:
                raise EOFError
            received += more
        return received
