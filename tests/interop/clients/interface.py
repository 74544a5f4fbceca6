"""The interface between scenarios and clients; each client has an adapter that implements it.

A client lists the features that it does not have in `lacks`; a scenario names those it requires with `needs()`, and is
skipped with that reason. An adapter adds nothing to its client: no retries, no sorting.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from tests.interop.waiting import WITHIN_S, Deadline

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BEGINNING = -2
END = -1

Headers = tuple[tuple[str, bytes | None], ...]


class Feature(Enum):
    """Features that some clients lack."""

    ADMIN = "an admin API"
    INCREMENTAL_CONFIGS = "IncrementalAlterConfigs"
    PLAIN_ALTER_CONFIGS = "AlterConfigs, which replaces all settings"
    DELETE_GROUPS = "deleting groups"
    ALTER_GROUP_OFFSETS = "altering the offsets of a group"
    DELETE_GROUP_OFFSETS = "deleting the offsets of a group"
    LIST_OFFSETS = "listing offsets as an admin"
    LOG_DIRS = "describing log directories"
    COOPERATIVE = "cooperative rebalancing"
    FENCING = "the fencing of a static member by one with the same group.instance.id"
    COMMIT = "explicit offset commits"
    POLLING = "a poll loop that the caller controls"
    CLIENT_SIDE_LIMIT = "an error code for a record above the limit of the client"
    TIMESTAMPS = "record timestamps set by the caller"
    NULL_HEADERS = "headers with a null value"
    MEMBERS_IN_TRANSACTIONS = "member id and generation in TxnOffsetCommit"
    STABLE_OFFSETS = "OffsetFetch with require_stable"
    DESCRIBE_TRANSACTIONS = "listing and describing transactions"


class RefusedError(Exception):
    """An error of the broker, or of the client before it asks the broker. `code` is Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


@dataclass(frozen=True)
class Outgoing:
    """A record to send. Without a partition, the client chooses."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = 0
    headers: Headers = ()
    timestamp_ms: int | None = None


class Stored(NamedTuple):
    """The place of a record as acknowledged by the broker; -1 where it is unknown (acks=0)."""

    partition: int
    offset: int


class Received(NamedTuple):
    """A record as a consumer got it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    is_log_append_time: bool | None


@dataclass(frozen=True)
class ProducerOptions:
    """`batch_bytes` is the approximate size of a batch."""

    codec: str = "none"
    acks: int = -1
    idempotent: bool = False
    batch_bytes: int = 16_384
    linger_ms: int = 5
    request_bytes_max: int = 1_000_000
    # Delivery timeout.
    patience_ms: int = 20_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000


@dataclass(frozen=True)
class ReaderOptions:
    """`fetch_bytes_max` applies to one partition and to one response."""

    fetch_bytes_max: int = 1 << 20
    read_committed: bool = False


PLAIN_PRODUCER = ProducerOptions()
PLAIN_READER = ReaderOptions()


@dataclass(frozen=True)
class MemberOptions:
    """A member starts at its group's committed offsets, or at the beginning of a partition without one."""

    group: str
    instance_id: str | None = None
    session_timeout_ms: int = 6_000
    # The maximum interval between two polls, and the rebalance timeout.
    poll_interval_ms: int = 10_000
    is_cooperative: bool = False
    auto_commit: bool = False
    read_committed: bool = False


