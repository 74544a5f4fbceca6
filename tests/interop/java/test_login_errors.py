"""Logins that must fail: Apache Kafka and Logbrook give a client the same errors, and Logbrook logs the reason.

SASL is spoken request by request over a socket. The outcome of a login is a list: the error code of each response, and
whether the connection was closed after it. TLS is that of Python's ssl. Where the outcomes differ on purpose, the test
names both, and docs/SECURITY.md lists them under "Differences from Kafka".
"""

import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logbrook.client import Client
from logbrook.core.acls import AclOperation, PatternType, PermissionType, ResourceType
from logbrook.model.security import ANONYMOUS, SaslMechanism
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.api_versions import ApiVersionsResponse
from logbrook.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from logbrook.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from logbrook.protocol.scram import ScramClientExchange
from logbrook.server.session import UNAUTHENTICATED_BYTES_MAX
from logbrook.testing.processes import wait_until
from tests.certificates import Certificates, IssuedCertificate
from tests.interop.java.secured_kafka import SESSION_MS, SecuredKafka, unsecured_token
from tests.interop.secure_broker import SecureBroker
from tests.sasl_kit import SaslSocket, users_file

pytestmark = pytest.mark.long

USERS = {"alice": "wonderland", "bob": "builder"}
TOPIC = "orders"
WITHIN_S = 20.0
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
ILLEGAL = ErrorCode.ILLEGAL_SASL_STATE
OPEN, CLOSED = "open", "closed"

Outcome = list[Any]
Attempt = Callable[[SaslSocket], Outcome]


class LoginTarget(NamedTuple):
    """A broker that refuses logins: its ports, the files that its clients need, and its tokens."""

    sasl_port: int
    mutual_port: int
    plain_servers: str
    certificates: Certificates
    expired_token: str

    def connect(self) -> SaslSocket:
        return SaslSocket(self.connect_tls(self.sasl_port, ssl.create_default_context(cafile=self.certificates.ca)))

    def connect_tls(self, port: int, context: ssl.SSLContext, host: str = "127.0.0.1") -> ssl.SSLSocket:
        raw = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
        try:
            return context.wrap_socket(raw, server_hostname=host)
        except BaseException:
            raw.close()
            raise

    def outcome(self, attempt: Attempt) -> Outcome:
        with self.connect() as connection:
            return attempt(connection)


class Targets(NamedTuple):
    """The two brokers, and what Logbrook recorded: with `strict` the listeners require client certificates."""

    kafka: LoginTarget
    logbrook: LoginTarget
    secure: SecureBroker
    strict: SecureBroker
    warnings: list[str]

    def compare(self, attempt: Attempt, *, reason: str = "", warning: str = "") -> Outcome:
        """Return the outcome, which must be the same; `reason` and `warning` are what Logbrook must have logged."""
        outcomes = self.outcomes(attempt, reason=reason, warning=warning)
        assert outcomes[1] == outcomes[0], f"Kafka: {outcomes[0]}, Logbrook: {outcomes[1]}"
        return outcomes[0]

    def outcomes(self, attempt: Attempt, *, reason: str = "", warning: str = "") -> tuple[Outcome, Outcome]:
        """Return the outcomes at Kafka and at Logbrook."""
        self.secure.failures.clear()
        self.warnings.clear()
        outcomes = self.kafka.outcome(attempt), self.logbrook.outcome(attempt)
        failures = self.secure.failures
        assert wait_until(lambda: any(reason in text for _, _, text in failures) if reason else True, WITHIN_S), (
            failures
        )
        assert wait_until(lambda: any(warning in text for text in self.warnings) if warning else True, WITHIN_S)
        return outcomes


