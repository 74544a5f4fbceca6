"""SASL over sockets: tokens without Kafka's header, connections that do not authenticate, and failures."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from logbrook.model.security import SaslMechanism
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from logbrook.protocol.scram import ScramClientExchange
from logbrook.server.session import UNAUTHENTICATED_BYTES_MAX
from tests.sasl_kit import SCRAM, SaslSocket, frame_of, users_file
from tests.unit.server.shell_kit import Shell

CONNECTIONS_MAX = 16


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    settings = {
        "network": {"connections_max": CONNECTIONS_MAX},
        "security": {
            "protocol": "SASL_PLAINTEXT",
            "users_file": str(users_file(tmp_path_factory.mktemp("users"), {"alice": "wonderland"})),
            "sasl_mechanisms": ["PLAIN", *SCRAM],
            "failed_authentication_delay_ms": 0,
        },
    }
    with Shell(settings) as shell:
        yield shell


@pytest.fixture
def connection(shell: Shell) -> Iterator[SaslSocket]:
    with SaslSocket(shell.connect()) as connection:
        yield connection


def test_a_client_with_tokens_without_header_authenticates_by_plain(connection: SaslSocket) -> None:
    assert connection.shake("PLAIN", version=0).error_code == ErrorCode.NONE
    assert connection.step_raw(b"\0alice\0wonderland") == b""
    assert connection.is_served()
    # After that tokens have headers, and a re-authentication begins with version 1.
    assert connection.shake("PLAIN", version=0).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert connection.log_in("alice", "wonderland").error_code == ErrorCode.NONE
    assert connection.is_served()


def test_a_client_with_tokens_without_header_authenticates_by_scram(connection: SaslSocket) -> None:
    exchange = ScramClientExchange(SaslMechanism.SCRAM_SHA_256, "alice", "wonderland", "nonce")
    connection.shake("SCRAM-SHA-256", version=0)
    exchange.verify(connection.step_raw(exchange.final_message(connection.step_raw(exchange.first_message()))))
    assert connection.is_served()


def test_a_token_without_header_may_arrive_byte_by_byte(connection: SaslSocket) -> None:
    connection.shake("PLAIN", version=0)
    token = b"\0alice\0wonderland"
    for byte in len(token).to_bytes(4, "big") + token:
        connection.socket.sendall(bytes([byte]))
    assert connection.receive_frame() == b""
    assert connection.is_served()


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\0\0\x0e\0alice\0wrongpw",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        (UNAUTHENTICATED_BYTES_MAX + 1).to_bytes(4, "big"),
        frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1),
    ],
    ids=["wrong", "empty", "negative", "too long", "a request"],
)
def test_tokens_without_header_that_are_wrong_close_the_connection(connection: SaslSocket, sent: bytes) -> None:
    connection.shake("PLAIN", version=0)
    connection.socket.sendall(sent)
    assert connection.is_closed()


def test_a_token_that_is_sent_before_the_answer_of_version_0_is_refused(connection: SaslSocket) -> None:
    token = b"\0alice\0wonderland"
    handshake = frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    connection.socket.sendall(handshake + len(token).to_bytes(4, "big") + token)
    try:
        connection.receive(SaslHandshakeResponse, 0)
        assert connection.is_closed()
    except EOFError:
        pass


def test_a_mechanism_that_is_not_enabled_is_answered_recorded_and_ends_the_connection(
    shell: Shell, connection: SaslSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[tuple[str, ...]] = []
    monkeypatch.setattr(shell.services.audit, "authentication_failed", lambda *facts: recorded.append(facts))
    assert connection.shake("GSSAPI").error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert connection.is_closed()
    reason = "the mechanism is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"
    assert recorded == [("127.0.0.1", "CLIENTS", "GSSAPI", "", reason)]


def test_connections_that_do_not_authenticate_give_way_to_others(shell: Shell) -> None:
    with ExitStack() as stack:

        def connected() -> SaslSocket:
            return stack.enter_context(SaslSocket(shell.connect()))

        honest = connected()
        honest.log_in("alice", "wonderland")
        assert honest.is_served()
        for _ in range(3 * CONNECTIONS_MAX):
            connected().ask_versions()
        late = connected()
        late.log_in("alice", "wonderland")
        assert late.is_served()
        assert honest.is_served()


def test_a_failure_is_not_delayed_for_a_client_that_has_gone(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    authentication = shell.services.authentication
    monkeypatch.setattr(authentication, "count_failure", lambda *_: 3_600.0)
    orphans = shell.broker.listener._orphans
    with SaslSocket(shell.connect()) as connection:
        connection.shake("SCRAM-SHA-256")
        connection.socket.sendall(frame_of(SaslAuthenticateRequest(auth_bytes=b"malformed"), 2))
        shell.until(lambda: any(each._session.is_authenticating for each in shell.broker.listener.connections))
        connection.socket.shutdown(socket.SHUT_RDWR)
        shell.until(lambda: not shell.broker.listener.connections)
    shell.until(lambda: not orphans)
