"""SASL: authentication, re-authentication and SCRAM credentials over the dispatcher, without sockets."""

from collections.abc import Iterator

import pytest

from logbrook.client.errors import ConnectionClosedError
from logbrook.model.security import ANONYMOUS, Principal, SaslMechanism, SecurityProtocol
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataResponse
from logbrook.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from logbrook.protocol.scram import ScramClientExchange, salted_password
from logbrook.server.session import ConnectionSession
from tests.sasl_kit import SALT, SCRAM, users_file
from tests.unit.server.handler_kit import HandlerClient, HandlerShell
from tests.unit.server.handlers.kit import Peer, distinct_versions


@pytest.fixture(scope="module")
def sasl_shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandlerShell]:
    folder = tmp_path_factory.mktemp("sasl")
    settings = {
        "security": {
            "users_file": str(users_file(folder, {"alice": "wonderland", "bob": "builder"})),
            "sasl_mechanisms": ["PLAIN", *SCRAM],
            "failed_authentication_delay_ms": 0,
            "reauthentication_ms": 60_000,
        }
    }
    with HandlerShell(settings) as shell:
        yield shell


@pytest.fixture
def reasons(sasl_shell: HandlerShell, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The reasons of failed authentications in the audit log."""
    recorded: list[str] = []
    audit = sasl_shell.services.audit
    monkeypatch.setattr(audit, "authentication_failed", lambda *facts: recorded.append(facts[-1]))
    return recorded


class SaslClient:
    """A connection on a listener with SASL."""

    def __init__(self, shell: HandlerShell) -> None:
        self.session = ConnectionSession("127.0.0.1", protocol=SecurityProtocol.SASL_PLAINTEXT)
        self.client: HandlerClient = shell.client("test", self.session)

    def shake(self, mechanism: str) -> SaslHandshakeResponse:
        return self.client.request(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)

    def step(self, token: bytes) -> SaslAuthenticateResponse:
        return self.client.request(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)

    def log_in(self, user: str, password: str) -> SaslAuthenticateResponse:
        assert self.shake("PLAIN").error_code == ErrorCode.NONE
        return self.step(f"\0{user}\0{password}".encode())

    def log_in_by_scram(self, mechanism: SaslMechanism, user: str, password: str) -> SaslAuthenticateResponse:
        exchange = ScramClientExchange(mechanism, user, password, "nonce")
        assert self.shake(mechanism).error_code == ErrorCode.NONE
        first = self.step(exchange.first_message())
        assert first.error_code == ErrorCode.NONE
        final = self.step(exchange.final_message(bytes(first.auth_bytes)))
        if final.error_code == ErrorCode.NONE:
            exchange.verify(bytes(final.auth_bytes))
        return final

    def is_served(self) -> bool:
        try:
            self.client.request(MetadataRequest(topics=[]), MetadataResponse)
        except ConnectionClosedError:
            return False
        return True


@distinct_versions(SaslAuthenticateRequest)
def test_a_listener_without_sasl_refuses_both_requests(peer: Peer, version: int) -> None:
    handshake = peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
    assert (handshake.error_code, handshake.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    response = peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), SaslAuthenticateResponse, version)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert "PLAINTEXT" in (response.error_message or "")


def test_before_authentication_only_sasl_and_api_versions_are_served(sasl_shell: HandlerShell) -> None:
    client = SaslClient(sasl_shell)
    assert client.client.request(ApiVersionsRequest(), ApiVersionsResponse).error_code == ErrorCode.NONE
    assert not client.is_served()
    assert client.session.principal == ANONYMOUS


def test_an_unsupported_mechanism_is_answered_with_the_supported_ones(sasl_shell: HandlerShell) -> None:
    response = SaslClient(sasl_shell).shake("GSSAPI")
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_the_right_password_authenticates_with_every_mechanism(sasl_shell: HandlerShell) -> None:
    for mechanism in SCRAM:
        client = SaslClient(sasl_shell)
        response = client.log_in_by_scram(mechanism, "alice", "wonderland")
        assert (response.error_code, response.session_lifetime_ms) == (ErrorCode.NONE, 60_000)
        assert client.session.principal == Principal("User", "alice")
        assert client.is_served()
    client = SaslClient(sasl_shell)
    assert client.log_in("alice", "wonderland").error_code == ErrorCode.NONE
    assert client.is_served()


def test_a_wrong_password_and_an_unknown_user_get_the_same_answers(sasl_shell: HandlerShell) -> None:
    messages = set()
    for user in ("alice", "nobody"):
        client = SaslClient(sasl_shell)
        response = client.log_in(user, "wrong")
        messages.add((response.error_code, response.error_message))
        assert client.session.is_failed
        assert not client.is_served()
        scram = SaslClient(sasl_shell).log_in_by_scram(SaslMechanism.SCRAM_SHA_512, user, "wrong")
        assert scram.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert len(messages) == 1
    assert messages.pop()[0] == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_an_unknown_user_gets_the_same_salt_each_time(sasl_shell: HandlerShell) -> None:
    salts = set()
    for _ in range(2):
        client = SaslClient(sasl_shell)
        client.shake("SCRAM-SHA-256")
        first = bytes(client.step(b"n,,n=nobody,r=nonce").auth_bytes).decode()
        salts.add(first.split(",")[1])
    assert len(salts) == 1


def test_scram_answers_for_an_unknown_user_look_like_those_for_a_known_one(sasl_shell: HandlerShell) -> None:
    shapes = set()
    for user in ("alice", "bob", "nobody", "somebody"):
        client = SaslClient(sasl_shell)
        client.shake("SCRAM-SHA-256")
        first = bytes(client.step(f"n,,n={user},r=nonce".encode()).auth_bytes).decode()
        _, salt, iterations = first.split(",")
        shapes.add((len(salt), iterations))
    assert len(shapes) == 1


def test_a_client_may_act_as_itself_only(sasl_shell: HandlerShell) -> None:
    for token in (b"bob\0alice\0wonderland", b"\0alice", b"\0\0", b"\xff\0alice\0wonderland", b""):
        client = SaslClient(sasl_shell)
        client.shake("PLAIN")
        assert client.step(token).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, token
        assert not client.session.is_authenticated
    client = SaslClient(sasl_shell)
    client.shake("PLAIN")
    assert client.step(b"alice\0alice\0wonderland").error_code == ErrorCode.NONE


def test_a_token_without_a_handshake_closes_the_connection(sasl_shell: HandlerShell, reasons: list[str]) -> None:
    client = SaslClient(sasl_shell)
    assert client.step(b"\0alice\0wonderland").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.session.is_failed
    assert reasons == ["SaslAuthenticate without SaslHandshake, or before the response to the last one"]


def test_a_refused_re_authentication_is_recorded_with_its_reason(sasl_shell: HandlerShell, reasons: list[str]) -> None:
    client = SaslClient(sasl_shell)
    client.log_in("alice", "wonderland")
    client.shake("SCRAM-SHA-256")
    assert reasons == ["User:alice re-authenticates with another mechanism than PLAIN"]
    assert not client.session.is_failed
    assert client.shake("GSSAPI").error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert client.session.is_failed


def test_a_scram_proof_cannot_be_replayed(sasl_shell: HandlerShell) -> None:
    client = SaslClient(sasl_shell)
    client.shake("SCRAM-SHA-256")
    exchange = ScramClientExchange(SaslMechanism.SCRAM_SHA_256, "alice", "wonderland", "nonce")
    final = exchange.final_message(bytes(client.step(exchange.first_message()).auth_bytes))
    assert client.step(final).error_code == ErrorCode.NONE
    other = SaslClient(sasl_shell)
    other.shake("SCRAM-SHA-256")
    other.step(exchange.first_message())
    assert other.step(final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_re_authentication_keeps_principal_and_mechanism(sasl_shell: HandlerShell) -> None:
    client = SaslClient(sasl_shell)
    client.log_in("alice", "wonderland")
    assert client.shake("SCRAM-SHA-256").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.log_in("alice", "wonderland").error_code == ErrorCode.NONE
    assert client.log_in("bob", "builder").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.session.principal == Principal("User", "alice")


def test_an_expired_session_is_served_again_after_re_authentication(sasl_shell: HandlerShell) -> None:
    client = SaslClient(sasl_shell)
    client.log_in("alice", "wonderland")
    client.session.expires_s = 0.0
    assert not client.is_served()
    client.log_in("alice", "wonderland")
    assert client.is_served()


def test_credentials_are_created_used_replaced_and_deleted(sasl_shell: HandlerShell) -> None:
    admin = sasl_shell.client()
    for password in ("first", "second"):
        salted = salted_password(SaslMechanism.SCRAM_SHA_256, password, SALT, 4096)
        upsert = ScramCredentialUpsertion(name="carol", mechanism=1, iterations=4096, salt=SALT, salted_password=salted)
        request = AlterUserScramCredentialsRequest(upsertions=[upsert])
        (result,) = admin.request(request, AlterUserScramCredentialsResponse).results
        assert result.error_code == ErrorCode.NONE
        client = SaslClient(sasl_shell)
        assert client.log_in_by_scram(SaslMechanism.SCRAM_SHA_256, "carol", password).error_code == ErrorCode.NONE
        assert SaslClient(sasl_shell).log_in("carol", password).error_code == ErrorCode.NONE
    assert SaslClient(sasl_shell).log_in("carol", "first").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    described = admin.request(DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse)
    assert [(user.user, user.credential_infos[0].iterations) for user in described.results] == [("carol", 4096)]
    deletion = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="carol", mechanism=1)])
    codes = [admin.request(deletion, AlterUserScramCredentialsResponse).results[0].error_code for _ in range(2)]
    assert codes == [ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND]
    assert SaslClient(sasl_shell).log_in("carol", "second").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_invalid_credentials_are_refused(peer: Peer) -> None:
    for upsert, code in (
        (ScramCredentialUpsertion(name="a", mechanism=3, iterations=4096), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialUpsertion(name="a", mechanism=1, iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialUpsertion(name="a", mechanism=1, iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialUpsertion(name="a", mechanism=1, iterations=4096), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialUpsertion(name="", mechanism=1, iterations=4096), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ):
        request = AlterUserScramCredentialsRequest(upsertions=[upsert])
        (result,) = peer.ask(request, AlterUserScramCredentialsResponse).results
        assert result.error_code == code, upsert
    users = [UserName(name="alice")] * 2 + [UserName(name="bob")]
    results = peer.ask(DescribeUserScramCredentialsRequest(users=users), DescribeUserScramCredentialsResponse).results
    assert [(result.user, result.error_code) for result in results] == [
        ("alice", ErrorCode.DUPLICATE_RESOURCE),
        ("bob", ErrorCode.RESOURCE_NOT_FOUND),
    ]