@pytest.fixture(scope="module")
def targets(tools_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Targets]:
    folder = tmp_path_factory.mktemp("login-errors")
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": str(ANONYMOUS),
    }
    security = {
        "users_file": str(users_file(tmp_path_factory.mktemp("users"), USERS)),
        "reauthentication_ms": SESSION_MS,
        "authorization": True,
        "super_users": str(ANONYMOUS),
    }
    secure = SecureBroker(folder / "secure", **security)
    strict = SecureBroker(folder / "strict", client_certificates="required")
    with ExitStack() as stack:
        kafka = stack.enter_context(SecuredKafka(tools_jars, folder / "kafka", USERS, authorizer))
        stack.enter_context(secure.running())
        stack.enter_context(strict.running())
        for name, password in USERS.items():
            kafka.create_user(name, password)
        servers = kafka.bootstrap_servers, secure.broker.bootstrap_servers
        for server in servers:
            with Client(server) as client:
                client.create_topic(TOPIC)
        expired_s = time.time() - 600
        yield Targets(
            LoginTarget(kafka.sasl_port, kafka.mutual_port, servers[0], kafka.certificates, unsecured_token(expired_s)),
            LoginTarget(
                _port(secure.login("SASL_SSL").servers),
                _port(strict.login("SSL").servers),
                servers[1],
                secure.certificates,
                secure.issuer.token("alice", lifetime_s=-600, iat=None),
            ),
            secure,
            strict,
            _recorded_warnings(secure),
        )


def _port(servers: str) -> int:
    return int(servers.rpartition(":")[2])


def _recorded_warnings(secure: SecureBroker) -> list[str]:
    """Return a list to which the warnings of the listeners are appended; the log has at most one a second of each."""
    recorded: list[str] = []
    warnings = secure.broker._running.listener.warnings
    warn = warnings.warn

    def record(key: str, event: str, **fields: Any) -> None:
        recorded.append(f"{event}: {fields.get('error')}")
        warn(key, event, **fields)

    warnings.warn = record  # type: ignore[method-assign]
    return recorded


def state(connection: SaslSocket) -> str:
    """Return whether the broker has closed the connection. It serves ApiVersions before the authentication, too."""
    try:
        connection.ask_versions()
    except EOFError:
        return CLOSED
    return OPEN


def ended(connection: SaslSocket) -> str:
    """Wait for the broker to close the connection, or to send something."""
    return CLOSED if connection.is_closed() else OPEN


def test_an_unknown_mechanism_is_answered_with_the_known_ones(targets: Targets) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        response = connection.shake("GSSAPI")
        return [response.error_code, sorted(response.mechanisms), ended(connection)]

    outcome = targets.compare(attempt, reason="the mechanism is not one of")
    mechanisms = sorted(mechanism.value for mechanism in SaslMechanism)
    assert outcome == [ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms, CLOSED]


@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_a_wrong_password_by_plain_is_answered_and_ends_the_connection(targets: Targets, user: str) -> None:
    messages: list[str | None] = []

    def attempt(connection: SaslSocket) -> Outcome:
        response = connection.log_in(user, "wrong")
        messages.append(response.error_message)
        return [response.error_code, ended(connection)]

    reason = "wrong password" if user == "alice" else "unknown user"
    assert targets.compare(attempt, reason=reason) == [FAILED, CLOSED]
    assert messages == [
        "Authentication failed: Invalid username or password",
        "Authentication failed: invalid credentials or token (PLAIN)",
    ]


def by_scram(mechanism: SaslMechanism, user: str) -> Attempt:
    def attempt(connection: SaslSocket) -> Outcome:
        exchange = ScramClientExchange(mechanism, user, "wrong", "nonce")
        connection.shake(mechanism)
        response = connection.step(exchange.first_message())
        codes = [response.error_code]
        if not response.error_code:
            response = connection.step(exchange.final_message(bytes(response.auth_bytes)))
            codes.append(response.error_code)
        assert (response.error_message or "").startswith("Authentication failed")
        return [*codes, ended(connection)]

    return attempt


@pytest.mark.parametrize("mechanism", [SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512])
def test_a_wrong_password_by_scram_is_answered_and_ends_the_connection(
    targets: Targets, mechanism: SaslMechanism
) -> None:
    outcome = targets.compare(by_scram(mechanism, "alice"), reason="proof does not match")
    assert outcome == [ErrorCode.NONE, FAILED, CLOSED]


