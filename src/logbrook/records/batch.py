"""The header of a record batch v2: decoding, validation, and stamping of the fields that the leader sets.

    bytes   field                   covered by the CRC
    0-7     base offset             no: the leader stamps it
    8-11    batch length            no: the bytes after this field
    12-15   partition leader epoch  no: the leader stamps it
    16      magic, always 2         no
    17-20   CRC32C of what follows
    21-22   attributes              yes, and so is the rest
    23-26   last offset delta
    27-34   base timestamp
    35-42   max timestamp
    43-50   producer id
    51-52   producer epoch
    53-56   base sequence
    57-60   record count
    61-     the records, compressed as attributes say

The broker does not decode records: it reads these 61 bytes, verifies the CRC and writes the two fields that the CRC
does not cover. Functions take explicit positions, so that consecutive batches can be walked without slicing the buffer.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c
from typing_extensions import Buffer

from logbrook.model.identifiers import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from logbrook.records.errors import CorruptBatchError, InvalidBatchError, UnsupportedMagicError

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_PREFIX_BYTES = 12
# An encoded record has at least its length, its attributes and five varints of one byte.
RECORD_BYTES_MIN = 7
MAGIC_V2 = 2

CRC_POSITION = 17
CRC_COVERS_FROM = 21

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
# KIP-534: the base timestamp field holds the time from which the batch's tombstones may be removed.
DELETE_HORIZON_BIT = 0x40
_KNOWN_BITS = CODEC_MASK | TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
# Attributes of nearly all batches; others take a slower check.
_PLAIN_BITS = CODEC_MASK | TRANSACTIONAL_BIT
_CODEC_MAX = 4
_HEADER_IN_LENGTH_BYTES = HEADER_BYTES - LENGTH_PREFIX_BYTES

NO_PRODUCER_ID = ProducerId(-1)
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
SEQUENCE_MAX = 2**31 - 1

_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_PREFIX = Struct(">qi")


class Codec(IntEnum):
    """Compression codecs by their number in the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The decoded batch header. Field names are Kafka's."""

    base_offset: Offset
    batch_length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes, header and records."""
        return LENGTH_PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record. Sequences wrap to 0 after 2^31 - 1."""
        return advance_sequence(self.base_sequence, self.last_offset_delta)


def advance_sequence(sequence: int, by: int) -> int:
    return (sequence + by) & SEQUENCE_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Decode the header at `position`, unchecked. The buffer must have 61 bytes there."""
    # As `_make` does, without the call: every batch that is appended, read or scanned comes through here.
    return tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))


def read_prefix(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """Return (base offset, size of the whole batch): the fields needed to walk from batch to batch."""
    base_offset, batch_length = _PREFIX.unpack_from(buffer, position)
    return base_offset, LENGTH_PREFIX_BYTES + batch_length


def iter_headers(buffer: Buffer, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Iterate over (position, header) of the whole batches in `buffer[position:end]`; skips a partial last batch.

    For batches that were validated when they were appended: only the length is checked. Raises CorruptBatchError if it
    is smaller than a header.
    """
    if end is None:
        end = memoryview(buffer).nbytes
    while position + HEADER_BYTES <= end:
        header = read_header(buffer, position)
        size = header.size
        if size < HEADER_BYTES:
            raise CorruptBatchError(
                f"batch length {header.batch_length} at byte {position} is smaller than a batch header"
            )
        if position + size > end:
            return
        yield position, header
        position += size


def check_batch(buffer: memoryview, position: int, end: int, header: BatchHeader | None = None) -> BatchHeader:
    """Verify length, magic and checksum of the batch at `position` and return its header.

    Raises CorruptBatchError or UnsupportedMagicError. Batches from clients must also pass `check_produced`.
    """
    available = end - position
    if available < HEADER_BYTES:
        raise CorruptBatchError(f"{available} bytes are left at byte {position}, a batch header has {HEADER_BYTES}")
    if header is None:
        header = read_header(buffer, position)
    if header.magic != MAGIC_V2:
        raise UnsupportedMagicError(header.magic)
    size = LENGTH_PREFIX_BYTES + header.batch_length
    if not HEADER_BYTES <= size <= available:
        raise CorruptBatchError(
            f"batch length {header.batch_length} at byte {position} does not fit the {available} bytes left"
        )
    actual = crc32c(buffer[position + CRC_COVERS_FROM : position + size])
    if actual != header.crc:
        raise CorruptBatchError(f"CRC32C at byte {position} is {header.crc:#010x}, the bytes have {actual:#010x}")
    return header


def check_produced(header: BatchHeader, *, is_log_append_time: bool = False) -> None:
    """Reject header fields that a client may not write. Raises InvalidBatchError.

    With `is_log_append_time` a batch may have that timestamp type: the broker overwrites its timestamps anyway.
    """
    attributes, count = header.attributes, header.count
    if attributes & ~_PLAIN_BITS:
        _check_attributes(attributes, is_log_append_time)
    if attributes & CODEC_MASK > _CODEC_MAX:
        raise InvalidBatchError(f"compression type {attributes & CODEC_MASK} is unknown")
    if count < 1 or header.last_offset_delta != count - 1:
        raise InvalidBatchError(f"record count {count} does not match last offset delta {header.last_offset_delta}")
    if not attributes & CODEC_MASK and count * RECORD_BYTES_MIN > header.batch_length - _HEADER_IN_LENGTH_BYTES:
        raise InvalidBatchError(f"record count {count} is impossible in a batch of {header.size} bytes")
    if header.producer_id < NO_PRODUCER_ID:
        raise InvalidBatchError(f"producer id {header.producer_id} is below -1")
    if header.producer_id != NO_PRODUCER_ID:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise InvalidBatchError(
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, sequence {header.base_sequence}"
            )
    elif attributes & TRANSACTIONAL_BIT:
        raise InvalidBatchError("a transactional batch has no producer id")


def _check_attributes(attributes: int, is_log_append_time: bool) -> None:
    if attributes & ~_KNOWN_BITS:
        raise InvalidBatchError(f"attributes {attributes:#06x} have unknown bits set")
    if attributes & (CONTROL_BIT | DELETE_HORIZON_BIT):
        raise InvalidBatchError("clients may not write control batches or delete horizons")
    if attributes & TIMESTAMP_TYPE_BIT and not is_log_append_time:
        raise InvalidBatchError("clients may not write log append times")


def stamp(buffer: memoryview | bytearray, position: int, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    """Write base offset and leader epoch in place. The CRC covers neither field."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + 12, leader_epoch)


def stamp_log_append_time(buffer: memoryview, position: int, now_ms: int) -> None:
    """Set log append time `now_ms` for all records of the batch in place, and update the CRC.

    With this timestamp type readers use the batch's max timestamp for each record, so no record is rewritten.
    """
    header = read_header(buffer, position)
    _ATTRIBUTES.pack_into(buffer, position + 21, header.attributes | TIMESTAMP_TYPE_BIT)
    _MAX_TIMESTAMP.pack_into(buffer, position + 35, now_ms)
    renew_crc(buffer, position, header.size)


def renew_crc(buffer: memoryview, position: int, size: int) -> None:
    """Compute the CRC of the batch of `size` bytes at `position` and write it in place."""
    _CRC.pack_into(buffer, position + CRC_POSITION, crc32c(buffer[position + CRC_COVERS_FROM : position + size]))
