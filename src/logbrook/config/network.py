"""Settings of the listeners (Kafka protocol, JSON protocol, metrics, web console), and parsing of HOST:PORT.

The limits in `NetworkConfig` bound everything that a client can make the broker hold in memory.
"""

import re
from enum import StrEnum
from ipaddress import AddressValueError, IPv6Address, ip_address

from logbrook.config.setting import Settings, setting

# Address of the console when `--console` is given without a value, and of `logbrook console`.
CONSOLE_LISTEN = "127.0.0.1:9080"
# The console's token is an environment variable only: settings are printed by `config show`, a secret must not be.
TOKEN_VARIABLE = "LOGBROOK_CONSOLE_TOKEN"
_MIB = 1 << 20
_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_LISTENER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PORT_MAX = 65_535
# The listener of the setting `listen`.
DEFAULT_LISTENER = "CLIENTS"


class PortAuthentication(StrEnum):
    """Policy for the authentication on a port that does not speak Kafka's protocol."""

    # If a listener for Kafka clients uses SASL, or ACLs are enforced.
    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


class NetworkConfig(Settings):
    """The settings of the listeners for clients."""

    listen: str = setting(
        "127.0.0.1:9092",
        "HOST:PORT of the listener for Kafka clients. Use 0.0.0.0:9092 to accept clients from other hosts (then set "
        "advertise too); port 0 takes a free port.",
        flag="listen",
    )
    advertise: str | None = setting(
        None,
        "HOST:PORT that metadata responses give to clients; needed behind NAT or a proxy and in containers. Without it "
        "the listener's own address is given.",
        flag="advertise",
    )
    listeners: str = setting(
        "",
        "NAME=HOST:PORT of a further listener for Kafka clients; several are separated by commas, or the flag is "
        "repeated. Its clients are told the addresses that the brokers have under this name.",
        flag="listener",
    )
    advertised_listeners: str = setting(
        "",
        "NAME=HOST:PORT that clients of a further listener are told instead of the address that it listens on; several "
        "are separated by commas, or the flag is repeated.",
        flag="advertised-listener",
    )
    json_listen: str = setting(
        "",
        "HOST:PORT of the listener for the JSON protocol, or a port alone to listen on 127.0.0.1. Empty disables it.",
        flag="json-port",
    )
    json_authentication: PortAuthentication = setting(
        PortAuthentication.AUTO,
        "Whether clients of the JSON protocol have to authenticate before other requests than Ping. auto: if a "
        "listener for Kafka clients uses SASL, or with security.authorization.",
    )
    connections_max: int = setting(
        10_000,
        "Maximum number of open client connections; further ones are closed when they are accepted. Each needs a file "
        "descriptor, so the process limit (ulimit -n) must be higher.",
        kafka="max.connections",
        at_least=1,
    )
    connections_per_address_max: int = setting(
        5_000,
        "Maximum number of open connections from one address; further ones are closed when they are accepted. Raise it "
        "if all clients come through one proxy.",
        kafka="max.connections.per.ip",
        at_least=1,
    )
    connection_first_request_ms: int = setting(
        30_000,
        "A new connection that sends nothing within this time is closed. At the limit of connections, the oldest one "
        "without a request is closed at once, to make room.",
        at_least=1,
    )
    connection_idle_ms: int = setting(
        600_000,
        "A connection without a request for this long is closed. Kafka clients reconnect when they need to; the "
        "default is Kafka's.",
        kafka="connections.max.idle.ms",
        at_least=1,
    )
    connection_stalled_ms: int = setting(
        30_000,
        "A connection that transfers less than 64 KiB of a pending request or response within this time is closed, so "
        "that slow or dead peers do not hold memory; so is one whose request takes longer than this plus 2 s per MiB. "
        "Raise it for very slow links.",
        at_least=1,
    )
    request_bytes_max: int = setting(
        100 * _MIB,
        "Maximum size of a produce request; a larger one closes the connection. Other requests are limited to a "
        "sixteenth of it, but at least 1 MiB.",
        kafka="socket.request.max.bytes",
        at_least=1024,
        at_most=2**31 - 1,
    )
    json_request_bytes_max: int = setting(
        2 * _MIB,
        "Maximum size of a request in the JSON protocol. JSON is parsed on the event loop: a large request delays all "
        "other clients while it is parsed.",
        at_least=1024,
        at_most=64 * _MIB,
    )
    in_flight_bytes_max: int = setting(
        32 * _MIB,
        "Back-pressure per connection: no further request is read while its unanswered requests and unsent responses "
        "hold this much.",
        at_least=1024,
    )
    in_flight_requests_max: int = setting(
        128,
        "Back-pressure per connection: no further request is read while this many are unanswered. 1 disables "
        "pipelining.",
        at_least=1,
    )
    received_bytes_max: int = setting(
        1024 * _MIB,
        "Back-pressure across all connections: it bounds the broker's memory for unanswered requests. The clients of "
        "one address get at most half, and each connection a quarter of what is left; other large requests wait. A "
        "quarter of both is kept for requests up to 1/32 of the bound.",
        kafka="queued.max.request.bytes",
        at_least=1024,
    )
    fetch_bytes_max: int = setting(
        16 * _MIB,
        "Upper bound for the records in one fetch response, whatever the client asks for. The first batch is returned "
        "even if it alone is larger, so that consumers make progress.",
        kafka="fetch.max.bytes",
        at_least=1024,
    )
    answers_bytes_max: int = setting(
        256 * _MIB,
        "Maximum size of all responses in memory. From three quarters of it on, fetch responses have at most 64 KiB or "
        "one batch, and clients that take longer than connection_stalled_ms to read their responses are disconnected; "
        "at the limit fetches wait.",
        at_least=1024,
    )
    fetch_sessions_max: int = setting(
        1_000,
        "Number of incremental fetch sessions kept (KIP-227). Consumers without a session send their full partition "
        "list with each fetch; 0 disables sessions.",
        kafka="max.incremental.fetch.session.cache.slots",
        at_least=0,
    )
    quota_windows: int = setting(
        11,
        "Number of windows over which rates of quotas are measured. A client that was idle may use its quota of all "
        "windows but one at once.",
        kafka="quota.window.num",
        at_least=1,
        at_most=1_000,
    )
    quota_window_ms: int = setting(
        1_000,
        "Length of a window of quotas. It is also the longest throttle time for request_percentage and "
        "connection_creation_rate.",
        at_least=1,
    )
    stop_ms: int = setting(
        10_000,
        "On shutdown, time to finish and send responses to accepted requests before connections are closed.",
        at_least=0,
    )


