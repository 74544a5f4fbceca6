"""The link of a broker to a cluster whose metadata is in etcd, from the settings of `logbrook serve`."""

import asyncio
from pathlib import Path

from logbrook.config import BrokerConfig
from logbrook.config.cluster import ClusterConfig
from logbrook.config.network import split_address
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.model.version import install_command
from logbrook.ports.metadata_store import MetadataStore, StoreTransaction, StoreUnavailableError
from logbrook.server.cluster.background import pause
from logbrook.server.cluster.node import ClusterLink
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.server.cluster.peer_security import InvalidPeerSecurityError, peer_security, warn_of_missing_rights

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RETRY_S = 1.0

_logger = event_logger(__name__)


class InvalidClusterError(LogbrookError):
    """The settings of the cluster cannot be used."""


def open_link(config: BrokerConfig) -> ClusterLink:
    """Raises InvalidClusterError."""
    cluster = config.cluster
    addresses, name = parse_store(cluster.store)

    try:
        security = peer_security(config)
        warn_of_missing_rights(config)
    except InvalidPeerSecurityError as error:
        raise InvalidClusterError(str(error)) from None

    async def connect(host: str, port: int) -> PeerConnection:
        return await PeerConnection.connect(host, port, f"broker-{config.node_id}", security=security)

    return ClusterLink(
        _open_store(addresses, name, cluster),
        connect,
        rack=cluster.rack,
        lease_s=cluster.lease_ms / 1000,
        replica_lag_ms_max=cluster.replica_lag_ms_max,
        boot_id=_BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "",
    )


def parse_store(store: str) -> tuple[list[str], str]:
    """Return the addresses of etcd and the name of the cluster. Raises InvalidClusterError."""
    endpoints, slash, name = store.rpartition("/")
    addresses = [address.strip() for address in endpoints.split(",") if address.strip()]
    if not slash or not name or not addresses:
        raise InvalidClusterError(
            f"--cluster {store} is not ADDRESSES/NAME, such as 10.0.0.1:2379,10.0.0.2:2379/orders"
        )
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            raise InvalidClusterError(f"--cluster {store}: {error}") from None
    return addresses, name


async def wait_for_store(store: MetadataStore, stopping: asyncio.Event) -> bool:
    """Wait until the store answers, and say so. Return False if the broker is stopped before."""
    is_told = False
    while not stopping.is_set():
        try:
            await store.commit(StoreTransaction([], []))
        except StoreUnavailableError as error:
            if not is_told:
                _logger.warning("waiting for the metadata store", error=error)
                is_told = True
            await pause(_RETRY_S)
        else:
            return True
    return False


def _open_store(addresses: list[str], name: str, config: ClusterConfig) -> MetadataStore:
    try:
        # Optional packages; a single node does not need them.
        from logbrook.server.etcd.endpoints import EtcdCredentials  # noqa: PLC0415
        from logbrook.server.etcd.store import EtcdMetadataStore  # noqa: PLC0415
    except ImportError as error:
        raise InvalidClusterError(f"--cluster needs the package {error.name}: {install_command('cluster')}") from None
    credentials = EtcdCredentials(
        ca=_readable(config.etcd_ca),
        certificate=_readable(config.etcd_certificate),
        key=_readable(config.etcd_key),
        username=config.etcd_user,
        password=_password(config.etcd_password_file),
    )
    try:
        return EtcdMetadataStore(addresses, name, credentials)
    except OSError as error:
        files = ", ".join(path for path in (config.etcd_ca, config.etcd_certificate, config.etcd_key) if path)
        raise InvalidClusterError(f"{files} cannot be used for TLS: {error}") from None


def _readable(path: str) -> str | None:
    """Return the path, None if it is empty. Raises InvalidClusterError."""
    if not path:
        return None
    _read(path)
    return path


def _password(path: str) -> str:
    """Raises InvalidClusterError."""
    return _read(path).decode().strip() if path else ""


def _read(path: str) -> bytes:
    """Raises InvalidClusterError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidClusterError(f"{path} cannot be read: {error.strerror}") from None
