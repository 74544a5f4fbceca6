"""Authentication and ACLs of the JSON listener, over real sockets."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.protocol.json_frames import InvalidRequestError, RequestType
from logbrook.protocol.json_requests import read_request
from logbrook.server.json.access import UNAUTHENTICATED_BYTES_MAX, AuthenticationRequiredError, check_session
from logbrook.server.session import ConnectionSession
from tests.certificates import Certificates
from tests.security_kit import PASSWORDS, TokenIssuer, allow, security_settings
from tests.unit.server.json.json_kit import JsonPeer, frame_of, json_peer, json_shell
from tests.unit.server.shell_kit import Shell

TOPIC = {"topic": "orders", "partition": 0}
GROUP = {"group": "readers", **TOPIC}
# A request of each type that needs rights, with the rights.
RIGHTS: list[tuple[RequestType, dict[str, Any], list[tuple[AclOperation, ResourceType, str]]]] = [
    (
        RequestType.PRODUCE,
        {**TOPIC, "records": [{"value": "x"}]},
        [(AclOperation.WRITE, ResourceType.TOPIC, "orders")],
    ),
    (RequestType.FETCH, {**TOPIC, "offset": 0}, [(AclOperation.READ, ResourceType.TOPIC, "orders")]),
    (
        RequestType.FETCH,
        {**TOPIC, "group_id": "readers"},
        [(AclOperation.READ, ResourceType.TOPIC, "orders"), (AclOperation.DESCRIBE, ResourceType.GROUP, "readers")],
    ),
    (
        RequestType.OFFSET_COMMIT,
        {**GROUP, "offset": 0},
        [(AclOperation.READ, ResourceType.GROUP, "readers"), (AclOperation.READ, ResourceType.TOPIC, "orders")],
    ),
    (
        RequestType.OFFSET_FETCH,
        GROUP,
        [(AclOperation.DESCRIBE, ResourceType.GROUP, "readers"), (AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")],
    ),
    (RequestType.CREATE_TOPIC, {"topic": "new"}, [(AclOperation.CREATE, ResourceType.TOPIC, "new")]),
    (RequestType.DESCRIBE_TOPIC, {"topic": "orders"}, [(AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")]),
    (RequestType.DESCRIBE_PARTITION, TOPIC, [(AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")]),
    (RequestType.METRICS_FETCH, {}, [(AclOperation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")]),
]


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture
def shell(tmp_path: Path, issuer: TokenIssuer) -> Iterator[Shell]:
    security = security_settings(tmp_path, oauth_jwks=str(issuer.jwks))
    with json_shell({"security": security}) as shell:
        with signed_in(shell, "admin") as admin:
            admin.ask(RequestType.CREATE_TOPIC, topic="orders", settings={"retention.ms": "1000"})
        yield shell


@contextmanager
def signed_in(shell: Shell, user: str) -> Iterator[JsonPeer]:
    with json_peer(shell) as peer:
        peer.ask(RequestType.AUTHENTICATE, user=user, password=PASSWORDS[user])
        yield peer


def test_before_authentication_only_ping_is_served(shell: Shell) -> None:
    with json_peer(shell) as peer:
        assert peer.ask(RequestType.PING) == {"pong": True}
        assert peer.refused(RequestType.LIST_TOPICS, id=7) == {
            "id": 7,
            "error": "NotAuthenticated",
            "message": "send Authenticate first",
            "retriable": False,
            "request": "ListTopics",
        }
        answer = peer.ask(RequestType.AUTHENTICATE, user="admin", password=PASSWORDS["admin"])
        assert answer == {"principal": "User:admin", "session_lifetime_ms": None}
        assert [topic["topic"] for topic in peer.ask(RequestType.LIST_TOPICS)["topics"]] == ["orders"]


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "wonderland"), ("alice", "")])
def test_a_wrong_password_closes_the_connection(shell: Shell, user: str, password: str) -> None:
    with json_peer(shell) as peer:
        refused = peer.refused(RequestType.AUTHENTICATE, user=user, password=password)
        assert refused["error"] == "NotAuthenticated"
        assert refused["message"] == "Authentication failed: invalid credentials or token"
        with pytest.raises(EOFError):
            peer.receive()


def test_requests_behind_an_authentication_wait_for_it(shell: Shell) -> None:
    with json_peer(shell) as peer:
        peer.socket.sendall(
            frame_of(RequestType.AUTHENTICATE, {"user": "admin", "password": PASSWORDS["admin"]})
            + frame_of(RequestType.LIST_TOPICS)
            + frame_of(RequestType.PING)
        )
        assert [peer.receive().kind for _ in range(3)] == [139, 134, 138]


def test_a_token_authenticates_until_it_ends(shell: Shell, issuer: TokenIssuer) -> None:
    with json_peer(shell) as peer:
        answer = peer.ask(RequestType.AUTHENTICATE, token=issuer.token("admin", lifetime_s=600))
        assert answer["principal"] == "User:admin"
        # The broker tolerates a difference of the clocks.
        assert 0 < answer["session_lifetime_ms"] <= 600_000 + shell.broker.config.security.oauth_clock_skew_ms
        peer.ask(RequestType.AUTHENTICATE, token=issuer.token("admin"))
        peer.ask(RequestType.LIST_TOPICS)
        # Another principal cannot take over the connection.
        assert peer.refused(RequestType.AUTHENTICATE, token=issuer.token("bob"))["error"] == "NotAuthenticated"


def test_an_expired_session_is_refused_until_it_is_renewed() -> None:
    session = ConnectionSession()
    session.expires_s = 10.0
    check_session(session, RequestType.LIST_TOPICS, 9.9)
    check_session(session, RequestType.AUTHENTICATE, 10.0)
    with pytest.raises(AuthenticationRequiredError, match="expired"):
        check_session(session, RequestType.LIST_TOPICS, 10.0)


def test_a_large_frame_before_authentication_is_refused(shell: Shell) -> None:
    with json_peer(shell) as peer:
        peer.socket.sendall(frame_of(RequestType.PRODUCE, b" " * UNAUTHENTICATED_BYTES_MAX)[:5])
        assert peer.receive().fields["error"] == "BrokenFrame"
    with signed_in(shell, "admin") as peer:
        value = "x" * 2 * UNAUTHENTICATED_BYTES_MAX
        assert peer.produce("orders", value) == 0


@pytest.mark.parametrize(("request_type", "fields", "rights"), RIGHTS)
def test_a_request_needs_each_of_its_rights(
    shell: Shell,
    request_type: RequestType,
    fields: dict[str, Any],
    rights: list[tuple[AclOperation, ResourceType, str]],
) -> None:
    with signed_in(shell, "alice") as alice:
        for right in rights:
            assert alice.refused(request_type, **fields)["error"] == "NotAuthorized"
            shell.run(allow(shell.broker.services, "alice", *right))
        alice.ask(request_type, **fields)


def test_topics_and_settings_without_the_right_are_left_out(shell: Shell) -> None:
    with signed_in(shell, "alice") as alice:
        assert alice.ask(RequestType.LIST_TOPICS) == {"topics": []}
        missing = alice.refused(RequestType.DESCRIBE_TOPIC, topic="missing")
        assert missing["error"] == "NotAuthorized"
        shell.run(allow(shell.broker.services, "alice", AclOperation.DESCRIBE, ResourceType.TOPIC, "orders"))
        assert [topic["topic"] for topic in alice.ask(RequestType.LIST_TOPICS)["topics"]] == ["orders"]
        assert alice.ask(RequestType.DESCRIBE_TOPIC, topic="orders")["settings"] is None
        shell.run(allow(shell.broker.services, "alice", AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders"))
        assert alice.ask(RequestType.DESCRIBE_TOPIC, topic="orders")["settings"] == {"retention.ms": "1000"}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"user": "a"},
        {"password": "b"},
        {"token": "t", "user": "a", "password": "b"},
        {"token": "t", "password": "b"},
    ],
)
def test_authenticate_takes_a_user_or_a_token(fields: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError, match="Authenticate needs"):
        read_request(RequestType.AUTHENTICATE, fields)
    secret = read_request(RequestType.AUTHENTICATE, {"user": "a", "password": "tell-nobody"})
    assert "tell-nobody" not in repr(secret)


def test_tls_with_a_clients_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "ca")
    broker, client = certificates.issue("broker"), certificates.issue("CN=admin")
    security = security_settings(
        tmp_path,
        protocol="SASL_SSL",
        certificate=str(broker.certificate),
        key=str(broker.key),
        client_ca=str(certificates.ca),
        client_certificates="requested",
        principal_mapping_rules="RULE:^CN=(.*)$/$1/",
    )
    with json_shell({"security": security}) as shell:
        context = ssl.create_default_context(cafile=str(certificates.ca))
        with tls_peer(shell, context) as peer:
            assert peer.refused(RequestType.LIST_TOPICS)["error"] == "NotAuthenticated"
            peer.ask(RequestType.AUTHENTICATE, user="alice", password=PASSWORDS["alice"])
            peer.ask(RequestType.LIST_TOPICS)
            peer.socket.sendall(bytes(8))
            assert peer.receive().fields["error"] == "BrokenFrame"
            with pytest.raises(EOFError):
                peer.receive()
        context.load_cert_chain(client.certificate, client.key)
        with tls_peer(shell, context) as peer:
            peer.ask(RequestType.CREATE_TOPIC, topic="orders")


@contextmanager
def tls_peer(shell: Shell, context: ssl.SSLContext) -> Iterator[JsonPeer]:
    with json_peer(shell) as peer:
        plain: socket.socket = peer.socket
        peer.socket = context.wrap_socket(plain, server_hostname="localhost")
        yield peer
