"""Checks and compression of producers' batches, for topics whose settings require them.

Most topics need none: their batches are stored as received, and only header and checksum are checked. The rules are
Kafka's:

- A record that breaks a rule (a compacted topic needs keys, timestamps may be limited) makes its whole batch refused,
  and the error names the records (KIP-467).
- Records that cannot be decoded are refused as invalid, not as corrupt: the checksum holds, so sending them again would
  not help.
- If the records' timestamps are decoded, a wrong max timestamp in the header is corrected: time lookups and retention
  depend on it.
- If the topic has a codec, a batch with another one is compressed again. The encoded records stay the same.
"""

from typing import NamedTuple

from logbrook.records.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    TimestampType,
    check_batch,
    check_produced,
)
from logbrook.records.builder import seal
from logbrook.records.codecs import compress, decompress
from logbrook.records.errors import (
    CodecError,
    CorruptBatchError,
    InvalidBatchError,
    InvalidTimestampsError,
    RecordFault,
    RejectedRecordsError,
    TooManyRecordsError,
)
from logbrook.records.reader import iter_decompressed
from logbrook.records.record import RawRecord, read_varint

# Producers report one generic error for the batch's other records. The answer to a hostile batch stays small.
FAULTS_MAX = 100
# A few kilobytes can decompress to millions of records, whose inspection would delay other producers for long.
RECORDS_MAX = 1_000_000

_WITHOUT_KEY = "Compacted topic cannot accept message without key"
# The length of a null key, -1 in zigzag encoding, and the bit of a varint's bytes that are not its last.
_NULL = 0x01
_MORE_BYTES = 0x80


class InspectionRules(NamedTuple):
    """The rules of one topic. `bytes_max` bounds the decompressed size of a batch; None means no limit and no codec."""

    bytes_max: int
    requires_keys: bool = False
    # Decode all records, with their headers.
    is_full: bool = False
    is_log_append_time: bool = False
    timestamp_min: int | None = None
    timestamp_max: int | None = None
    codec: Codec | None = None
    level: int | None = None

    @property
    def decodes_records(self) -> bool:
        """True if records are decoded; for keys alone they are only walked."""
        return self.is_full or self.timestamp_min is not None or self.timestamp_max is not None


def inspect_batches(data: memoryview, rules: InspectionRules) -> memoryview:
    """Check one or more whole batches and return the bytes to append: `data` itself if nothing changes.

    Raises CorruptBatchError, UnsupportedMagicError, InvalidBatchError, RecordsTooLargeError, TooManyRecordsError,
    RejectedRecordsError or InvalidTimestampsError.
    """
    position, end = 0, len(data)
    batches: list[memoryview | bytearray] = []
    is_same = True
    while position < end:
        header = check_batch(data, position, end)
        check_produced(header, is_log_append_time=rules.is_log_append_time)
        batch = data[position : position + header.size]
        inspected = _inspect_batch(header, batch, rules)
        is_same = is_same and inspected is batch
        batches.append(inspected)
        position += header.size
    return data if is_same else memoryview(bytearray().join(batches))


def _inspect_batch(header: BatchHeader, batch: memoryview, rules: InspectionRules) -> memoryview | bytearray:
    codec = header.codec if rules.codec is None else rules.codec
    if not (rules.decodes_records or rules.requires_keys) and codec is header.codec:
        return batch
    if header.count > RECORDS_MAX:
        raise TooManyRecordsError(header.count, RECORDS_MAX)
    max_timestamp = header.max_timestamp
    try:
        records = bytes(decompress(header.codec, batch[HEADER_BYTES:], rules.bytes_max))
        if rules.decodes_records:
            max_timestamp = _check_records(header, records, rules)
        elif rules.requires_keys:
            _check_keys(records, header.count)
    except (CodecError, CorruptBatchError) as error:
        raise InvalidBatchError(f"the records of the batch cannot be decoded: {error}") from error
    if codec is not header.codec:
        encoded: bytes | memoryview = compress(codec, records, rules.level)
    elif max_timestamp != header.max_timestamp:
        encoded = batch[HEADER_BYTES:]
    else:
        return batch
    changed = bytearray(HEADER_BYTES) + encoded
    attributes = header.attributes & ~CODEC_MASK | codec
    seal(header._replace(attributes=attributes, max_timestamp=max_timestamp), changed)
    return changed


def _check_keys(records: bytes, count: int) -> None:
    """Check that every record has a key. It takes a fifth of the time of decoding the records."""
    faults: list[RecordFault] = []
    position, end = 0, len(records)
    try:
        for index in range(count):
            length, position = read_varint(records, position, end)
            record_end = position + length
            # After the attributes: the timestamp delta and the offset delta, of which only the length matters.
            position += 1
            while records[position] >= _MORE_BYTES:
                position += 1
            position += 1
            while records[position] >= _MORE_BYTES:
                position += 1
            position += 1
            key_length = records[position]
            if length < 0 or position >= record_end:
                raise CorruptBatchError(f"record {index} has {length} bytes")
            if key_length == _NULL or (key_length == _NULL | _MORE_BYTES and _has_no_key(records, position, end)):
                faults.append(RecordFault(index, _WITHOUT_KEY))
                if len(faults) == FAULTS_MAX:
                    break
            position = record_end
    except IndexError:
        position = -1
    if faults:
        raise RejectedRecordsError(faults)
    if position != end:
        raise CorruptBatchError(f"{count} records do not fill the {end} bytes of the batch")


def _has_no_key(records: bytes, position: int, end: int) -> bool:
    """Decode the length of a key that has more than one byte: -1 may be written with redundant zeros."""
    return read_varint(records, position, end)[0] == -1


def _check_records(header: BatchHeader, records: bytes, rules: InspectionRules) -> int:
    """Check every record and return the largest timestamp."""
    faults: list[RecordFault] = []
    has_invalid_timestamp = False
    max_timestamp = NO_TIMESTAMP
    for index, record in enumerate(iter_decompressed(header, records, with_headers=rules.is_full)):
        max_timestamp = max(max_timestamp, record.timestamp)
        if rules.requires_keys and record.key is None:
            faults.append(RecordFault(index, _WITHOUT_KEY))
        elif not _is_in_range(record, rules):
            has_invalid_timestamp = True
            faults.append(RecordFault(index, _out_of_range(record, rules)))
        if len(faults) == FAULTS_MAX:
            break
    if faults:
        raise (InvalidTimestampsError if has_invalid_timestamp else RejectedRecordsError)(faults)
    return header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else max_timestamp


def _is_in_range(record: RawRecord, rules: InspectionRules) -> bool:
    timestamp = record.timestamp
    is_too_old = rules.timestamp_min is not None and timestamp < rules.timestamp_min
    is_too_new = rules.timestamp_max is not None and timestamp > rules.timestamp_max
    return timestamp == NO_TIMESTAMP or not (is_too_old or is_too_new)


def _out_of_range(record: RawRecord, rules: InspectionRules) -> str:
    lower = "any time" if rules.timestamp_min is None else rules.timestamp_min
    upper = "any time" if rules.timestamp_max is None else rules.timestamp_max
    return f"Timestamp {record.timestamp} is out of range. It should be within [{lower}, {upper}]"
