"""A broker of tests whose listener has TLS and SASL, with a certificate of its own authority and one user."""

from pathlib import Path
from typing import Any

from logbrook import Broker
from logbrook.client import Client, parse_client_security
from tests.certificates import Certificates
from tests.users_file import write_users_file

PASSWORD = "s3cr3t-of-alice"


class SecuredBroker:
    """`options` are those of a client that may use `broker`. `security` changes the settings of that section."""

    def __init__(self, folder: Path, **security: Any) -> None:
        self.certificates = Certificates(folder)
        issued = self.certificates.issue()
        users = write_users_file(folder / "users.json", {"alice": PASSWORD})
        self.user = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": PASSWORD}
        self.trust = {"ssl.ca.location": str(self.certificates.ca)}
        settings = {
            "security": {
                "protocol": "SASL_SSL",
                "certificate": str(issued.certificate),
                "key": str(issued.key),
                "client_ca": str(self.certificates.ca),
                "users_file": str(users),
                "sasl_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "failed_authentication_delay_ms": 0,
            }
            | security
        }
        self.broker = Broker(["orders"], settings=settings, client=self.options())

    def options(self, **changes: str) -> dict[str, str]:
        changed = {name.replace("_", "."): value for name, value in changes.items()}
        return {"security.protocol": "SASL_SSL"} | self.user | self.trust | changed

    def topics(self, options: dict[str, str]) -> list[str | None]:
        with Client(self.broker.bootstrap_servers, timeout_s=10, security=parse_client_security(options)) as client:
            return [topic.name for topic in client.metadata().topics]
