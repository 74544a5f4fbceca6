"""Check of the leader epoch in a request against the partition's current one (KIP-320)."""

from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import LeaderEpoch

NO_EPOCH = LeaderEpoch(-1)


class LeaderEpochError(LogbrookError):
    """The client's leader epoch is not the current one; the client refreshes its metadata."""

    def __init__(self, partition: TopicPartition, epoch: LeaderEpoch, current: LeaderEpoch) -> None:
        super().__init__(f"{partition}: leader epoch {epoch} is not the current one, {current}; refresh the metadata")


class FencedLeaderEpochError(LeaderEpochError):
    """The client's epoch is older than the current one."""


class UnknownLeaderEpochError(LeaderEpochError):
    """The client's epoch is newer than the current one."""


def check_leader_epoch(partition: TopicPartition, epoch: LeaderEpoch, current: LeaderEpoch) -> None:
    """Raises LeaderEpochError unless the client named the current epoch or none."""
    if epoch not in (NO_EPOCH, current):
        raise (FencedLeaderEpochError if epoch < current else UnknownLeaderEpochError)(partition, epoch, current)
