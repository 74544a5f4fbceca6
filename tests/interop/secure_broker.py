"""A broker with a listener per security protocol, its users, certificates and tokens, and what it recorded."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from logbrook import Broker
from logbrook.model.security import SaslMechanism, SecurityProtocol
from logbrook.testing.processes import free_port
from tests.certificates import Certificates, IssuedCertificate
from tests.interop.waiting import wait_until
from tests.sasl_kit import users_file
from tests.unit.server.security.token_kit import TokenIssuer

USER, PASSWORD = "alice", "wonder,land=1"
MECHANISMS = [mechanism.value for mechanism in SaslMechanism]
_topics = count(1)


@dataclass(frozen=True)
class Login:
    """The protocol, mechanism and credentials of a client."""

    servers: str
    protocol: SecurityProtocol
    ca: Path
    mechanism: str = ""
    user: str = USER
    password: str = PASSWORD
    token: str = ""
    certificate: IssuedCertificate | None = None
    # How long the client tries, if it tries again after an error.
    patience_ms: int = 10_000

    @property
    def librdkafka(self) -> dict[str, Any]:
        """The settings of librdkafka, without the token, for which it has a callback."""
        settings = {"bootstrap.servers": self.servers, "security.protocol": self.protocol.value}
        if self.protocol.uses_tls:
            settings["ssl.ca.location"] = str(self.ca)
        if self.certificate is not None:
            settings["ssl.certificate.location"] = str(self.certificate.certificate)
            settings["ssl.key.location"] = str(self.certificate.key)
        if self.protocol.uses_sasl:
            settings["sasl.mechanisms"] = self.mechanism
            if not self.token:
                settings |= {"sasl.username": self.user, "sasl.password": self.password}
        return settings

    @property
    def java(self) -> dict[str, str]:
        """The settings of Kafka's Java clients and tools, with PEM files."""
        settings = {"bootstrap.servers": self.servers, "security.protocol": self.protocol.value}
        if self.protocol.uses_tls:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if self.certificate is not None:
            # Java expects the key and the certificate in one file.
            store = self.certificate.key.with_suffix(".store")
            store.write_bytes(self.certificate.key.read_bytes() + self.certificate.certificate.read_bytes())
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
        if self.protocol.uses_sasl:
            settings |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": self._jaas}
        if self.token:
            path = self.ca.with_name(f"token-{abs(hash(self.token))}")
            path.write_text(self.token)
            settings["sasl.oauthbearer.token.endpoint.url"] = path.as_uri()
            handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
            settings["sasl.login.callback.handler.class"] = handler
        return settings

    @property
    def _jaas(self) -> str:
        package = "org.apache.kafka.common.security"
        if self.token:
            return f"{package}.oauthbearer.OAuthBearerLoginModule required;"
        module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
        return f'{package}.{module} required username="{self.user}" password="{self.password}";'


class SecureBroker:
    """`running()` is the broker; listeners other than the first have the names of their protocols."""

    def __init__(self, folder: Path, **security: Any) -> None:
        self.certificates = Certificates(folder / "ca")
        self.strangers = Certificates(folder / "strangers", "stranger-ca")
        self.issuer = TokenIssuer(folder / "keys.json")
        self._ports = {protocol: free_port() for protocol in SecurityProtocol if protocol != "PLAINTEXT"}
        issued = self.certificates.issue()
        self._settings: dict[str, Any] = {
            "network": {"listeners": ",".join(f"{name}=127.0.0.1:{port}" for name, port in self._ports.items())},
            "security": {
                "protocols": ",".join(f"{name}={name}" for name in self._ports),
                "certificate": str(issued.certificate),
                "key": str(issued.key),
                "client_ca": str(self.certificates.ca),
                "client_certificates": "requested",
                "principal_mapping_rules": "RULE:^CN=(.*?),OU=Tests$/$1/,DEFAULT",
                "sasl_mechanisms": MECHANISMS,
                "users_file": str(users_file(folder, {USER: PASSWORD})),
                "failed_authentication_delay_ms": 0,
                "oauth_jwks": str(self.issuer.path),
                "oauth_clock_skew_ms": 0,
                **security,
            },
        }
        # What the broker recorded of authentications: mechanism, user and reason; and of TLS handshakes that failed.
        self.failures: list[tuple[str, str, str]] = []
        self.handshake_failures: list[str] = []
        self.authenticated = 0

    @contextmanager
    def running(self) -> Iterator["SecureBroker"]:
        with Broker(settings=self._settings) as self.broker:
            self._record()
            yield self

    def _record(self) -> None:
        """Note what the audit log and the listener are told, which they write at most once a second per address."""
        server = self.broker._running
        audit, warnings = server.services.audit, server.listener.warnings
        failed, authenticated, warn = audit.authentication_failed, audit.authenticated, warnings.warn

        def record_failure(host: str, listener: str, mechanism: str, user: str, reason: str) -> None:
            self.failures.append((mechanism, user, reason))
            failed(host, listener, mechanism, user, reason)

        def record_authentication(*facts: Any) -> None:
            self.authenticated += 1
            authenticated(*facts)

        def record_warning(key: str, event: str, **fields: Any) -> None:
            if event == "tls handshake failed":
                self.handshake_failures.append(str(fields["error"]))
            warn(key, event, **fields)

        audit.authentication_failed = record_failure  # type: ignore[method-assign]
        audit.authenticated = record_authentication  # type: ignore[assignment, method-assign]
        warnings.warn = record_warning  # type: ignore[method-assign]

    def wait_for_handshake_failure(self, *reasons: str) -> None:
        """Wait until the broker has logged a TLS handshake that failed for one of these reasons."""

        def is_logged() -> bool:
            return any(reason in failure for failure in self.handshake_failures for reason in reasons)

        wait_until(is_logged, f"a handshake that fails because of {' or '.join(reasons)}: {self.handshake_failures}")

    def login(self, protocol: str, mechanism: str = "", **changes: Any) -> Login:
        """Return a login that succeeds, unless something of it is changed."""
        kind = SecurityProtocol(protocol)
        login = Login(f"127.0.0.1:{self._ports[kind]}", kind, self.certificates.ca, mechanism)
        if mechanism == "OAUTHBEARER":
            login = replace(login, token=self.issuer.token(USER, iat=None))
        return replace(login, **changes)

    def new_topic(self) -> str:
        topic = f"secure-{next(_topics)}"
        self.broker.create_topic(topic)
        return topic
