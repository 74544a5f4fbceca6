"""Records read one by one: for compaction, time lookups and the command line.

The broker stores batches without looking into them, so the records of a batch whose checksum holds may still be
anything. Whatever is not a run of exactly `count` records that fill the batch to its last byte, with offset deltas that
ascend within the batch's last offset delta, is a CorruptBatchError that names the batch and what is wrong with it.
"""

from collections.abc import Iterator

from typing_extensions import Buffer

from logbrook.records.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    BatchHeader,
    Codec,
    TimestampType,
    read_header,
)
from logbrook.records.codecs import decompress
from logbrook.records.errors import CorruptBatchError, InvalidBatchError, UnsupportedMagicError
from logbrook.records.record import Header, RawRecord
from logbrook.records.varint import LONG_BITS, read_varint, wrap_int64

OFFSET_MAX = 2**63 - 1

_NO_HEADERS: tuple[Header, ...] = ()


def iter_records(
    buffer: Buffer, position: int = 0, *, bytes_max: int, with_headers: bool = True
) -> Iterator[RawRecord]:
    """The records of the one batch at `position`, in order, those of a control batch too.

    The checksum is the caller's to check. `bytes_max` bounds the decompressed records. Without `with_headers` all have
    an empty tuple of them: a record may claim millions, and not everyone has a use for them. Raises CorruptBatchError,
    InvalidBatchError, UnsupportedMagicError, CodecError or RecordsTooLargeError; records before the bad one may have
    been given by then.
    """
    view = memoryview(buffer).cast("B")
    header = _check_header(view, position)
    if header.count == 0 and header.size == HEADER_BYTES:
        return
    data = bytes(decompress(header.codec, view[position + HEADER_BYTES : position + header.size], bytes_max))
    try:
        yield from _iter_encoded(header, data, with_headers)
    except CorruptBatchError as error:
        raise CorruptBatchError(f"the batch at offset {header.base_offset}: {error}") from None


def _check_header(view: memoryview, position: int) -> BatchHeader:
    available = view.nbytes - position
    if available < HEADER_BYTES:
        raise CorruptBatchError(f"{available} bytes are left at byte {position}, a batch header has {HEADER_BYTES}")
    header = read_header(view, position)
    if header.magic != MAGIC_V2:
        raise UnsupportedMagicError(header.magic)
    if not HEADER_BYTES <= header.size <= available:
        raise CorruptBatchError(
            f"batch length {header.batch_length} at byte {position} does not fit the {available} bytes left"
        )
    if header.base_offset < 0 or header.last_offset > OFFSET_MAX:
        raise CorruptBatchError(f"offsets {header.base_offset} to {header.last_offset} cannot be those of a batch")
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        raise InvalidBatchError(f"compression type {header.attributes & CODEC_MASK} is unknown")
    return header


def _iter_encoded(header: BatchHeader, data: bytes, with_headers: bool) -> Iterator[RawRecord]:
    position, end = 0, len(data)
    if not 0 <= header.count <= end // RECORD_BYTES_MIN:
        raise CorruptBatchError(f"record count {header.count} does not fit the {end} bytes of its records")
    base_offset, base_timestamp, max_timestamp = header.base_offset, header.base_timestamp, header.max_timestamp
    is_log_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    last_offset_delta, previous_delta = header.last_offset_delta, -1
    for _ in range(header.count):
        start = position
        length, position = read_varint(data, position, end)
        record_end = position + length
        if length < 0 or record_end > end:
            raise CorruptBatchError(f"a record of {length} bytes does not fit the {end - position} bytes left")
        # The attributes byte of a record has no meaning yet; readers skip it.
        timestamp_delta, position = read_varint(data, position + 1, record_end, LONG_BITS)
        offset_delta, position = read_varint(data, position, record_end)
        if not previous_delta < offset_delta <= last_offset_delta:
            raise CorruptBatchError(
                f"offset delta {offset_delta} comes after {previous_delta}, the last one may be {last_offset_delta}"
            )
        previous_delta = offset_delta
        key, position = _read_nullable(data, position, record_end, "key")
        value, position = _read_nullable(data, position, record_end, "value")
        if not with_headers or (position + 1 == record_end and data[position] == 0):
            # Most records have no headers: their count is the last byte.
            headers, position = _NO_HEADERS, record_end
        else:
            headers, position = _read_headers(data, position, record_end)
        if position != record_end:
            raise CorruptBatchError(f"a record of {length} bytes has {record_end - position} bytes behind its end")
        timestamp = max_timestamp if is_log_append_time else wrap_int64(base_timestamp + timestamp_delta)
        yield RawRecord(base_offset + offset_delta, timestamp, key, value, headers, data[start:record_end])
    if position != end:
        raise CorruptBatchError(f"{end - position} bytes are left behind its {header.count} records")


def _read_nullable(data: bytes, position: int, end: int, what: str) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position, end)
    if length == -1:
        return None, position
    field_end = position + length
    if length < -1 or field_end > end:
        raise CorruptBatchError(f"a {what} of {length} bytes does not fit the {end - position} bytes of its record")
    return data[position:field_end], field_end


def _read_headers(data: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(data, position, end)
    if count == 0:
        return (), position
    # A header has at least the two lengths.
    if not 0 < count <= (end - position) // 2:
        raise CorruptBatchError(f"header count {count} does not fit the {end - position} bytes of its record")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _read_nullable(data, position, end, "header key")
        if key is None:
            raise CorruptBatchError("a header has no key")
        value, position = _read_nullable(data, position, end, "header value")
        # Java's clients read a key that is not UTF-8 with replacement characters; so does every reader here.
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), position