class Closeable(ABC):
    """A context manager that closes itself on exit."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Producer(Closeable):
    """Sends records in the background, in order."""

    @abstractmethod
    def send(self, records: Sequence[Outgoing]) -> None:
        """Queue records. Raises RefusedError for records that the client itself refuses."""

    @abstractmethod
    def flush(self, within_s: float = WITHIN_S) -> list[Stored]:
        """Return the places of all records sent since the last flush. Raises RefusedError for the first that failed."""

    def deliver(self, *records: Outgoing) -> list[Stored]:
        self.send(records)
        return self.flush()

    # Transactions, for producers with a transactional id. Every call may raise RefusedError.

    def begin(self) -> None:
        raise NotImplementedError

    def send_offsets(self, member: "Member") -> None:
        """Add the offsets of all records that the member has polled to the transaction."""
        raise NotImplementedError

    def commit(self) -> None:
        """Flush and commit."""
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError


class Reader(Closeable):
    """A consumer without a group, with manually assigned partitions."""

    @abstractmethod
    def poll(self, within_s: float) -> list[Received]:
        """Return the records that arrived, or an empty list when the time is up."""

    @abstractmethod
    def seek(self, partition: int, offset: int) -> None: ...

    def read(self, count: int, within_s: float = WITHIN_S) -> list[Received]:
        """Return at least this many further records. Raises AssertionError if they do not arrive in time."""
        deadline = Deadline(within_s)
        records: list[Received] = []
        while len(records) < count:
            deadline.check(f"{len(records)} of {count} records came")
            records += self.poll(min(0.25, deadline.left_s))
        return records


class Member(Closeable):
    """A consumer in a group. It takes part in rebalances while it is polled."""

    @property
    @abstractmethod
    def assignment(self) -> frozenset[int]:
        """Its partitions of the single topic that it subscribes to."""

    @abstractmethod
    def poll(self, within_s: float) -> list[Received]: ...

    @abstractmethod
    def commit(self) -> None:
        """Commit the offsets of all polled records. Raises RefusedError."""

    def stall(self) -> None:
        """Stop sending heartbeats until the next commit. For most clients it suffices not to be polled."""


class MortalMember(Member):
    """A member that can be killed, so that it does not leave its group."""

    @abstractmethod
    def kill(self) -> None: ...


class GroupState(NamedTuple):
    """A group as described by an admin client."""

    state: str
    members: int


class TransactionState(NamedTuple):
    """A transactional id as described by an admin client, with the partitions of its open transaction."""

    state: str
    producer_id: int
    partitions: frozenset[tuple[str, int]]


class ProducerState(NamedTuple):
    """A producer of a partition as described by an admin client: the start of its open transaction, or -1."""

    producer_id: int
    open_from: int


class Admin(Closeable):
    """Every call may raise RefusedError. An adapter overrides what its client has."""

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        raise NotImplementedError

    def delete_topic(self, name: str) -> None:
        raise NotImplementedError

    def topics(self) -> dict[str, int]:
        """Return the numbers of partitions by topic name."""
        raise NotImplementedError

    def create_partitions(self, topic: str, count: int) -> None:
        """Increase the number of partitions to `count`."""
        raise NotImplementedError

    def configs(self, topic: str) -> dict[str, str]:
        raise NotImplementedError

    def broker_configs(self) -> dict[str, str]:
        raise NotImplementedError

    def alter_configs(self, topic: str, settings: Mapping[str, str]) -> None:
        """Set these settings; all others get their defaults."""
        raise NotImplementedError

    def alter_configs_incrementally(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """Set these settings; None resets one to its default."""
        raise NotImplementedError

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Return the partition's new log start offset."""
        raise NotImplementedError

    def groups(self) -> set[str]:
        raise NotImplementedError

    def describe_group(self, group: str) -> GroupState:
        raise NotImplementedError

    def delete_group(self, group: str) -> None:
        raise NotImplementedError

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offsets by partition."""
        raise NotImplementedError

    def alter_group_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        raise NotImplementedError

    def delete_group_offsets(self, group: str, topic: str, partitions: Sequence[int]) -> None:
        raise NotImplementedError

    def brokers(self) -> dict[int, str]:
        """Return HOST:PORT by broker id."""
        raise NotImplementedError

    def log_sizes(self, topic: str) -> dict[int, int]:
        """Return the size in bytes by partition."""
        raise NotImplementedError

    def transactions(self) -> dict[str, str]:
        """Return the states by transactional id."""
        raise NotImplementedError

    def describe_transaction(self, transactional_id: str) -> TransactionState:
        raise NotImplementedError

    def producers(self, topic: str, partition: int) -> list[ProducerState]:
        raise NotImplementedError

    def earliest_latest_newest(self, topic: str, partition: int) -> tuple[int, int, int]:
        """Return the log start offset, the end offset, and the offset of the newest timestamp (-1 if there is none)."""
        raise NotImplementedError


class Client(ABC):
    """A client library, not connected yet."""

    name: str
    lacks: Mapping[Feature, str] = {}

    def needs(self, *features: Feature) -> None:
        """Skip the test with the reason if the client lacks one of them."""
        for feature in features:
            if feature in self.lacks:
                pytest.skip(f"{self.name} lacks {feature.value}: {self.lacks[feature]}")

    def why_not_codec(self, codec: str) -> str | None:
        """Return the reason why the codec cannot be used here, or None."""
        return None

    @abstractmethod
    def producer(self, servers: str, options: ProducerOptions = PLAIN_PRODUCER) -> Producer:
        """Return a producer. Raises RefusedError if it cannot be started."""

    @abstractmethod
    def reader(
        self, servers: str, topic: str, starts: Mapping[int, int], options: ReaderOptions = PLAIN_READER
    ) -> Reader:
        """`starts` are offsets by partition, or BEGINNING or END."""

    @abstractmethod
    def offsets_at(self, servers: str, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int]:
        """Return the first offsets with this timestamp or a later one; -1 where there is none."""

    @abstractmethod
    def member(self, servers: str, topic: str, options: MemberOptions) -> Member: ...

    @abstractmethod
    def mortal_member(self, servers: str, topic: str, options: MemberOptions) -> MortalMember: ...

    @abstractmethod
    def ends(
        self, servers: str, topic: str, partitions: Sequence[int], *, read_committed: bool = False
    ) -> dict[int, tuple[int, int]]:
        """Return the start and end offset of each partition for a reader with these options."""

    @abstractmethod
    def topics(self, servers: str) -> dict[str, int]:
        """Return the numbers of partitions by topic name."""

    def admin(self, servers: str) -> Admin:
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Release resources after the last test."""

    def read_all(
        self, servers: str, topic: str, partitions: int = 1, options: ReaderOptions = PLAIN_READER
    ) -> list[Received]:
        """Read all records from the beginning to the current end."""
        ends = self.ends(servers, topic, range(partitions))
        wanted = {number for number, (first, following) in ends.items() if first < following}
        records: list[Received] = []
        deadline = Deadline()
        with self.reader(servers, topic, dict.fromkeys(range(partitions), BEGINNING), options) as reader:
            while wanted:
                deadline.check(f"{len(records)} records came, and partitions {sorted(wanted)} are not at their ends")
                records += reader.poll(0.25)
                wanted -= {record.partition for record in records if record.offset + 1 >= ends[record.partition][1]}
        return records
