"""What the scenarios ask of a client, in words that all of them share; there is an adapter for each client.

A client that truly lacks something says so in `lacks`, by feature; a scenario names what it needs with `needs()`, and
is skipped with that reason. An adapter does what its client does and hides nothing: no retries of its own, no sorting.
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
    """What not every client has."""

    ADMIN = "an admin API"
    INCREMENTAL_CONFIGS = "incremental changes of settings"
    PLAIN_ALTER_CONFIGS = "replacing all settings at once"
    DELETE_GROUPS = "deleting groups"
    ALTER_GROUP_OFFSETS = "altering the offsets of a group"
    DELETE_GROUP_OFFSETS = "deleting the offsets of a group"
    LIST_OFFSETS = "listing offsets as an admin"
    LOG_DIRS = "describing log directories"
    COOPERATIVE = "cooperative rebalancing"
    FENCING = "hearing that another took its place"
    COMMIT = "committing when it is asked to"
    POLLING = "a poll that the caller can stop calling"
    CLIENT_SIDE_LIMIT = "an error with a code for a record above its own limit"
    TIMESTAMPS = "timestamps chosen by the producer"
    NULL_HEADERS = "headers without a value"
    MEMBERS_IN_TRANSACTIONS = "saying which member of a group commits offsets in a transaction"
    STABLE_OFFSETS = "asking for offsets that no transaction is about to change"
    DESCRIBE_TRANSACTIONS = "listing and describing transactions"


class RefusedError(Exception):
    """The broker, or the client in its name, said no. `code` is Kafka's number of the error."""

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
    """Where the broker said that a record is; -1 where it did not say (acks=0)."""

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
    """`batch_bytes` is about how much goes into one batch."""

    codec: str = "none"
    acks: int = -1
    idempotent: bool = False
    batch_bytes: int = 16_384
    linger_ms: int = 5
    request_bytes_max: int = 1_000_000
    # How long it tries.
    patience_ms: int = 20_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000


@dataclass(frozen=True)
class ReaderOptions:
    """`fetch_bytes_max` is for one partition and for one answer."""

    fetch_bytes_max: int = 1 << 20
    read_committed: bool = False


PLAIN_PRODUCER = ProducerOptions()
PLAIN_READER = ReaderOptions()


@dataclass(frozen=True)
class MemberOptions:
    """A member starts at the beginning of what its group has not committed."""

    group: str
    instance_id: str | None = None
    session_timeout_ms: int = 6_000
    # How long the caller may take between two polls, and how long a rebalance waits for it.
    poll_interval_ms: int = 10_000
    is_cooperative: bool = False
    auto_commit: bool = False
    read_committed: bool = False


class Closeable(ABC):
    """What is closed at the end of its `with`."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Producer(Closeable):
    """Sends in the background what it is given, in that order."""

    @abstractmethod
    def send(self, records: Sequence[Outgoing]) -> None:
        """Returns before they are sent. Raises RefusedError for what the client itself refuses."""

    @abstractmethod
    def flush(self, within_s: float = WITHIN_S) -> list[Stored]:
        """Where all that was sent since the last flush is stored. Raises RefusedError with the first that is not."""

    def deliver(self, *records: Outgoing) -> list[Stored]:
        self.send(records)
        return self.flush()

    # Transactions, for those who have a transactional id. Every call may raise RefusedError.

    def begin(self) -> None:
        raise NotImplementedError

    def send_offsets(self, member: "Member") -> None:
        """When the transaction is committed, the member's group has read all that this member was given."""
        raise NotImplementedError

    def commit(self) -> None:
        """Of all that was sent, too."""
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError


class Reader(Closeable):
    """A consumer without a group, of partitions that it was given by hand."""

    @abstractmethod
    def poll(self, within_s: float) -> list[Received]:
        """What has come, or nothing when the time is up."""

    @abstractmethod
    def seek(self, partition: int, offset: int) -> None: ...

    def read(self, count: int, within_s: float = WITHIN_S) -> list[Received]:
        """The next records: at least so many. Raises AssertionError if they do not come."""
        deadline = Deadline(within_s)
        records: list[Received] = []
        while len(records) < count:
            deadline.check(f"{len(records)} of {count} records came")
            records += self.poll(min(0.25, deadline.left_s))
        return records


class Member(Closeable):
    """A consumer in a group. It is `poll` that makes it take part."""

    @property
    @abstractmethod
    def assignment(self) -> frozenset[int]:
        """Its partitions of the one topic that it subscribes to."""

    @abstractmethod
    def poll(self, within_s: float) -> list[Received]: ...

    @abstractmethod
    def commit(self) -> None:
        """All that was polled. Raises RefusedError."""

    def stall(self) -> None:
        """Hang until the next commit. For most it is enough that nobody polls them."""


class MortalMember(Member):
    """One that can die without a word."""

    @abstractmethod
    def kill(self) -> None: ...


class GroupState(NamedTuple):
    """What an admin sees of a group."""

    state: str
    members: int


