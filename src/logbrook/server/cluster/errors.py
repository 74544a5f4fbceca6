"""Errors of replicated partitions that are reported to clients."""

from logbrook.model import LogbrookError, TopicPartition


class NotLeaderError(LogbrookError):
    """This broker does not lead the partition; the client refreshes its metadata."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"this broker does not lead {partition}; refresh the metadata")


class NotEnoughReplicasError(LogbrookError):
    """Fewer replicas are in sync than `min.insync.replicas`; nothing was written."""

    def __init__(self, partition: TopicPartition, in_sync: int, required: int) -> None:
        super().__init__(f"{partition}: {in_sync} replicas are in sync, and min.insync.replicas is {required}")


class NotEnoughReplicasAfterAppendError(LogbrookError):
    """The records were written, but fewer replicas are in sync than `min.insync.replicas`."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition}: replicas left the ISR after the records were written; they may be lost")


class ReplicationTimedOutError(LogbrookError):
    """The in-sync replicas did not confirm the records in time."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition}: the in-sync replicas did not confirm the records in time")


class OffsetNotAvailableError(LogbrookError):
    """A new leader does not know the high watermark yet (KIP-207), or an old one does not know if it still leads."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition}: the leader does not know the latest offset; try again")
