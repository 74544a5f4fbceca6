"""Which leader a client has in mind, and whether that is this one (KIP-320)."""

from logbrook.model import LogbrookError, TopicPartition

NO_EPOCH = -1


class LeaderEpochError(LogbrookError):
    """The client and the broker do not agree on the leader; the client asks for metadata again."""

    def __init__(self, partition: TopicPartition, epoch: int, current: int) -> None:
        super().__init__(f"{partition}: the client has leader epoch {epoch}, the leader has {current}")
        self.partition = partition
        self.epoch = epoch
        self.current = current


class FencedLeaderEpochError(LeaderEpochError):
    """The client's epoch is older."""


class UnknownLeaderEpochError(LeaderEpochError):
    """The client's epoch is newer."""


def check_leader_epoch(partition: TopicPartition, epoch: int, current: int) -> None:
    """Raises LeaderEpochError unless the client named the current epoch or none."""
    if epoch not in (NO_EPOCH, current):
        raise (FencedLeaderEpochError if epoch < current else UnknownLeaderEpochError)(partition, epoch, current)