class TransactionState(NamedTuple):
    """What an admin sees of a transactional id. The partitions are those of its open transaction."""

    state: str
    producer_id: int
    partitions: frozenset[tuple[str, int]]


class ProducerState(NamedTuple):
    """What an admin sees of one who has written to a partition: where its open transaction begins, or -1."""

    producer_id: int
    open_from: int


class Admin(Closeable):
    """Every call may raise RefusedError. An adapter overrides what its client has."""

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        raise NotImplementedError

    def delete_topic(self, name: str) -> None:
        raise NotImplementedError

    def topics(self) -> dict[str, int]:
        """Names and numbers of partitions."""
        raise NotImplementedError

    def create_partitions(self, topic: str, count: int) -> None:
        """So that there are `count` of them."""
        raise NotImplementedError

    def configs(self, topic: str) -> dict[str, str]:
        raise NotImplementedError

    def broker_configs(self) -> dict[str, str]:
        raise NotImplementedError

    def alter_configs(self, topic: str, settings: Mapping[str, str]) -> None:
        """These, and defaults for all others."""
        raise NotImplementedError

    def alter_configs_incrementally(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """These, None for the default."""
        raise NotImplementedError

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """The partition's new first offset."""
        raise NotImplementedError

    def groups(self) -> set[str]:
        raise NotImplementedError

    def describe_group(self, group: str) -> GroupState:
        raise NotImplementedError

    def delete_group(self, group: str) -> None:
        raise NotImplementedError

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """What is committed, by partition."""
        raise NotImplementedError

    def alter_group_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        raise NotImplementedError

    def delete_group_offsets(self, group: str, topic: str, partitions: Sequence[int]) -> None:
        raise NotImplementedError

    def brokers(self) -> dict[int, str]:
        """Ids and HOST:PORT."""
        raise NotImplementedError

    def log_sizes(self, topic: str) -> dict[int, int]:
        """Bytes by partition."""
        raise NotImplementedError

    def transactions(self) -> dict[str, str]:
        """States by transactional id."""
        raise NotImplementedError

    def describe_transaction(self, transactional_id: str) -> TransactionState:
        raise NotImplementedError

    def producers(self, topic: str, partition: int) -> list[ProducerState]:
        raise NotImplementedError

    def earliest_latest_newest(self, topic: str, partition: int) -> tuple[int, int, int]:
        """The first offset, the next, and that of the newest timestamp (-1 if there is none)."""
        raise NotImplementedError


class Client(ABC):
    """One of the clients, connected to nothing yet."""

    name: str
    lacks: Mapping[Feature, str] = {}

    def needs(self, *features: Feature) -> None:
        """Skips the test, loudly, if the client lacks one of them."""
        for feature in features:
            if feature in self.lacks:
                pytest.skip(f"{self.name} lacks {feature.value}: {self.lacks[feature]}")

    def why_not_codec(self, codec: str) -> str | None:
        """Why it cannot read or write this one here, if it cannot."""
        return None

    @abstractmethod
    def producer(self, servers: str, options: ProducerOptions = PLAIN_PRODUCER) -> Producer:
        """Raises RefusedError if it may not even start."""

    @abstractmethod
    def reader(
        self, servers: str, topic: str, starts: Mapping[int, int], options: ReaderOptions = PLAIN_READER
    ) -> Reader:
        """`starts` are offsets by partition, or BEGINNING or END."""

    @abstractmethod
    def offsets_at(self, servers: str, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int]:
        """The first offsets with this timestamp or a later one; -1 where there is none."""

    @abstractmethod
    def member(self, servers: str, topic: str, options: MemberOptions) -> Member: ...

    @abstractmethod
    def mortal_member(self, servers: str, topic: str, options: MemberOptions) -> MortalMember: ...

    @abstractmethod
    def ends(
        self, servers: str, topic: str, partitions: Sequence[int], *, read_committed: bool = False
    ) -> dict[int, tuple[int, int]]:
        """The first and the next offset of each partition, for one who reads in this way."""

    @abstractmethod
    def topics(self, servers: str) -> dict[str, int]:
        """Names and numbers of partitions."""

    def admin(self, servers: str) -> Admin:
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """When the last test is done."""

    def read_all(
        self, servers: str, topic: str, partitions: int = 1, options: ReaderOptions = PLAIN_READER
    ) -> list[Received]:
        """From the beginning to what is now the end."""
        ends = self.ends(servers, topic, range(partitions))
        wanted = {number for number, (first, following) in ends.items() if first < following}
        records: list[Received] = []
        deadline = Deadline()
        with self.reader(servers, topic, dict.fromkeys(range(partitions), BEGINNING), options) as reader:
            while wanted:
                deadline.check(f"{len(records)} records came, and partitions {sorted(wanted)} are not at their ends")
                records += reader.poll(0.25)
                wanted -= {one.partition for one in records if one.offset + 1 >= ends[one.partition][1]}
        return records
