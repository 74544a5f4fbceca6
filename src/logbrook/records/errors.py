"""Errors of record batches."""

from collections.abc import Sequence
from typing import NamedTuple

from logbrook.model import LogbrookError


class RecordsError(LogbrookError):
    """Base class of errors of record batches."""


class CorruptBatchError(RecordsError):
    """The bytes are not a whole batch with a valid checksum: bit rot, a torn write, or a faulty client."""


class UnsupportedMagicError(RecordsError):
    """The message format is not v2."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"message format v{magic} is not supported, only v2 is")
        self.magic = magic


class InvalidBatchError(RecordsError):
    """The checksum is valid, but a header field is contradictory or not allowed for the sender."""


class RecordFault(NamedTuple):
    """The reason why a record is refused. `batch_index` is its place in the batch, from 0."""

    batch_index: int
    reason: str


class RejectedRecordsError(RecordsError):
    """Records break a rule of the topic, and their whole batch is refused (KIP-467). `faults` has the first of them."""

    def __init__(self, faults: Sequence[RecordFault]) -> None:
        super().__init__(f"One or more records have been rejected; the first of {len(faults)}: {faults[0].reason}")
        self.faults = faults


class InvalidTimestampsError(RejectedRecordsError):
    """Records have timestamps that the topic does not accept."""


class TooManyRecordsError(RecordsError):
    """A batch that must be inspected has too many records for that."""

    def __init__(self, count: int, count_max: int) -> None:
        super().__init__(f"a batch of {count} records is above the {count_max} that are inspected")
        self.count = count
        self.count_max = count_max


class CodecError(RecordsError):
    """Compressed records cannot be decompressed."""


class RecordsTooLargeError(RecordsError):
    """A batch decompresses to more than the allowed bytes."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"the batch decompresses to more than {bytes_max} bytes")
        self.bytes_max = bytes_max
