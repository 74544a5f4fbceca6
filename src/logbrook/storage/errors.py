"""Errors of the log engine. Each carries its facts as attributes; `server/errors.py` maps them to wire codes."""

from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId


class StorageError(LogbrookError):
    """Base class of the log engine's errors."""


class OffsetOutOfRangeError(StorageError):
    """The offset is below the log start offset or above the log end offset."""

    def __init__(
        self, partition: TopicPartition, offset: Offset, log_start_offset: Offset, log_end_offset: Offset
    ) -> None:
        super().__init__(f"{partition}: offset {offset} is outside {log_start_offset} to {log_end_offset}")
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class BatchTooLargeError(StorageError):
    """A batch is larger than the topic's `max.message.bytes`."""

    def __init__(self, partition: TopicPartition, size: int, size_max: int) -> None:
        super().__init__(f"{partition}: a batch of {size} bytes is above max.message.bytes, {size_max}")
        self.partition = partition
        self.size = size
        self.size_max = size_max


class PartitionNotFoundError(StorageError):
    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition} is not in this data directory")
        self.partition = partition


class UnexpectedOffsetError(StorageError):
    """A fetched batch does not follow the log. The follower fetches again."""

    def __init__(self, partition: TopicPartition, offset: Offset, log_end_offset: Offset) -> None:
        super().__init__(f"{partition}: a fetched batch has offset {offset}, but the log ends at {log_end_offset}")
        self.partition = partition
        self.offset = offset
        self.log_end_offset = log_end_offset


class PartitionExistsError(StorageError):
    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition} already exists in this data directory")
        self.partition = partition


class DirectoryLockedError(StorageError):
    """Another process has the data directory open."""

    def __init__(self) -> None:
        super().__init__("the data directory is in use by another process; stop that one, or choose another directory")


class DiskFullError(StorageError):
    """The disk is full. Nothing was written; reads continue, and a retry succeeds once there is free space."""

    def __init__(self, file: str, size: int) -> None:
        target = f"{size} bytes in {file}" if size else file
        super().__init__(f"the disk is full: cannot write {target}; free some space and try again")
        self.file = file
        self.size = size


class TooManyOpenFilesError(StorageError):
    """The process is out of file descriptors. Nothing was written; a later attempt may succeed."""

    def __init__(self, file: str) -> None:
        super().__init__(f"out of file descriptors opening {file}; raise the limit (ulimit -n) or lower open_files_max")
        self.file = file


class ReadFailedError(StorageError):
    """Reading a file failed. A later attempt may succeed."""

    def __init__(self, file: str, cause: OSError) -> None:
        super().__init__(f"reading {file} failed ({cause.strerror or cause})")
        self.file = file
        self.errno = cause.errno


class NotCachedError(Exception):
    """A read that must not wait for the disk needs bytes that are not in the page cache.

    Not an error for clients: the caller loads the bytes in a thread and reads again.
    """

    def __init__(self, file: str, position: int, length: int) -> None:
        super().__init__(f"{length} bytes at {position} of {file} are not in the page cache")
        self.file = file
        self.position = position
        self.length = length

    @property
    def range(self) -> tuple[str, int, int]:
        return self.file, self.position, self.length


class LogModifiedError(StorageError):
    """The log was truncated, deleted or lost segments to retention during a multi-step operation."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(
            f"{partition} was truncated, deleted or lost segments to retention during the operation; retry it"
        )
        self.partition = partition


class StorageOfflineError(StorageError):
    """A write or a sync failed. The state of the disk is unknown, so nothing is acknowledged until a restart."""

    def __init__(self, operation: str, file: str, cause: OSError) -> None:
        super().__init__(
            f"{operation} of {file} failed ({cause.strerror or cause}); the data directory is offline until a restart"
        )
        self.operation = operation
        self.file = file
        self.errno = cause.errno


class CorruptLogError(StorageError):
    """Durable bytes are damaged. The partition is quarantined: no appends, nothing is deleted.

    Records before `offset` can still be read.
    """

    _problem = "is corrupt"
    _consequence = "The partition is quarantined until it is repaired"

    def __init__(self, partition: TopicPartition, file: str, position: int, offset: Offset, reason: str) -> None:
        super().__init__(
            f"{partition}: {file} {self._problem} at byte {position}, around offset {offset}: {reason}. "
            f"{self._consequence}"
        )
        self.partition = partition
        self.file = file
        self.position = position
        self.offset = offset
        self.reason = reason


class UnreadableLogError(CorruptLogError):
    """The disk could not read the log when it was opened. The partition takes no appends, and nothing is deleted.

    Records before `offset` can still be read. The next start reads the log again, and ends this if it can.
    """

    _problem = "cannot be read"
    _consequence = (
        "The partition is offline until a start of the broker can read it, or until it is repaired; check the disk"
    )


class UnskippableBatchError(StorageError):
    """The batch with this offset does not exist, or consumers do not stop at it."""

    def __init__(self, partition: TopicPartition, offset: Offset, reason: str) -> None:
        super().__init__(f"{partition}: offset {offset} cannot be skipped: {reason}")
        self.partition = partition
        self.offset = offset
        self.reason = reason


class CleanerFailedError(StorageError):
    """The process that cleans segments for a compaction exited, stopped answering, or could not read a segment.

    Nothing is lost: the pass is repeated in the broker's process, which reports damage of the log as such.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the compaction worker failed: {reason}")
        self.reason = reason


class CorruptFileError(StorageError):
    """A metadata file (checkpoint, state, snapshot) is missing or fails its checksum."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"{file} is corrupt: {reason}")
        self.file = file
        self.reason = reason


class InvalidProducerEpochError(StorageError):
    """The batch has an older producer epoch than the log has seen for this producer id: the producer is fenced."""

    def __init__(
        self, partition: TopicPartition, producer_id: ProducerId, epoch: ProducerEpoch, current_epoch: ProducerEpoch
    ) -> None:
        super().__init__(
            f"{partition}: producer {producer_id} with epoch {epoch} is fenced, the current epoch is {current_epoch}"
        )
        self.partition = partition
        self.producer_id = producer_id
        self.epoch = epoch
        self.current_epoch = current_epoch


class OutOfOrderSequenceError(StorageError):
    """The batch's base sequence does not follow the producer's last batch."""

    def __init__(self, partition: TopicPartition, producer_id: ProducerId, sequence: int, expected: int) -> None:
        super().__init__(f"{partition}: producer {producer_id} sent sequence {sequence}, expected {expected}")
        self.partition = partition
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected = expected
