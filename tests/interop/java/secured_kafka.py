"""A real Apache Kafka with TLS and SASL."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path

from logbrook.client import Client
from logbrook.model.security import SaslMechanism
from logbrook.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from logbrook.protocol.scram import salted_password
from logbrook.testing.processes import free_port
from tests.certificates import Certificates
from tests.interop.java.kafka_broker import KafkaBroker

SALT = bytes(16)
SESSION_MS = 2000
MODULE = "org.apache.kafka.common.security"
MECHANISM_NUMBERS = {SaslMechanism.SCRAM_SHA_256: 1, SaslMechanism.SCRAM_SHA_512: 2}


class SecuredKafka(KafkaBroker):
    """Has the listeners SASL (SASL_SSL) and MUTUAL (SSL with client certificates) besides the plain one.

    `users` are the passwords of users for PLAIN. For SCRAM, call `create_user` once it runs.
    """

    def __init__(
        self, classpath: str, directory: Path, users: Mapping[str, str], settings: Mapping[str, str] | None = None
    ) -> None:
        self.certificates = Certificates(directory)
        issued = self.certificates.issue()
        store = directory / "keystore.pem"
        store.write_text(issued.key.read_text() + issued.certificate.read_text())
        sasl = "listener.name.sasl"
        passwords = " ".join(f'user_{name}="{password}"' for name, password in users.items())
        secured = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "listener.name.mutual.ssl.client.auth": "required",
            f"{sasl}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"{sasl}.plain.sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required {passwords};",
            f"{sasl}.scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
            f"{sasl}.scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
            f"{sasl}.oauthbearer.sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";',
            "connections.max.reauth.ms": str(SESSION_MS),
        }
        super().__init__(classpath, directory, secured | dict(settings or {}))
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


def unsecured_token(expires_s: float) -> str:
    """Return a token as Kafka accepts it for tests: not signed."""
    claims = {"sub": "alice", "iat": expires_s - 1200, "exp": expires_s}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."
