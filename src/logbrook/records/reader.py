"""Decoding the records of a batch one by one, for compaction, timestamp lookups and the command line.

The broker stores batches without decoding them, so the records of a batch with a valid checksum may still be malformed.
A batch must hold exactly `count` records that fill it to its last byte, with ascending offset deltas up to the last
offset delta; otherwise CorruptBatchError names the batch and the fault.
"""

from collections.abc import Iterator

from typing_extensions import Buffer

from logbrook.model.identifiers import Offset
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
from logbrook.records.record import LONG_BITS, Header, RawRecord, read_varint, wrap_int64

OFFSET_MAX = 2**63 - 1

_NO_HEADERS: tuple[Header, ...] = ()


def iter_records(
    buffer: Buffer, position: int = 0, *, bytes_max: int, with_headers: bool = True
) -> Iterator[RawRecord]:
    """Iterate over the records of the batch at `position`, including those of a control batch.

    Does not verify the checksum. `bytes_max` bounds the decompressed records. With `with_headers=False` the records
    have no headers, which may be millions. Raises CorruptBatchError, InvalidBatchError, UnsupportedMagicError,
    CodecError or RecordsTooLargeError, possibly after yielding the records before the malformed one.
    """
    view = memoryview(buffer).cast("B")
    header = _check_header(view, position)
    if header.count == 0 and header.size == HEADER_BYTES:
        return
    data = bytes(decompress(header.codec, view[position + HEADER_BYTES : position + header.size], bytes_max))
    try:
        yield from iter_decompressed(header, data, with_headers=with_headers)
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
        raise CorruptBatchError(f"offsets {header.base_offset} to {header.last_offset} are impossible for a batch")
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        raise InvalidBatchError(f"compression type {header.attributes & CODEC_MASK} is unknown")
    return header


def iter_decompressed(header: BatchHeader, data: bytes, *, with_headers: bool = True) -> Iterator[RawRecord]:
    """Iterate over `data`, the decompressed records of the batch of `header`. Raises CorruptBatchError."""
    position, end = 0, len(data)
    if not 0 <= header.count <= end // RECORD_BYTES_MIN:
        raise CorruptBatchError(f"record count {header.count} is impossible in {end} bytes of records")
    base_offset, base_timestamp, max_timestamp = header.base_offset, header.base_timestamp, header.max_timestamp
    is_log_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    last_offset_delta, previous_delta = header.last_offset_delta, -1
    for _ in range(header.count):
        start = position
        length, position = read_varint(data, position, end)
        record_end = position + length
        if length < 0 or record_end > end:
            raise CorruptBatchError(f"a record of {length} bytes does not fit the {end - position} bytes that remain")
        # The attributes byte of a record has no meaning yet; readers skip it.
        timestamp_delta, position = read_varint(data, position + 1, record_end, LONG_BITS)
        offset_delta, position = read_varint(data, position, record_end)
        if not previous_delta < offset_delta <= last_offset_delta:
            raise CorruptBatchError(
                f"offset delta {offset_delta} follows {previous_delta}, the largest allowed is {last_offset_delta}"
            )
        previous_delta = offset_delta
        key, position = _read_nullable(data, position, record_end, "key")
        value, position = _read_nullable(data, position, record_end, "value")
        if not with_headers or (position + 1 == record_end and data[position] == 0):
            # Most records have no headers; then the header count is the last byte.
            headers, position = _NO_HEADERS, record_end
        else:
            headers, position = _read_headers(data, position, record_end)
        if position != record_end:
            raise CorruptBatchError(f"a record of {length} bytes has {record_end - position} trailing bytes")
        timestamp = max_timestamp if is_log_append_time else wrap_int64(base_timestamp + timestamp_delta)
        yield RawRecord(Offset(base_offset + offset_delta), timestamp, key, value, headers, data[start:record_end])
    if position != end:
        raise CorruptBatchError(f"{end - position} bytes follow its {header.count} records")


def _read_nullable(data: bytes, position: int, end: int, field: str) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position, end)
    if length == -1:
        return None, position
    field_end = position + length
    if length < -1 or field_end > end:
        raise CorruptBatchError(f"a {field} of {length} bytes does not fit the {end - position} bytes of its record")
    return data[position:field_end], field_end


def _read_headers(data: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(data, position, end)
    if count == 0:
        return (), position
    # A header has at least two length bytes.
    if not 0 < count <= (end - position) // 2:
        raise CorruptBatchError(f"header count {count} is impossible in {end - position} bytes of its record")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _read_nullable(data, position, end, "header key")
        if key is None:
            raise CorruptBatchError("a header has no key")
        value, position = _read_nullable(data, position, end, "header value")
        # The Java client decodes invalid UTF-8 with replacement characters.
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), position
