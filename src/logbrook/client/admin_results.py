"""What `Admin` answers with. A number that nobody tells, because a partition has no leader or a broker will not say, is
None."""

from dataclasses import dataclass
from enum import IntEnum

from logbrook.client.client import Address
from logbrook.model import TopicPartition


class SettingSource(IntEnum):
    """Where the value of a setting is from, by its number in DescribeConfigs."""

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
    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerInfo, ...]


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A directory in which a broker keeps logs; what its disk has, where the broker tells (KIP-827)."""

    broker_id: int
    path: str
    partitions: dict[TopicPartition, int]
    total_bytes: int | None
    usable_bytes: int | None

    @property
    def size_bytes(self) -> int:
        """What its partitions take."""
        return sum(self.partitions.values())


@dataclass(frozen=True, slots=True)
class Setting:
    """`default` is what it would be if it were not set for the topic or the broker itself, where that is known."""

    name: str
    value: str | None
    source: SettingSource
    default: str | None
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it."""
        return self.source is SettingSource.DEFAULT


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition; `leader` is None while it has none. The size is that of the leader's copy."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None

    @property
    def offsets(self) -> int | None:
        """How many there are between start and end, which is the number of records unless the topic is compacted."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    id: bytes
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(one.replicas) for one in self.partitions), default=0)

    @property
    def size_bytes(self) -> int | None:
        """What the leaders' copies take, as far as it is known."""
        return _sum([one.size_bytes for one in self.partitions])

    @property
    def offsets(self) -> int | None:
        """As for a partition, of all of them."""
        return _sum([one.offsets for one in self.partitions])


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """`state` and `type` are empty where a broker is too old to tell them."""

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
    """How far a group is in a partition that it has committed to or that one of its members reads."""

    partition: TopicPartition
    committed_offset: int | None
    start_offset: int | None
    end_offset: int | None
    metadata: str
    member: GroupMemberInfo | None

    @property
    def lag(self) -> int | None:
        """How many offsets are left to read. What retention has removed cannot be read any more."""
        if self.committed_offset is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - max(self.committed_offset, self.start_offset or 0))


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """`type` is consumer for a group of Kafka's newer protocol (KIP-848), else classic."""

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
        """Of all partitions, as far as it is known."""
        return _sum([one.lag for one in self.partitions])


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """What a reset does, or would do, to a group's offset in a partition."""

    partition: TopicPartition
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transactional id. `started_ms` is None while no transaction is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    coordinator_id: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


def _sum(numbers: list[int | None]) -> int | None:
    known = [one for one in numbers if one is not None]
    return sum(known) if known or not numbers else None
