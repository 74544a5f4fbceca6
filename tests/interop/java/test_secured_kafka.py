"""The client library against Apache Kafka with TLS and SASL: the same options, mechanisms and errors."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook.client import Client, parse_client_security
from logbrook.client.errors import (
    BrokerCertificateError,
    ClientCertificateError,
    MechanismNotOfferedError,
    SaslRefusedError,
    TlsHandshakeClosedError,
    WrongSecurityProtocolError,
)
from logbrook.model import LogbrookError
from tests.certificates import Certificates, IssuedCertificate
from tests.interop.java.secured_kafka import SESSION_MS, SecuredKafka, unsecured_token

pytestmark = pytest.mark.long

PASSWORD = "wonder, =land"


@pytest.fixture(scope="module")
def secured(tools_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(tools_jars, tmp_path_factory.mktemp("secured-kafka"), {"alice": PASSWORD}) as kafka:
        kafka.create_user("alice", PASSWORD)
        with Client(kafka.bootstrap_servers) as client:
            client.create_topic("orders")
        yield kafka


def options(kafka: SecuredKafka, mechanism: str, **changes: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(kafka.certificates.ca),
    } | {name.replace("_", "."): value for name, value in changes.items()}


def ask(port: int, given: dict[str, str]) -> None:
    with Client(f"127.0.0.1:{port}", timeout_s=20, security=parse_client_security(given)) as client:
        assert client.list_offset("orders", 0) == 0


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords_are_accepted_and_wrong_ones_refused(secured: SecuredKafka, mechanism: str) -> None:
    ask(secured.sasl_port, options(secured, mechanism))
    for changes in ({"sasl_password": "wrong"}, {"sasl_username": "mallory"}):
        with pytest.raises(SaslRefusedError, match=r"authentication of .* failed: Authentication failed"):
            ask(secured.sasl_port, options(secured, mechanism, **changes))


def test_tokens_are_accepted_and_expired_ones_refused(secured: SecuredKafka, tmp_path: Path) -> None:
    file = tmp_path / "token"
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.file": str(file),
        "ssl.ca.location": str(secured.certificates.ca),
    }
    file.write_text(unsecured_token(time.time() + 600))
    ask(secured.sasl_port, given)
    file.write_text(unsecured_token(time.time() - 600))
    with pytest.raises(SaslRefusedError, match="OAUTHBEARER failed"):
        ask(secured.sasl_port, given)


def test_a_session_is_renewed_before_kafka_ends_it(secured: SecuredKafka) -> None:
    security = parse_client_security(options(secured, "SCRAM-SHA-512"))
    until_s = time.monotonic() + 2.5 * SESSION_MS / 1000
    with Client(f"127.0.0.1:{secured.sasl_port}", timeout_s=20, security=security) as client:
        connection = client.connection(client.leader("orders", 0))
        while time.monotonic() < until_s:
            assert client.list_offset("orders", 0) == 0
        assert client.connection(client.leader("orders", 0)) is connection


def test_client_certificates_are_shown_or_asked_for(secured: SecuredKafka, tmp_path: Path) -> None:
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(secured.certificates.ca)}
    mine, stranger = secured.certificates.issue("CN=alice", hosts=()), Certificates(tmp_path).issue("CN=eve")

    def certificate(issued: IssuedCertificate) -> dict[str, str]:
        return {"ssl.certificate.location": str(issued.certificate), "ssl.key.location": str(issued.key)}

    ask(secured.mutual_port, tls | certificate(mine))
    with pytest.raises(ClientCertificateError, match="requires a client certificate"):
        ask(secured.mutual_port, tls)
    with pytest.raises(ClientCertificateError, match="refuses the client's certificate"):
        ask(secured.mutual_port, tls | certificate(stranger))


def test_other_protocols_and_authorities_are_told_apart(secured: SecuredKafka, tmp_path: Path) -> None:
    plain_port = int(secured.bootstrap_servers.rpartition(":")[2])
    with pytest.raises(BrokerCertificateError):
        ask(secured.sasl_port, options(secured, "PLAIN", ssl_ca_location=str(Certificates(tmp_path).ca)))
    with pytest.raises(TlsHandshakeClosedError):
        ask(plain_port, options(secured, "PLAIN"))
    given = options(secured, "PLAIN", security_protocol="SASL_PLAINTEXT")
    with pytest.raises((WrongSecurityProtocolError, MechanismNotOfferedError)):
        ask(plain_port, {name: value for name, value in given.items() if not name.startswith("ssl.")})
    with pytest.raises(LogbrookError, match="SASL_SSL"):
        ask(secured.sasl_port, {})
