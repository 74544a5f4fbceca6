"""The image of a cluster: what one broker knows of all brokers, nodes and partitions.

It is loaded from a snapshot of the metadata store and follows its changes; only `replay` changes it. An image may be
older than the store. That is harmless: every change that is decided on it is written with the revisions it was decided
on, and every request carries an epoch.

    brokers/N         a broker that is alive; deleted with its lease. Its create revision is the broker epoch
    nodes/N           a broker that has ever been alive: its data directory and how it stopped
    partitions/ID/P   the registration of a partition; its mod revision is the partition epoch

Other keys belong to `core.metadata`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

from logbrook.config.network import DEFAULT_LISTENER
from logbrook.core.cluster.partition import PartitionRegistration
from logbrook.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch
from logbrook.ports.metadata_store import StoreEntry

T = TypeVar("T", "BrokerRegistration", "NodeRecord")

BROKER_PREFIX = "brokers/"
_NODES = "nodes/"
PARTITION_PREFIX = "partitions/"


class PartitionKey(NamedTuple):
    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker. `is_stopping` is set before a controlled shutdown: it joins no ISR any more (KIP-841).

    `host` and `port` are those of the default listener, `listeners` has the addresses of further ones by name.
    """

    host: str
    port: int
    rack: str = ""
    directory_id: str = ""
    is_stopping: bool = False
    listeners: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def address(self, listener: str) -> tuple[str, int] | None:
        """Return host and port for the clients of a listener, None if the broker does not have it."""
        if listener == DEFAULT_LISTENER:
            return self.host, self.port
        address = self.listeners.get(listener)
        return None if address is None else (address[0], address[1])


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The last life of a broker: its data directory, registration, address, features, and whether it stopped cleanly.

    `registration_id` is a random id that the directory has, too. `boot_id` identifies the run of the machine's kernel:
    after a crash of the broker alone, the page cache is intact.
    """

    directory_id: str
    registration_id: str
    stopped_cleanly: bool = False
    boot_id: str = ""
    host: str = ""
    port: int = 0
    rack: str = ""
    # First and last supported level of each feature (`features`).
    features: Mapping[str, Sequence[int]] = field(default_factory=dict)


class LiveBroker(NamedTuple):
    registration: BrokerRegistration
    epoch: BrokerEpoch


class ImagePartition(NamedTuple):
    """A registration and its partition epoch."""

    registration: PartitionRegistration
    epoch: int


class ClusterImage:
    """Used by one broker. Iterate over a copy if the loop waits: a replay changes it in place."""

    def __init__(self) -> None:
        self.brokers: dict[BrokerId, LiveBroker] = {}
        self.nodes: dict[BrokerId, NodeRecord] = {}
        self.partitions: dict[PartitionKey, ImagePartition] = {}

    @property
    def broker_epochs(self) -> dict[BrokerId, BrokerEpoch]:
        """The epochs of the live brokers."""
        return {broker_id: broker.epoch for broker_id, broker in self.brokers.items()}

    def is_current(self, broker_id: BrokerId, epoch: BrokerEpoch) -> bool:
        """True if this life of the broker is registered."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.epoch == epoch

    def has_live_leader(self, partition: PartitionRegistration) -> bool:
        """True if the leader is alive in the life in which it was elected."""
        return partition.has_leader and self.is_current(partition.leader, partition.leader_broker_epoch)

    def load(self, entries: Mapping[str, StoreEntry]) -> None:
        """Replace everything by the entries of a snapshot."""
        self.brokers.clear()
        self.nodes.clear()
        self.partitions.clear()
        for key, entry in entries.items():
            if self.has_key(key):
                self.replay(key, entry)

    @staticmethod
    def has_key(key: str) -> bool:
        """True if the key belongs to the image."""
        return key.startswith((BROKER_PREFIX, _NODES, PARTITION_PREFIX))

    def replay(self, key: str, entry: StoreEntry | None) -> None:
        """Apply a changed entry, or None for a deleted one. Raises ValueError for an entry of another version."""
        if key.startswith(BROKER_PREFIX):
            broker_id = BrokerId(int(key.removeprefix(BROKER_PREFIX)))
            if entry is None:
                self.brokers.pop(broker_id, None)
            else:
                registration = _decode(BrokerRegistration, entry.value)
                self.brokers[broker_id] = LiveBroker(registration, BrokerEpoch(entry.create_revision))
        elif key.startswith(_NODES):
            broker_id = BrokerId(int(key.removeprefix(_NODES)))
            if entry is None:
                self.nodes.pop(broker_id, None)
            else:
                self.nodes[broker_id] = _decode(NodeRecord, entry.value)
        else:
            partition = parse_partition_key(key)
            if entry is None:
                self.partitions.pop(partition, None)
            else:
                self.partitions[partition] = ImagePartition(decode_partition(entry.value), entry.mod_revision)

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls."""
        for partition in self.partitions.values():
            partition.registration.validate()


def broker_key(broker_id: BrokerId) -> str:
    return f"{BROKER_PREFIX}{broker_id}"


def node_key(broker_id: BrokerId) -> str:
    return f"{_NODES}{broker_id}"


def partition_key(partition: PartitionKey) -> str:
    return f"{PARTITION_PREFIX}{partition.topic_id.hex()}/{partition.partition}"


def parse_partition_key(key: str) -> PartitionKey:
    """Raises ValueError."""
    topic_id, _, number = key.removeprefix(PARTITION_PREFIX).partition("/")
    return PartitionKey(bytes.fromhex(topic_id), int(number))


def encode_broker(registration: BrokerRegistration) -> bytes:
    return _encode(asdict(registration))


def encode_node(node: NodeRecord) -> bytes:
    return _encode(asdict(node))


def encode_partition(partition: PartitionRegistration) -> bytes:
    """Encode a registration. Most partitions have no ELR and no reassignment, so these are left out when empty."""
    content: dict[str, Any] = {
        "replicas": partition.replicas,
        "isr": partition.isr,
        "leader": partition.leader,
        "brokerEpoch": partition.leader_broker_epoch,
        "epoch": partition.leader_epoch,
    }
    optional = {"elr": partition.elr, "adding": partition.adding, "removing": partition.removing}
    return _encode(content | {name: members for name, members in optional.items() if members})


def decode_partition(value: bytes) -> PartitionRegistration:
    """Raises ValueError."""
    content = json.loads(value)
    return PartitionRegistration(
        replicas=_brokers(content["replicas"]),
        isr=_brokers(content["isr"]),
        leader=BrokerId(content["leader"]),
        leader_broker_epoch=BrokerEpoch(content["brokerEpoch"]),
        leader_epoch=LeaderEpoch(content["epoch"]),
        elr=_brokers(content.get("elr", ())),
        adding=_brokers(content.get("adding", ())),
        removing=_brokers(content.get("removing", ())),
    )


def _brokers(ids: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(broker_id) for broker_id in ids)


def _decode(kind: type[T], value: bytes) -> T:
    """Return an entry without the fields that only newer versions have. Raises ValueError."""
    content = json.loads(value)
    names = {described.name for described in fields(kind)}
    return kind(**{name: content[name] for name in content if name in names})


def _encode(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
