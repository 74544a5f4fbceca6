"""The addresses that a broker listens on and those that it tells clients, by the names of its listeners."""

from logbrook.config import BrokerConfig, NetworkConfig
from logbrook.config.network import DEFAULT_LISTENER, is_loopback, parse_listeners, parse_named, split_address
from logbrook.config.security import ClientCertificates, SecurityConfig
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.model.security import SaslMechanism, SecurityProtocol
from logbrook.server.cluster_view import AdvertisedAddress
from logbrook.server.security.errors import InvalidSecurityError

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


def warn_of_open_listeners(config: BrokerConfig) -> None:
    """Log a warning if clients from other hosts can connect without authentication."""
    security = config.security
    addresses = {
        name: address
        for name, address in listen_addresses(config.network).items()
        if not is_loopback(address[0]) and not _authenticates(security, name)
    }
    if addresses:
        _logger.warning(
            "clients from other hosts need no authentication",
            listeners=sorted(addresses),
            action="set --security-protocol SASL_SSL and --authorization (docs/SECURITY.md), or listen on 127.0.0.1",
        )


def _authenticates(security: SecurityConfig, listener: str) -> bool:
    protocol = security.protocol_of(listener)
    requires_certificate = security.client_certificates is ClientCertificates.REQUIRED
    return protocol.uses_sasl or (protocol.uses_tls and requires_certificate)


def _advertised(network: NetworkConfig) -> dict[str, tuple[str, int]]:
    default = {} if network.advertise is None else {DEFAULT_LISTENER: split_address(network.advertise)}
    return default | parse_listeners(network.advertised_listeners)
