"""The files that `logbrook security init` writes: settings of the broker and of its clients.

Paths are absolute, so that the files work from any directory. Files with a key or a password are for their owner only.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from logbrook.model import LogbrookError
from logbrook.model.security import SaslMechanism, SecurityProtocol

AUTHORITY = "ca.pem"
AUTHORITY_KEY = "ca.key"
BROKER_CERTIFICATE = "broker.pem"
BROKER_KEY = "broker.key"
USERS = "users.json"
BROKER_SETTINGS = "broker.toml"
LIBRDKAFKA_SETTINGS = "client.properties"
JAVA_SETTINGS = "client-java.properties"
PYTHON_SETTINGS = "client-python.json"
SPARK_SETTINGS = "client-spark.json"

FILES = (
    AUTHORITY,
    AUTHORITY_KEY,
    BROKER_CERTIFICATE,
    BROKER_KEY,
    USERS,
    BROKER_SETTINGS,
    LIBRDKAFKA_SETTINGS,
    JAVA_SETTINGS,
    PYTHON_SETTINGS,
    SPARK_SETTINGS,
)

_DIRECTORY_MODE = 0o700
_OWNER_ONLY = 0o600
_READABLE = 0o644
_MECHANISM = SaslMechanism.SCRAM_SHA_512


class SecurityFilesError(LogbrookError):
    """A file exists already, or cannot be written or read."""


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """The address and credentials with which a client logs in to a broker with SASL_SSL."""

    bootstrap: str
    authority: str
    user: str
    password: str = field(repr=False)

    def librdkafka(self) -> str:
        """Return a file for kcat -F, confluent-kafka and the commands of Logbrook."""
        return _properties(
            {
                "bootstrap.servers": self.bootstrap,
                "security.protocol": SecurityProtocol.SASL_SSL,
                "sasl.mechanism": _MECHANISM,
                "sasl.username": self.user,
                "sasl.password": self.password,
                "ssl.ca.location": self.authority,
            }
        )

    def java(self) -> str:
        """Return a file for --command-config and --consumer.config of Kafka's tools."""
        return _properties(self._java())

    def python(self) -> str:
        """Return the arguments of kafka-python's clients."""
        return _json(
            {
                "bootstrap_servers": self.bootstrap,
                "security_protocol": SecurityProtocol.SASL_SSL,
                "sasl_mechanism": _MECHANISM,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
                "ssl_cafile": self.authority,
            }
        )

    def spark(self) -> str:
        """Return the options of Spark's sources and sinks, Kafka's and Logbrook's."""
        return _json({f"kafka.{name}": value for name, value in self._java().items()})

    def _java(self) -> dict[str, str]:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": SecurityProtocol.SASL_SSL,
            "sasl.mechanism": _MECHANISM,
            "sasl.jaas.config": f'{module} required username="{self.user}" password="{self.password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
        }


def broker_settings(directory: str, listen: str, advertise: str | None, admin: str) -> str:
    """Return the TOML file of a broker with one listener for SASL_SSL and authorization."""
    advertised = [f"advertise = {_toml(advertise)}"] if advertise else []
    security = {
        "protocol": str(SecurityProtocol.SASL_SSL),
        "certificate": os.path.join(directory, BROKER_CERTIFICATE),
        "key": os.path.join(directory, BROKER_KEY),
        "users_file": os.path.join(directory, USERS),
        "super_users": f"User:{admin}",
    }
    lines = [
        "# Written by `logbrook security init`. Start the broker with: logbrook serve --config FILE",
        "[network]",
        f"listen = {_toml(listen)}",
        *advertised,
        "",
        "[security]",
        *(f"{name} = {_toml(value)}" for name, value in security.items()),
        "authorization = true",
    ]
    return "\n".join(lines) + "\n"


def prepare_directory(directory: str) -> None:
    """Create the directory unless it exists. Raises SecurityFilesError if one of the files is in it."""
    existing = [name for name in FILES if os.path.lexists(os.path.join(directory, name))]
    if existing:
        raise SecurityFilesError(f"{directory} has {', '.join(existing)} already; nothing is overwritten")
    try:
        os.makedirs(directory, _DIRECTORY_MODE, exist_ok=True)
    except OSError as error:
        raise SecurityFilesError(f"{directory} cannot be created: {error.strerror}") from None


def write_file(path: str, content: str | bytes, *, is_secret: bool) -> None:
    """Write a new file. Raises SecurityFilesError if it exists or cannot be written."""
    data = content.encode() if isinstance(content, str) else content
    mode = _OWNER_ONLY if is_secret else _READABLE
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
    except OSError as error:
        raise SecurityFilesError(f"{path} cannot be written: {error.strerror}") from None


def read_file(path: str) -> bytes:
    """Raises SecurityFilesError."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SecurityFilesError(f"{path} cannot be read: {error.strerror}") from None


def _properties(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _json(values: Mapping[str, str]) -> str:
    return json.dumps(values, indent=2) + "\n"


def _toml(text: str) -> str:
    """Quote a path, an address or a name: a JSON string of printable ASCII characters is one of TOML."""
    return json.dumps(text)
