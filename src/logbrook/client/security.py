"""The security of a client's connections, from the options of Kafka's Java clients and of librdkafka.

    security = parse_client_security({
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "...",
        "ssl.ca.location": "/etc/kafka/ca.pem",
    })
    Client("broker-1:9094", security=security)

Options with the same meaning in both clients have both names. Unknown and contradictory options are refused by name:
credentials that are given without a protocol that uses them would otherwise not be noticed. Values hold no open files
and can be pickled; their `repr` and all errors leave the secrets out. Files are read when a connection is made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from logbrook.client.errors import SecurityOptionError
from logbrook.client.sasl_options import SaslOptions, read_sasl
from logbrook.client.security_options import SECRET_OPTIONS, SecurityOptionReader
from logbrook.client.tls_options import TlsOptions, read_tls
from logbrook.model.security import SecurityProtocol


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The security of connections to a cluster. The default is plain text without authentication."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsOptions = field(default_factory=TlsOptions)
    sasl: SaslOptions | None = None

    def __post_init__(self) -> None:
        assert (self.sasl is not None) == self.protocol.uses_sasl, "SASL needs credentials, and the reverse"


PLAINTEXT_SECURITY = ClientSecurity()


def parse_client_security(options: Mapping[str, str]) -> ClientSecurity:
    """Read options that `is_security_option` is True of. Raises SecurityOptionError."""
    reader = SecurityOptionReader(
        {name: value if name in SECRET_OPTIONS else value.strip() for name, value in options.items()}
    )
    protocol = _read_protocol(reader)
    tls, sasl = read_tls(reader), read_sasl(reader, protocol)
    if not protocol.uses_tls and (name := reader.first_given("ssl.", "enable.ssl.")):
        raise SecurityOptionError(name, f"it needs security.protocol=SSL or SASL_SSL, which is {protocol}")
    if not protocol.uses_sasl and (name := reader.first_given("sasl.", "https.")):
        raise SecurityOptionError(name, f"it needs security.protocol=SASL_SSL or SASL_PLAINTEXT, which is {protocol}")
    return ClientSecurity(protocol, tls if protocol.uses_tls else TlsOptions(), sasl)


def _read_protocol(reader: SecurityOptionReader) -> SecurityProtocol:
    text = reader.text("security.protocol") or SecurityProtocol.PLAINTEXT
    try:
        return SecurityProtocol(text.upper())
    except ValueError:
        raise SecurityOptionError(
            "security.protocol", f"{text!r} is not one of {', '.join(SecurityProtocol)}"
        ) from None
