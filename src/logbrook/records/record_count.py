"""A cheap check that the record count in a batch header is possible, without decoding the records.

Every produced batch passes it, so that a batch of a few bytes cannot move the log end offset by 2^31 - 1, and that most
garbage with a valid checksum is refused before a consumer stops at it:

- Not compressed: the first record must fit, and leave room for the others; a single one must fill the batch.
- Compressed: the records must fit into what the bytes can decompress to, and the data must begin as the codec's do.

It does not prove that the records can be decoded. `inspection` does, for topics that ask for it.
"""

from logbrook.records.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    RECORD_BYTES_MIN,
    BatchHeader,
    Codec,
)
from logbrook.records.errors import CorruptBatchError, InvalidBatchError
from logbrook.records.frames import GZIP_EXPANSION_MAX, LZ4_EXPANSION_MAX, SNAPPY_EXPANSION_MAX, ZSTD_EXPANSION_MAX
from logbrook.records.record import read_varint

# The decompressed records must fit into a batch, whose length is a signed integer of 32 bits.
_RECORDS_BYTES_MAX = 2**31 - 1
# Of a record without its length prefix, zigzag encoded.
_LENGTH_MIN = (RECORD_BYTES_MIN - 1) << 1

# Of codecs whose data begin with one. Frames of LZ4 and zstd may follow a skippable one.
_MAGICS = {Codec.GZIP.value: b"\x1f\x8b", Codec.LZ4.value: b"\x04\x22\x4d\x18", Codec.ZSTD.value: b"\x28\xb5\x2f\xfd"}
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"
# Bytes of output per byte of input, at most. Walking the frames would not be much tighter, and may take long.
_EXPANSIONS_MAX = {
    Codec.GZIP.value: GZIP_EXPANSION_MAX,
    Codec.SNAPPY.value: SNAPPY_EXPANSION_MAX,
    Codec.LZ4.value: LZ4_EXPANSION_MAX,
    Codec.ZSTD.value: ZSTD_EXPANSION_MAX,
}


def check_record_count(buffer: memoryview, position: int, header: BatchHeader) -> None:
    """Check the count of the batch at `position`, whose header passed `check_produced`. Raises InvalidBatchError."""
    start = position + HEADER_BYTES
    end = position + LENGTH_PREFIX_BYTES + header.batch_length
    if header.attributes & CODEC_MASK:
        _check_compressed(buffer[start:end], header)
        return
    # The length of the first record, zigzag encoded, has one or two bytes in most batches.
    length = buffer[start]
    start += 1
    if length >= 0x80:
        second = buffer[start]
        if second < 0x80:
            length = length & 0x7F | second << 7
            start += 1
        else:
            length, start = _read_length(buffer, start - 1, end)
    left = end - start - (length >> 1)
    count = header.count
    is_filled = left == 0 if count == 1 else left >= (count - 1) * RECORD_BYTES_MIN
    if length & 1 or length < _LENGTH_MIN or not is_filled:
        raise InvalidBatchError(
            f"the length of the first record of a batch of {header.size} bytes does not match record count {count}"
        )


def _read_length(buffer: memoryview, start: int, end: int) -> tuple[int, int]:
    """Return the length of the record at `start` as it is encoded, and the position after it."""
    try:
        length, position = read_varint(buffer, start, end)
    except CorruptBatchError as error:
        raise InvalidBatchError(f"the first record: {error}") from error
    return (length << 1) ^ (length >> 63), position


def _check_compressed(records: memoryview, header: BatchHeader) -> None:
    codec = header.attributes & CODEC_MASK
    magic = _MAGICS.get(codec)
    if magic is not None and records[: len(magic)] != magic and records[1:4] != _SKIPPABLE_MAGIC:
        raise InvalidBatchError(f"the records do not begin with the magic number of {Codec(codec).name}")
    bytes_needed = header.count * RECORD_BYTES_MIN
    if bytes_needed > min(len(records) * _EXPANSIONS_MAX[codec], _RECORDS_BYTES_MAX):
        raise InvalidBatchError(f"record count {header.count} is impossible in a batch of {header.size} bytes")