class MetricsConfig(Settings):
    """The settings of the HTTP listener for metrics, health and readiness."""

    listen: str = setting(
        "127.0.0.1:9644",
        "HOST:PORT of the HTTP listener for /metrics (Prometheus), /healthz, /readyz and maintenance on demand. Empty "
        "disables it.",
        flag="metrics",
    )
    authentication: PortAuthentication = setting(
        PortAuthentication.AUTO,
        "Whether clients of the HTTP listener have to authenticate, with a password, a bearer token or a certificate; "
        "/healthz and /readyz are always open. auto: if a listener for Kafka clients uses SASL, or with "
        "security.authorization. Requests that change something need authentication from other machines in any case.",
    )
    tls: bool = setting(
        False,
        "Serve HTTPS only, with the certificate of security.certificate and its policy for clients' certificates.",
    )


class ConsoleConfig(Settings):
    """The settings of the web console that is started with the broker."""

    listen: str = setting(
        "",
        "HOST:PORT of the web console and the HTTP API, or a port alone to listen on 127.0.0.1. Empty: no console is "
        f"started. If `listen` of the network uses SASL, users sign in with their own passwords; else any other host "
        f"requires a token in {TOKEN_VARIABLE}.",
        flag="console",
    )
    url: str = setting(
        "",
        "Address by which browsers reach the console, such as https://console.example, if it is not that of `listen`.",
    )
    tls: bool = setting(False, "Serve HTTPS with the certificate of security.certificate.")
    client_config: str = setting(
        "",
        "File with options of a Kafka client (.properties) for the console's connections to this broker, such as "
        "ssl.ca.location; credentials in it are used only if users do not sign in.",
    )


def is_loopback(host: str) -> bool:
    """Return True if `host` is localhost or a loopback address; other host names are not resolved."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def parse_listeners(text: str) -> dict[str, tuple[str, int]]:
    """Return the addresses of NAME=HOST:PORT,... by their names, in capitals. Raises ValueError."""
    return {name: split_address(address) for name, address in parse_named(text, "NAME=HOST:PORT").items()}


def parse_named(text: str, form: str) -> dict[str, str]:
    """Return the values of NAME=VALUE,... by the names of listeners, in capitals. `form` is for errors: ValueError."""
    named: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        name = name.strip().upper()
        if not equals or not _LISTENER_NAME.fullmatch(name):
            raise ValueError(f"{part!r} is not {form}")
        if name in named or name == DEFAULT_LISTENER:
            raise ValueError(f"there are two listeners {name}")
        named[name] = value.strip()
    return named


def split_address(text: str) -> tuple[str, int]:
    """Split HOST:PORT; the brackets around an IPv6 host are removed. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdecimal() and int(port) <= _PORT_MAX):
        raise ValueError(f"{text!r} is not HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        try:
            IPv6Address(host[1:-1])
        except AddressValueError as error:
            raise ValueError(f"{text!r} has no IPv6 address in its brackets") from error
        return host[1:-1], int(port)
    if not _HOST_NAME.fullmatch(host):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)