def test_an_unknown_user_by_scram_is_refused_later_than_by_kafka(targets: Targets) -> None:
    """Kafka refuses the user name at once, which tells a client who exists."""
    kafka, logbrook = targets.outcomes(by_scram(SaslMechanism.SCRAM_SHA_512, "mallory"), reason="")
    assert (kafka, logbrook) == ([FAILED, CLOSED], [ErrorCode.NONE, FAILED, CLOSED])
    assert [user for _, user, _ in targets.secure.failures] == ["mallory"]


def test_an_expired_token_is_answered_by_a_token_and_then_by_an_error(targets: Targets) -> None:
    outcomes = []
    targets.secure.failures.clear()
    for target in (targets.kafka, targets.logbrook):
        with target.connect() as connection:
            connection.shake("OAUTHBEARER")
            first = connection.step(f"n,,\x01auth=Bearer {target.expired_token}\x01\x01".encode())
            second = connection.step(b"\x01")
            status = json.loads(bytes(first.auth_bytes))["status"]
            outcomes.append([first.error_code, status, second.error_code, ended(connection)])
    assert outcomes[1] == outcomes[0] == [ErrorCode.NONE, "invalid_token", FAILED, CLOSED]
    assert "the token has expired" in targets.secure.failures[0][2]


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        ("PLAIN", b"garbage"),
        ("PLAIN", b""),
        ("PLAIN", b"\0\0"),
        ("PLAIN", b"bob\0alice\0wonderland"),
        ("SCRAM-SHA-512", b"garbage"),
        ("SCRAM-SHA-512", b""),
        ("OAUTHBEARER", b"garbage"),
    ],
)
def test_a_malformed_token_is_answered_and_ends_the_connection(targets: Targets, mechanism: str, token: bytes) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        connection.shake(mechanism)
        try:
            return [connection.step(token).error_code, state(connection)]
        except EOFError:
            return [CLOSED]

    assert targets.compare(attempt) == [FAILED, CLOSED]
    assert targets.secure.failures


def test_a_token_before_the_handshake_ends_the_connection(targets: Targets) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        try:
            return [connection.step(b"\0alice\0wonderland").error_code, ended(connection)]
        except EOFError:
            return [CLOSED]

    outcomes = targets.outcomes(attempt, reason="without SaslHandshake")
    assert outcomes == ([CLOSED], [ILLEGAL, CLOSED])


def test_a_request_before_the_authentication_ends_the_connection(targets: Targets) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        return [state(connection), connection.is_served(), state(connection)]

    assert targets.compare(attempt, warning="before the authentication") == [OPEN, False, CLOSED]


def test_a_request_instead_of_a_token_ends_the_connection(targets: Targets) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        connection.shake("PLAIN")
        try:
            connection.request(MetadataRequest(topics=[]), MetadataResponse, 9)
        except EOFError:
            return [CLOSED]
        return ["answered", ended(connection)]

    outcomes = targets.outcomes(attempt, warning="before the authentication")
    assert outcomes == (["answered", CLOSED], [CLOSED])


def test_api_versions_instead_of_a_token_is_served_by_logbrook_only(targets: Targets) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        connection.shake("PLAIN")
        try:
            response: ApiVersionsResponse = connection.ask_versions()
        except EOFError:
            return [CLOSED]
        return [response.error_code, state(connection)]

    assert targets.outcomes(attempt) == ([ILLEGAL, CLOSED], [ErrorCode.NONE, OPEN])


def test_a_second_handshake_instead_of_a_token_begins_anew_in_logbrook_only(targets: Targets) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        connection.shake("PLAIN")
        try:
            return [connection.shake("SCRAM-SHA-256").error_code, state(connection)]
        except EOFError:
            return [CLOSED]

    assert targets.outcomes(attempt) == ([ILLEGAL, CLOSED], [ErrorCode.NONE, OPEN])


@pytest.mark.parametrize("over", [1, 1 << 20])
def test_a_large_frame_before_the_authentication_ends_the_connection(targets: Targets, over: int) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        connection.socket.sendall((UNAUTHENTICATED_BYTES_MAX + over).to_bytes(4, "big") + b"\0\x11\0\x01\0\0\0\x01")
        return [ended(connection)]

    assert targets.compare(attempt, warning="invalid request") == [CLOSED]


