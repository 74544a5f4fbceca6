"""Names of security that both sides of a connection use: protocols of listeners, SASL mechanisms, principals."""

from enum import StrEnum
from typing import NamedTuple


class SecurityProtocol(StrEnum):
    """Kafka's security protocols: whether a connection is encrypted, and whether its client authenticates with SASL."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class SaslMechanism(StrEnum):
    """The SASL mechanisms, with their registered names."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


class Principal(NamedTuple):
    """An authenticated identity. ACLs, quotas and super users name it as KIND:NAME."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """Read KIND:NAME; the name may contain colons. Raises ValueError."""
        kind, colon, name = text.strip().partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{text!r} is not a principal such as User:alice")
        return cls(kind, name)


USER = "User"
# The principal of every connection that is not authenticated.
ANONYMOUS = Principal(USER, "ANONYMOUS")


class ScramCredential(NamedTuple):
    """The keys that a server stores for SCRAM (RFC 5802): they verify a password, which cannot be derived from them."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"
