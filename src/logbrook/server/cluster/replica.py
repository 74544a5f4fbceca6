"""A replica of a partition on this broker, and the table of all of them."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from logbrook.core.cluster.image import PartitionKey
from logbrook.core.replication.follower import PartitionFollower
from logbrook.core.replication.leader import PartitionLeader
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import BrokerId, Offset
from logbrook.server.cluster.errors import NotEnoughReplicasAfterAppendError, ReplicationTimedOutError
from logbrook.storage.log import Log
from logbrook.storage.pending_append import PendingAppend


class WaitingAppend(NamedTuple):
    """An append that is acknowledged when the high watermark reaches `next_offset`."""

    next_offset: Offset
    append: PendingAppend
    on_done: Callable[[PendingAppend], None]
    deadline_s: float | None


class WaitingDeletion(NamedTuple):
    """A DeleteRecords that is answered when all in-sync replicas have deleted the records before `offset`.

    The result of `done` is the error if that did not happen.
    """

    offset: Offset
    done: "asyncio.Future[LogbrookError | None]"


class FetcherKey(NamedTuple):
    """A fetcher: of the in-sync replicas of a leader, or of those that catch up with it."""

    leader: BrokerId
    is_catching_up: bool


class Replica:
    """This broker's replica of a partition. Without a log while that is being created."""

    __slots__ = (
        "deletions",
        "fetcher",
        "follower",
        "is_announced",
        "key",
        "leader",
        "log",
        "partition",
        "uncounted",
        "waiting",
    )

    def __init__(self, key: PartitionKey, partition: TopicPartition) -> None:
        self.key = key
        self.partition = partition
        self.log: Log | None = None
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        # The fetcher of its leader that has it, if it is a follower.
        self.fetcher: FetcherKey | None = None
        # True if `on_leader` was called for this term.
        self.is_announced = False
        # Ascending by offset.
        self.waiting: list[WaitingAppend] = []
        # Deletions of records that not all in-sync replicas have, by offset.
        self.deletions: list[WaitingDeletion] = []
        # End offset and size of the appends that consumers do not see yet.
        self.uncounted: deque[tuple[Offset, int]] = deque()

    def expire_appends(self, leader: PartitionLeader, now_s: float) -> None:
        """Fail the appends that have waited for too long."""
        expired = [entry for entry in self.waiting if entry.deadline_s is not None and entry.deadline_s <= now_s]
        if expired:
            self.waiting = [entry for entry in self.waiting if entry not in expired]
            for entry in expired:
                entry.append.error = (
                    ReplicationTimedOutError(self.partition)
                    if leader.has_enough_in_sync()
                    else NotEnoughReplicasAfterAppendError(self.partition)
                )
                entry.on_done(entry.append)

    def is_on_disk_of(self, log: Log) -> bool:
        """True if it is in the same data directory."""
        return self.log is not None and self.log.environment is log.environment


class ReplicaTable:
    """The replicas of one broker, by the key of the metadata store and by the name of the partition."""

    def __init__(self) -> None:
        self.by_key: dict[PartitionKey, Replica] = {}
        self.by_partition: dict[TopicPartition, Replica] = {}

    def add(self, replica: Replica) -> None:
        self.by_key[replica.key] = self.by_partition[replica.partition] = replica

    def remove(self, key: PartitionKey) -> Replica | None:
        """Remove a replica and return it. Another one may have its name: that of a new topic."""
        replica = self.by_key.pop(key, None)
        if replica is not None and self.by_partition.get(replica.partition) is replica:
            del self.by_partition[replica.partition]
        return replica
