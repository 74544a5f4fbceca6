"""The client library, the commands and the test kit against brokers with TLS and SASL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.client import Client, Connection, ConnectionClosedError, NotKafkaError, parse_client_security
from logbrook.client.errors import (
    BrokerCertificateError,
    ClientCertificateError,
    ClientError,
    MechanismNotOfferedError,
    SaslRefusedError,
    TlsHandshakeClosedError,
    WrongSecurityProtocolError,
)
from logbrook.client.security import ClientSecurity
from tests.certificates import Certificates
from tests.secured_broker import PASSWORD, SecuredBroker
from tests.unit.cli.shell import Shell


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    secured = SecuredBroker(tmp_path_factory.mktemp("secured"))
    with secured.broker:
        yield secured


@pytest.fixture(scope="module")
def plain() -> Iterator[Broker]:
    with Broker(["orders"]) as broker:
        yield broker


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_every_mechanism_reaches_the_topics(secured: SecuredBroker, mechanism: str) -> None:
    assert secured.topics(secured.options(sasl_mechanism=mechanism)) == ["orders"]


def test_the_test_kit_reads_and_writes_over_tls(secured: SecuredBroker) -> None:
    large = "x" * 300_000
    secured.broker.produce("orders", "first", large)
    assert [record.value for record in secured.broker.records("orders")][:2] == [b"first", large.encode()]


def test_a_connection_is_used_again_until_the_broker_has_closed_it(tmp_path: Path) -> None:
    secured = SecuredBroker(tmp_path)
    security = parse_client_security(secured.options())
    with secured.broker as broker, Client(broker.bootstrap_servers, security=security) as client:
        address = ("127.0.0.1", int(broker.bootstrap_servers.rpartition(":")[2]))
        client.metadata()
        connection = client.connection(address)
        client.metadata()
        assert client.connection(address) is connection
        broker.restart()
        client.metadata()
        assert client.connection(address) is not connection


def test_a_wrong_password_and_an_unknown_user_get_the_same_sentence(secured: SecuredBroker) -> None:
    messages = []
    for options in (secured.options(sasl_password="wrong"), secured.options(sasl_username="mallory")):
        with pytest.raises(SaslRefusedError) as caught:
            secured.topics(options)
        messages.append(str(caught.value).replace("mallory", "alice"))
        assert PASSWORD not in messages[-1]
    assert messages[0] == messages[1]
    assert messages[0].startswith(f"authentication of alice at {secured.broker.bootstrap_servers} with SCRAM-SHA-512")


def test_a_mechanism_that_is_not_offered_names_those_that_are(secured: SecuredBroker, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c")
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.file": str(tmp_path / "token"),
    }
    with pytest.raises(MechanismNotOfferedError) as caught:
        secured.topics(options | secured.trust)
    assert set(caught.value.offered) == {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}


def test_a_broker_of_another_authority_is_refused(secured: SecuredBroker, tmp_path: Path) -> None:
    with pytest.raises(BrokerCertificateError, match="not from a trusted authority"):
        secured.topics(secured.options(ssl_ca_location=str(Certificates(tmp_path).ca)))


def test_clients_with_another_protocol_than_the_listener_are_told_which(secured: SecuredBroker, plain: Broker) -> None:
    with pytest.raises((NotKafkaError, ConnectionClosedError), match="SASL_SSL"):
        secured.topics({"security.protocol": "PLAINTEXT"})
    with pytest.raises(ConnectionClosedError, match="SASL_SSL"):
        secured.topics({"security.protocol": "SSL"} | secured.trust)
    for protocol, expected in (("SASL_SSL", TlsHandshakeClosedError), ("SASL_PLAINTEXT", WrongSecurityProtocolError)):
        trust = secured.trust if protocol == "SASL_SSL" else {}
        security = parse_client_security({"security.protocol": protocol} | secured.user | trust)
        with (
            Client(plain.bootstrap_servers, timeout_s=10, security=security) as client,
            pytest.raises(expected) as caught,
        ):
            client.metadata()
        assert "PLAINTEXT" in str(caught.value)


def test_required_client_certificates_are_shown_or_asked_for(tmp_path: Path) -> None:
    secured = SecuredBroker(tmp_path, protocol="SSL", client_certificates="required")
    mine = secured.certificates.issue("CN=alice", hosts=())
    tls = {"security.protocol": "SSL"} | secured.trust
    certificate = {"ssl.certificate.location": str(mine.certificate), "ssl.key.location": str(mine.key)}
    with secured.broker:
        assert secured.topics(tls | certificate) == ["orders"]
        with pytest.raises((ClientCertificateError, ConnectionClosedError), match="client certificate"):
            secured.topics(tls)


def test_sessions_are_renewed_while_requests_are_sent(tmp_path: Path) -> None:
    secured = SecuredBroker(tmp_path, reauthentication_ms=200)
    with (
        secured.broker,
        Client(secured.broker.bootstrap_servers, security=parse_client_security(secured.options())) as client,
    ):
        connection = client.connection(client.leader("orders", 0))
        renewals: set[float | None] = set()
        # For longer than a session lasts.
        while len(renewals) < 3:
            assert client.list_offset("orders", 0) == 0
            renewals.add(connection._renew_at_s)
        assert None not in renewals
        assert not connection.is_closed


def test_commands_take_options_and_files_and_show_no_secret(secured: SecuredBroker, tmp_path: Path) -> None:
    shell = Shell(secured.broker.bootstrap_servers, tmp_path)
    pairs = [part for name, value in secured.options().items() for part in ("-X", f"{name}={value}")]
    assert [topic["name"] for topic in shell.json("topic", "list", *pairs)] == ["orders"]
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in secured.options().items()) + "acks=all\n")
    assert [topic["name"] for topic in shell.json("topic", "list", "--client-config", str(file))] == ["orders"]
    shell.environment["LOGBROOK_CLIENT_CONFIG"] = str(file)
    assert shell.ok("produce", "orders", stdin="line\n") == ""
    wrong = shell.refused("topic", "list", "-X", "sasl.password=wrong-s3cr3t")
    assert wrong.startswith("authentication of alice")
    assert "s3cr3t" not in wrong


def test_a_context_remembers_the_file_of_client_options(secured: SecuredBroker, tmp_path: Path) -> None:
    shell = Shell(None, tmp_path)
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in secured.options().items()))
    shell.ok("context", "save", "live", secured.broker.bootstrap_servers, "--client-config", str(file))
    assert [topic["name"] for topic in shell.json("topic", "list")] == ["orders"]
    assert PASSWORD not in (tmp_path / "logbrook" / "contexts.json").read_text()
    assert shell.json("context", "list")[0]["client_config"] == str(file)


def test_a_plain_connection_is_the_default(plain: Broker) -> None:
    host, _, port = plain.bootstrap_servers.rpartition(":")
    with Connection(host, int(port)) as connection:
        assert connection._sasl is ClientSecurity().sasl
    assert issubclass(SaslRefusedError, ClientError)
