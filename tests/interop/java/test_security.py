"""Kafka's Java client and tools over every security protocol and mechanism, and the errors that they report."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.java.tool_host import ToolHost
from tests.interop.secure_broker import MECHANISMS, USER, Login, SecureBroker

CASES = [("SSL", ""), *[(protocol, name) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for name in MECHANISMS]]
REAUTHENTICATION_MS = 1_500


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure")).running() as secure:
        yield secure


def properties(login: Login) -> str:
    return "\n".join(f"{name}={value}" for name, value in login.java.items())


def round_trips(host: ToolHost, secure: SecureBroker, *logins: Login, records: int = 1, pause_ms: int = 0) -> list[str]:
    """Return a line for each login: `ok`, or the error."""
    files = ",".join(login.java.get("sasl.oauthbearer.token.endpoint.url", "file:///none") for login in logins)
    texts = [properties(login) for login in logins]
    run = host.run("SecureRoundTrip", secure.new_topic(), str(records), str(pause_ms), files, *texts)
    assert run.code == 0, str(run)
    return run.lines


def test_the_java_client_writes_and_reads_with_every_protocol_and_mechanism(
    tools_host: ToolHost, secure: SecureBroker
) -> None:
    logins = [secure.login(protocol, mechanism) for protocol, mechanism in CASES]
    logins.append(secure.login("SSL", certificate=secure.certificates.issue("CN=carol,OU=Tests")))
    assert round_trips(tools_host, secure, *logins) == ["ok"] * len(logins)
    assert (secure.failures, secure.handshake_failures) == ([], [])


def test_the_java_client_reports_the_errors_of_kafka(tools_host: ToolHost, secure: SecureBroker) -> None:
    secure.failures.clear()
    mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    logins = [secure.login("SASL_SSL", mechanism, password="wrong") for mechanism in mechanisms]
    forged = secure.login("SASL_SSL", "OAUTHBEARER").token[:-6] + "AAAAAA"
    logins.append(secure.login("SASL_SSL", "OAUTHBEARER", token=forged))
    lines = round_trips(tools_host, secure, *logins)
    assert [line.partition(":")[0] for line in lines] == ["SaslAuthenticationException"] * 4
    assert all("Authentication failed" in line or "invalid_token" in line for line in lines), lines
    assert {mechanism for mechanism, _, _ in secure.failures} == {*mechanisms, "OAUTHBEARER"}


def test_the_java_client_reports_errors_of_tls(tools_host: ToolHost, secure: SecureBroker, tmp_path: Path) -> None:
    logins = [
        secure.login("SSL", ca=secure.strangers.ca),
        secure.login("SSL", certificate=secure.certificates.issue("CN=carol", is_expired=True)),
        secure.login("SSL", certificate=secure.strangers.issue("CN=carol")),
    ]
    lines = round_trips(tools_host, secure, *logins)
    assert [line.partition(":")[0] for line in lines] == ["SslAuthenticationException"] * 3, lines
    elsewhere = secure.certificates.issue(hosts=("elsewhere",))
    settings = {"certificate": str(elsewhere.certificate), "key": str(elsewhere.key)}
    with SecureBroker(tmp_path, **settings).running() as other:
        (line,) = round_trips(tools_host, other, other.login("SSL", ca=secure.certificates.ca))
        assert line.startswith("SslAuthenticationException"), line
        other.wait_for_handshake_failure("certificate")


def test_the_java_client_authenticates_again_before_its_session_ends(tools_host: ToolHost, tmp_path: Path) -> None:
    with SecureBroker(tmp_path, reauthentication_ms=REAUTHENTICATION_MS).running() as secure:
        login = secure.login("SASL_PLAINTEXT", "SCRAM-SHA-256")
        lines = round_trips(tools_host, secure, login, records=10, pause_ms=REAUTHENTICATION_MS // 5)
        assert lines == ["ok"]
        # Producer and consumer have two connections each, and authenticate once on each without this.
        assert secure.authenticated > 4
        assert secure.failures == []


def test_kafkas_tools_work_over_sasl_and_tls(tools_host: ToolHost, secure: SecureBroker, tmp_path: Path) -> None:
    login = secure.login("SASL_SSL", "SCRAM-SHA-512")
    config = tmp_path / "client.properties"
    config.write_text(properties(login))
    place = ("--bootstrap-server", login.servers, "--command-config", str(config))
    name = "org.apache.kafka.tools.TopicCommand"
    tools_host.run(name, *place, "--create", "--topic", "made-over-tls").check()
    assert "made-over-tls" in tools_host.run(name, *place, "--list").lines
    change = (
        "--alter",
        "--add-config",
        "SCRAM-SHA-256=[password=new]",
        "--entity-type",
        "users",
        "--entity-name",
        "bob",
    )
    run = tools_host.run("kafka.admin.ConfigCommand", *place, *change)
    assert run.code == 0, str(run)
    bob = secure.login("SASL_SSL", "SCRAM-SHA-256", user="bob", password="new")
    config.write_text(properties(bob))
    assert "made-over-tls" in tools_host.run(name, *place, "--list").lines
    described = tools_host.run("kafka.admin.ConfigCommand", *place, "--describe", "--entity-type", "users")
    assert "SCRAM-SHA-256=iterations=4096" in described.output
    assert USER not in described.output
