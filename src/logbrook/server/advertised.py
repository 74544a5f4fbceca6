"""The addresses that a broker listens on and those that it tells clients, by the names of its listeners."""

from logbrook.config import BrokerConfig, NetworkConfig
from logbrook.config.network import DEFAULT_LISTENER, parse_listeners, split_address
from logbrook.model import LogbrookError
from logbrook.server.cluster_view import AdvertisedAddress

_WILDCARD_HOSTS = ("0.0.0.0", "::")


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


def _advertised(network: NetworkConfig) -> dict[str, tuple[str, int]]:
    default = {} if network.advertise is None else {DEFAULT_LISTENER: split_address(network.advertise)}
    return default | parse_listeners(network.advertised_listeners)
