"""The client library against Apache Kafka with TLS and SASL: the same options, mechanisms and errors."""

import base64
import json
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
from logbrook.model.security import SaslMechanism
from logbrook.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from logbrook.protocol.scram import salted_password
from logbrook.testing.processes import free_port
from tests.certificates import Certificates, IssuedCertificate
from tests.interop.java.kafka_broker import KafkaBroker

pytestmark = pytest.mark.long

PASSWORD = "wonder, =land"
SALT = bytes(16)
SESSION_MS = 2000
MODULE = "org.apache.kafka.common.security"
MECHANISM_NUMBERS = {SaslMechanism.SCRAM_SHA_256: 1, SaslMechanism.SCRAM_SHA_512: 2}


class SecuredKafka(KafkaBroker):
    """Kafka with the listeners SASL (SASL_SSL) and MUTUAL (SSL with client certificates) besides the plain one."""

    def __init__(self, classpath: str, directory: Path) -> None:
        self.certificates = Certificates(directory)
        issued = self.certificates.issue()
        store = directory / "keystore.pem"
        store.write_text(issued.key.read_text() + issued.certificate.read_text())
        sasl = "listener.name.sasl"
        users = f'user_alice="{PASSWORD}"'
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "listener.name.mutual.ssl.client.auth": "required",
            f"{sasl}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"{sasl}.plain.sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required {users};",
            f"{sasl}.scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
            f"{sasl}.scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
            f"{sasl}.oauthbearer.sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";',
            "connections.max.reauth.ms": str(SESSION_MS),
        }
        super().__init__(classpath, directory, settings)
        self.sasl_port, self.mutual_port = free_port(), free_port()

    def _required(self, port: int, controller_port: int) -> dict[str, str]:
        required = super()._required(port, controller_port)
        further = f",SASL://127.0.0.1:{self.sasl_port},MUTUAL://127.0.0.1:{self.mutual_port}"
        return required | {
            "listeners": required["listeners"] + further,
            "advertised.listeners": required["advertised.listeners"] + further,
            "listener.security.protocol.map": f"{required['listener.security.protocol.map']},SASL:SASL_SSL,MUTUAL:SSL",
        }

    def create_user(self, name: str, password: str) -> None:
        upsertions = [
            ScramCredentialUpsertion(
                name=name,
                mechanism=number,
                iterations=4096,
                salt=SALT,
                salted_password=salted_password(mechanism, password, SALT, 4096),
            )
            for mechanism, number in MECHANISM_NUMBERS.items()
        ]
        with Client(self.bootstrap_servers) as client:
            # Kafka changes a user only once per request.
            for upsertion in upsertions:
                request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
                results = client.request(request, AlterUserScramCredentialsResponse).results
                assert [result.error_code for result in results] == [0]


@pytest.fixture(scope="module")
def secured(tools_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(tools_jars, tmp_path_factory.mktemp("secured-kafka")) as kafka:
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


def unsecured_token(expires_s: float) -> str:
    """Return a token as Kafka accepts it for tests: not signed."""
    claims = {"sub": "alice", "iat": expires_s - 1200, "exp": expires_s}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


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