def log_in_as_alice(connection: SaslSocket) -> None:
    response = connection.log_in("alice", USERS["alice"])
    assert (response.error_code, response.session_lifetime_ms) == (ErrorCode.NONE, SESSION_MS)


def test_a_re_authentication_as_another_user_is_refused(targets: Targets) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        log_in_as_alice(connection)
        return [connection.log_in("bob", USERS["bob"]).error_code, ended(connection)]

    assert targets.compare(attempt, reason="re-authenticated as User:bob") == [FAILED, CLOSED]


def test_a_re_authentication_with_a_wrong_password_is_refused(targets: Targets) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        log_in_as_alice(connection)
        return [connection.log_in("alice", "wrong").error_code, ended(connection)]

    assert targets.compare(attempt, reason="wrong password") == [FAILED, CLOSED]


def test_a_re_authentication_with_another_mechanism_is_refused(targets: Targets) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        log_in_as_alice(connection)
        codes = [connection.shake("SCRAM-SHA-256").error_code]
        exchange = ScramClientExchange(SaslMechanism.SCRAM_SHA_256, "alice", USERS["alice"], "nonce")
        try:
            codes.append(connection.step(exchange.first_message()).error_code)
        except EOFError:
            return [*codes, CLOSED]
        return [*codes, ended(connection)]

    outcomes = targets.outcomes(attempt, reason="another mechanism than PLAIN")
    assert outcomes == ([ErrorCode.NONE, CLOSED], [ILLEGAL, ILLEGAL, CLOSED])


def test_a_second_re_authentication_within_a_second_is_accepted_by_logbrook_only(targets: Targets) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        log_in_as_alice(connection)
        return [connection.log_in("alice", USERS["alice"]).error_code, connection.shake("PLAIN").error_code]

    assert targets.outcomes(attempt) == ([ErrorCode.NONE, ILLEGAL], [ErrorCode.NONE, ErrorCode.NONE])


def test_a_re_authentication_with_an_unknown_mechanism_is_refused(targets: Targets) -> None:
    def attempt(connection: SaslSocket) -> Outcome:
        log_in_as_alice(connection)
        try:
            return [connection.shake("GSSAPI").error_code, ended(connection)]
        except EOFError:
            return [CLOSED]

    outcomes = targets.outcomes(attempt, reason="the mechanism is not one of")
    assert outcomes == ([CLOSED], [ErrorCode.UNSUPPORTED_SASL_MECHANISM, CLOSED])


def test_a_request_after_the_session_ends_the_connection(targets: Targets, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="logbrook.server.listener")

    def attempt(connection: SaslSocket) -> Outcome:
        connection.log_in("alice", USERS["alice"])
        is_served = connection.is_served()
        threading.Event().wait(SESSION_MS / 1000 + 0.2)
        return [is_served, connection.is_served()]

    assert targets.compare(attempt) == [True, False]
    # Logbrook also closes expired sessions that send nothing.
    is_request_refused = any("has expired" in text for text in targets.warnings)
    assert is_request_refused or "reason='expired'" in caplog.text


def test_an_acl_that_is_revoked_ends_the_right_and_not_the_connection(targets: Targets) -> None:
    outcomes = []
    for target in (targets.kafka, targets.logbrook):
        with target.connect() as connection, Client(target.plain_servers) as admin:
            set_acl(admin, is_allowed=True)
            connection.log_in("bob", USERS["bob"])
            assert wait_until(lambda: topic_error(connection) == ErrorCode.NONE, SESSION_MS / 1000)
            set_acl(admin, is_allowed=False)
            denied = wait_until(lambda: topic_error(connection) != ErrorCode.NONE, SESSION_MS / 1000)
            outcomes.append([denied, topic_error(connection), state(connection)])
    assert outcomes[1] == outcomes[0] == [True, ErrorCode.TOPIC_AUTHORIZATION_FAILED, OPEN]


