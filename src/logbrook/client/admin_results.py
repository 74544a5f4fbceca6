"""Results of `Admin`. A number that is not available, because a partition has no leader or the broker is too old, is
None."""

from dataclasses import dataclass
from enum import IntEnum

from logbrook.client.client import Address
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId


class SettingSource(IntEnum):
    """Kafka's ConfigSource, by its number in DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    id: BrokerId
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    cluster_id: str | None
    controller_id: BrokerId
    brokers: tuple[BrokerInfo, ...]


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker, the bytes of each replica, and the disk's size if the broker has it (KIP-827)."""

    broker_id: BrokerId
    path: str
    partitions: dict[TopicPartition, int]
    total_bytes: int | None
    usable_bytes: int | None

    @property
    def size_bytes(self) -> int:
        """Bytes of all replicas in the directory."""
        return sum(self.partitions.values())


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a topic or broker. `default` is the value without the override of this topic or broker."""

    name: str
    value: str | None
    source: SettingSource
    default: str | None
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """True if the value is Kafka's default, set nowhere."""
        return self.source is SettingSource.DEFAULT


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition; `leader` is None while it has none, and the size is that of the leader's replica."""

    partition: int
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    in_sync_replicas: tuple[BrokerId, ...]
    start_offset: Offset | None
    end_offset: Offset | None
    size_bytes: int | None

    @property
    def offsets(self) -> int | None:
        """Offsets from start to end: the number of records, unless the topic is compacted or transactional."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    id: bytes
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the leaders' replicas, of those partitions where it is known."""
        return _sum([partition.size_bytes for partition in self.partitions])

    @property
    def offsets(self) -> int | None:
        """The sum of `PartitionInfo.offsets`."""
        return _sum([partition.offsets for partition in self.partitions])


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A listed group. `state` and `type` are empty if the broker is too old to report them."""

    group_id: str
    state: str
    protocol_type: str
    type: str


@dataclass(frozen=True, slots=True)
class GroupMemberInfo:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """The progress of a group in a partition that it has committed to or that is assigned to one of its members."""

    partition: TopicPartition
    committed_offset: Offset | None
    start_offset: Offset | None
    end_offset: Offset | None
    metadata: str
    member: GroupMemberInfo | None

    @property
    def lag(self) -> int | None:
        """Offsets between the committed one and the end of the log, without those before the log start offset."""
        if self.committed_offset is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - max(self.committed_offset, self.start_offset or 0))


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group. `type` is "consumer" for the protocol of KIP-848, else "classic"."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: Address
    members: tuple[GroupMemberInfo, ...]
    partitions: tuple[GroupPartition, ...]

    @property
    def lag(self) -> int | None:
        """The sum over the partitions where it is known."""
        return _sum([partition.lag for partition in self.partitions])


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The change of a group's committed offset in a partition by a reset."""

    partition: TopicPartition
    before: Offset | None
    after: Offset


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """The state of a transactional id. `started_ms` is None while no transaction is open."""

    transactional_id: str
    state: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_id: BrokerId
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


def _sum(numbers: list[int | None]) -> int | None:
    present = [number for number in numbers if number is not None]
    return sum(present) if present or not numbers else None
