"""What the log engine can refuse, and with which facts."""

from logbrook.model import LogbrookError, TopicPartition


class StorageError(LogbrookError):
    """The engine could not do what it was asked."""


class OffsetOutOfRangeError(StorageError):
    """The offset is before the log's start or past its end."""

    def __init__(self, partition: TopicPartition, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"{partition}: offset {offset} is outside {log_start_offset} to {log_end_offset}")
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class BatchTooLargeError(StorageError):
    """A batch above the topic's limit."""

    def __init__(self, partition: TopicPartition, size: int, size_max: int) -> None:
        super().__init__(f"{partition}: a batch of {size} bytes is above max.message.bytes, {size_max}")
        self.partition = partition
        self.size = size
        self.size_max = size_max


class PartitionNotFoundError(StorageError):
    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition} is not in this data directory")
        self.partition = partition


class PartitionExistsError(StorageError):
    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition} is in this data directory already")
        self.partition = partition


class DirectoryLockedError(StorageError):
    """Another process has the data directory open."""

    def __init__(self) -> None:
        super().__init__("the data directory is in use by another process; stop that one, or choose another directory")


class DiskFullError(StorageError):
    """No room for this append. Nothing of it is visible, reads go on, and a later append may succeed."""

    def __init__(self, file: str, size: int) -> None:
        what = f"{size} bytes in {file}" if size else file
        super().__init__(f"no room on the disk for {what}; free some space and try again")
        self.file = file
        self.size = size


class TooManyOpenFilesError(StorageError):
    """The process has no file descriptor left. Nothing was written, and a later attempt may succeed."""

    def __init__(self, file: str) -> None:
        super().__init__(f"no file descriptor is left to open {file}; raise the limit (ulimit -n) or use fewer")
        self.file = file


class ReadFailedError(StorageError):
    """The disk did not give back what is on it. A later attempt may succeed."""

    def __init__(self, file: str, cause: OSError) -> None:
        super().__init__(f"reading {file} failed ({cause.strerror or cause})")
        self.file = file
        self.errno = cause.errno


class OvertakenError(StorageError):
    """Records were removed from the log while something worked on it in steps."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition} was truncated or deleted, or lost segments to retention, meanwhile")
        self.partition = partition


class StorageOfflineError(StorageError):
    """A write or a sync failed. What is on the disk is unknown, so nothing is acknowledged until a restart."""

    def __init__(self, operation: str, file: str, cause: OSError) -> None:
        super().__init__(
            f"{operation} of {file} failed ({cause.strerror or cause}); the data directory is offline until a restart"
        )
        self.operation = operation
        self.file = file
        self.errno = cause.errno


class CorruptLogError(StorageError):
    """Bytes that were durable are bad. The partition is quarantined: nothing is deleted, nothing is appended.

    Everything before `offset` can still be read.
    """

    def __init__(self, partition: TopicPartition, file: str, position: int, offset: int, reason: str) -> None:
        super().__init__(
            f"{partition}: {file} is corrupt at byte {position}, around offset {offset}: {reason}. "
            "The partition is quarantined until it is repaired"
        )
        self.partition = partition
        self.file = file
        self.position = position
        self.offset = offset
        self.reason = reason


class CorruptFileError(StorageError):
    """A small file of the engine's own whose checksum does not hold."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"{file} is corrupt: {reason}")
        self.file = file
        self.reason = reason


class ProducerFencedError(StorageError):
    """A producer with an older epoch than the one the log has seen."""

    def __init__(self, partition: TopicPartition, producer_id: int, epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"{partition}: producer {producer_id} sent epoch {epoch}, but epoch {current_epoch} has taken over"
        )
        self.partition = partition
        self.producer_id = producer_id
        self.epoch = epoch
        self.current_epoch = current_epoch


class OutOfOrderSequenceError(StorageError):
    """A producer's batch that does not follow its last one: something between them is missing."""

    def __init__(self, partition: TopicPartition, producer_id: int, sequence: int, expected: int) -> None:
        super().__init__(f"{partition}: producer {producer_id} sent sequence {sequence}, but {expected} comes next")
        self.partition = partition
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected = expected