def set_acl(admin: Client, *, is_allowed: bool) -> None:
    """Allow bob to describe the topic, or revoke it."""
    resource, pattern, operation = ResourceType.TOPIC, PatternType.LITERAL, AclOperation.DESCRIBE
    if is_allowed:
        creation = AclCreation(
            resource_type=resource,
            resource_name=TOPIC,
            resource_pattern_type=pattern,
            principal="User:bob",
            host="*",
            operation=operation,
            permission_type=PermissionType.ALLOW,
        )
        created = admin.request(CreateAclsRequest(creations=[creation]), CreateAclsResponse)
        assert [result.error_code for result in created.results] == [ErrorCode.NONE]
        return
    every = DeleteAclsFilter(
        resource_type_filter=resource,
        resource_name_filter=TOPIC,
        pattern_type_filter=pattern,
        operation=operation,
        permission_type=PermissionType.ALLOW,
    )
    deleted = admin.request(DeleteAclsRequest(filters=[every]), DeleteAclsResponse).filter_results
    assert [len(result.matching_acls) for result in deleted] == [1]


def topic_error(connection: SaslSocket) -> int:
    topics = [MetadataRequestTopic(name=TOPIC)]
    response = connection.request(MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse, 9)
    return response.topics[0].error_code


# Java has one alert for most certificates that it refuses; OpenSSL says what is wrong.
TLS_CASES = {
    "none": ("peer did not return a certificate", "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
    "expired": ("certificate has expired", "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
    "of another CA": ("unable to get local issuer certificate", "TLSV1_ALERT_UNKNOWN_CA"),
}
CERTIFICATE_ALERTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED",
    "SSLV3_ALERT_BAD_CERTIFICATE",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    "TLSV1_ALERT_UNKNOWN_CA",
}


@pytest.mark.parametrize("case", TLS_CASES)
def test_a_client_certificate_that_is_refused_is_answered_with_an_alert(
    targets: Targets, case: str, tmp_path: Path
) -> None:
    reason, alert = TLS_CASES[case]
    certificates = targets.kafka.certificates, targets.strict.certificates
    alerts = []
    for target, authority in zip((targets.kafka, targets.logbrook), certificates, strict=True):
        alerts.append(alert_of(target, authority, client_certificate(case, authority, tmp_path)))
    targets.strict.wait_for_handshake_failure(reason)
    assert alerts[0] in CERTIFICATE_ALERTS
    assert alerts[1] == alert


def client_certificate(case: str, authority: Certificates, folder: Path) -> IssuedCertificate | None:
    if case == "none":
        return None
    if case == "expired":
        return authority.issue("CN=carol", is_expired=True)
    return Certificates(folder, "stranger-ca").issue("CN=carol")


def alert_of(target: LoginTarget, authority: Certificates, issued: IssuedCertificate | None) -> str | None:
    """Return the alert that the broker answers a client's certificate with, as Python names it."""
    context = ssl.create_default_context(cafile=authority.ca)
    if issued is not None:
        context.load_cert_chain(issued.certificate, issued.key)
    with pytest.raises(ssl.SSLError) as refused, target.connect_tls(target.mutual_port, context) as connected:
        # With TLS 1.3 the client is done before the broker has seen its certificate.
        connected.recv(1)
    return refused.value.reason


@pytest.mark.parametrize("case", ["another CA", "another name"])
def test_a_client_refuses_the_certificate_of_either_broker_alike(targets: Targets, case: str, tmp_path: Path) -> None:
    errors = []
    targets.secure.handshake_failures.clear()
    for target in (targets.kafka, targets.logbrook):
        is_other_ca = case == "another CA"
        ca = Certificates(tmp_path, "stranger-ca").ca if is_other_ca else target.certificates.ca
        host = "127.0.0.1" if is_other_ca else "elsewhere"
        with pytest.raises(ssl.SSLCertVerificationError) as refused:
            target.connect_tls(target.sasl_port, ssl.create_default_context(cafile=ca), host)
        errors.append(refused.value.verify_code)
    # Logbrook's chain includes its CA, because it is also the CA of clients: OpenSSL adds it.
    names = {18: "CA", 19: "CA", 20: "CA", 62: "name", 64: "name"}
    assert [f"another {names[error]}" for error in errors] == [case, case]
    targets.secure.wait_for_handshake_failure("unknown ca" if case == "another CA" else "bad certificate", "EOF")
