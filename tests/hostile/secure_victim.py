"""A broker under attack with a listener per security protocol."""

import shutil
import ssl
from pathlib import Path
from typing import Any

from logbrook.protocol.error_codes import ErrorCode
from logbrook.testing.processes import free_port
from tests.certificates import Certificates
from tests.hostile.victim import Victim
from tests.sasl_kit import SaslSocket, users_file

HANDSHAKE_MS = 1_000
HANDSHAKES_MAX = 48


class SecureVictim(Victim):
    """A broker with a listener per protocol; the default one is plain text, for honest clients."""

    def __init__(self, folder: Path, *flags: str, descriptors: int | None = None) -> None:
        self.folder = folder
        self.certificates = Certificates(folder / "ca")
        issued = self.certificates.issue()
        self.certificate, self.key = folder / "broker.crt", folder / "broker.key"
        shutil.copy(issued.certificate, self.certificate)
        shutil.copy(issued.key, self.key)
        self.ports = {name: free_port() for name in ("TLS", "SASL", "BOTH")}
        listeners = [f"{name}=127.0.0.1:{port}" for name, port in self.ports.items()]
        secure = {
            "listener": ",".join(listeners),
            "listener-protocol": "TLS=SSL,SASL=SASL_PLAINTEXT,BOTH=SASL_SSL",
            "security-certificate": str(self.certificate),
            "security-key": str(self.key),
            "security-sasl-mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "security-users-file": str(users_file(folder, {"alice": "wonderland"})),
            "security-handshake-ms": str(HANDSHAKE_MS),
            "security-handshakes-max": str(HANDSHAKES_MAX),
            "security-failed-authentication-delay-ms": "0",
            "metrics-authentication": "none",
        }
        words = [word for name, value in secure.items() for word in (f"--{name}", value)]
        super().__init__(str(folder / "data"), *words, *flags, descriptors=descriptors)

    def context(self, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context

    def connect_tls(self, listener: str = "TLS", context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        plain = self.connect(port=self.ports[listener])
        try:
            return (context or self.context()).wrap_socket(plain, server_hostname="127.0.0.1")
        except BaseException:
            plain.close()
            raise

    def connect_sasl(self, listener: str = "SASL") -> SaslSocket:
        plain = listener == "SASL"
        return SaslSocket(self.connect(port=self.ports[listener]) if plain else self.connect_tls(listener))

    def check_secure(self) -> None:
        """An honest client logs in over TLS and is served."""
        with self.connect_sasl("BOTH") as honest:
            assert honest.log_in("alice", "wonderland").error_code == ErrorCode.NONE
            assert honest.is_served()

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self._lines if line["event"] == name]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)
