"""The addresses that a broker listens on and those that it tells clients, by the names of its listeners."""

from logbrook.config import BrokerConfig, NetworkConfig
from logbrook.config.network import (
    DEFAULT_LISTENER,
    PortAuthentication,
    is_loopback,
    parse_listeners,
    parse_named,
    split_address,
)
from logbrook.config.security import ClientCertificates, SecurityConfig
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.model.security import SaslMechanism, SecurityProtocol
from logbrook.server.cluster_view import AdvertisedAddress
from logbrook.server.security.errors import InvalidSecurityError

# The names of the listeners that do not speak Kafka's protocol, in log and audit events.
HTTP_LISTENER = "HTTP"
JSON_LISTENER = "JSON"
_WILDCARD_HOSTS = ("0.0.0.0", "::")

_logger = event_logger(__name__)


class NotAdvertisedError(LogbrookError):
    """The listen address is a wildcard and no advertised address is configured."""

    def __init__(self, listen: str, advice: str) -> None:
        super().__init__(
            f"{listen} is not an address that clients can connect to; set {advice} to the address that the broker "
            "should announce to them"
        )


class UnknownListenerError(LogbrookError):
    """A setting names a listener that does not exist."""

    def __init__(self, flag: str, name: str) -> None:
        super().__init__(f"{flag} names the listener {name}, which does not exist; add --listener {name}=HOST:PORT")


def listen_addresses(network: NetworkConfig) -> dict[str, tuple[str, int]]:
    """Return the addresses to bind, the default listener first."""
    return {DEFAULT_LISTENER: split_address(network.listen), **parse_listeners(network.listeners)}


def cluster_listener(config: BrokerConfig) -> str:
    """Return the name of the listener for the other brokers of the cluster."""
    return config.cluster.listener.upper() or DEFAULT_LISTENER


def advertised_address(network: NetworkConfig, name: str, port: int) -> AdvertisedAddress:
    """Return the address for clients of a listener that is bound to `port`. Raises NotAdvertisedError."""
    host, _ = listen_addresses(network)[name]
    advertised = _advertised(network).get(name)
    if advertised is not None:
        return AdvertisedAddress(advertised[0], advertised[1] or port)
    if host in _WILDCARD_HOSTS:
        if name == DEFAULT_LISTENER:
            raise NotAdvertisedError(f"--listen {network.listen}", "--advertise HOST:PORT")
        raise NotAdvertisedError(f"--listener {name}={host}:{port}", f"--advertised-listener {name}=HOST:PORT")
    return AdvertisedAddress(host, port)


def check_listeners(config: BrokerConfig) -> None:
    """Raises NotAdvertisedError or UnknownListenerError."""
    listeners = listen_addresses(config.network)
    for name in _advertised(config.network):
        if name not in listeners:
            raise UnknownListenerError("--advertised-listener", name)
    if cluster_listener(config) not in listeners:
        raise UnknownListenerError("--cluster-listener", config.cluster.listener)
    for name, (_, port) in listeners.items():
        advertised_address(config.network, name, port)


def check_security(config: BrokerConfig) -> None:
    """Raises UnknownListenerError or InvalidSecurityError."""
    security, listeners = config.security, listen_addresses(config.network)
    try:
        for name in parse_named(security.protocols, "NAME=PROTOCOL"):
            if name not in listeners:
                raise UnknownListenerError("--listener-protocol", name)
        for name in listeners:
            security.protocol_of(name)
    except ValueError as error:
        raise InvalidSecurityError(f"security.protocols: {error}") from None
    try:
        _ = security.super_principals
    except ValueError as error:
        raise InvalidSecurityError(f"security.super_users: {error}") from None
    plain = [name for name in listeners if security.protocol_of(name) is SecurityProtocol.SASL_PLAINTEXT]
    hosts = [listeners[name][0] for name in plain]
    if SaslMechanism.PLAIN in security.sasl_mechanisms and not all(is_loopback(host) for host in hosts):
        _logger.warning(
            "passwords are sent in plain text", listeners=plain, action="use SASL_SSL, or SCRAM instead of PLAIN"
        )


def needs_authentication(config: BrokerConfig, policy: PortAuthentication) -> bool:
    """Return True if clients of a port that does not speak Kafka's protocol have to authenticate."""
    if policy is not PortAuthentication.AUTO:
        return policy is PortAuthentication.REQUIRED
    security, listeners = config.security, listen_addresses(config.network)
    return security.authorization or any(security.protocol_of(name).uses_sasl for name in listeners)


def warn_of_open_listeners(config: BrokerConfig) -> None:
    """Log a warning if clients from other hosts can connect without authentication, or send passwords as they are."""
    security, network, metrics = config.security, config.network, config.metrics
    open_listeners = [
        name
        for name, address in listen_addresses(network).items()
        if not is_loopback(address[0]) and not _authenticates(security, name)
    ]
    plain_listeners = []
    for name, listen, policy, has_tls in (
        (HTTP_LISTENER, metrics.listen, metrics.authentication, metrics.tls),
        (JSON_LISTENER, network.json_listen, network.json_authentication, security.protocol.uses_tls),
    ):
        if listen and not is_loopback(split_address(listen)[0]):
            if not needs_authentication(config, policy):
                open_listeners.append(name)
            elif not has_tls:
                plain_listeners.append(name)
    if plain_listeners:
        action = "set metrics.tls, and a security.protocol with TLS for JSON"
        _logger.warning("passwords are sent in plain text", listeners=plain_listeners, action=action)
    if open_listeners:
        _logger.warning(
            "clients from other hosts need no authentication",
            listeners=sorted(open_listeners),
            action="set --security-protocol SASL_SSL and --authorization (docs/SECURITY.md), or listen on 127.0.0.1",
        )


def _authenticates(security: SecurityConfig, listener: str) -> bool:
    protocol = security.protocol_of(listener)
    requires_certificate = security.client_certificates is ClientCertificates.REQUIRED
    return protocol.uses_sasl or (protocol.uses_tls and requires_certificate)


def _advertised(network: NetworkConfig) -> dict[str, tuple[str, int]]:
    default = {} if network.advertise is None else {DEFAULT_LISTENER: split_address(network.advertise)}
    return default | parse_listeners(network.advertised_listeners)
