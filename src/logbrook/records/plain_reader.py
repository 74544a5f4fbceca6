"""Decoding of all keys and values of a batch at once: a third of the time that `reader` takes, for `logbrook consume`.

It reads batches as nearly all are: without gaps in their offsets, of records without headers. It does not verify what
is not used: offset deltas, timestamps and the signs of lengths.
"""

from typing import NamedTuple

from typing_extensions import Buffer

from logbrook.records.batch import HEADER_BYTES, RECORD_BYTES_MIN, BatchHeader
from logbrook.records.codecs import decompress

# The varint of -1.
_NULL = 1


class PlainRecords(NamedTuple):
    """Keys and values of the records at consecutive offsets from the base offset of their batch; null is empty."""

    keys: list[bytes]
    values: list[bytes]


def read_plain_records(buffer: Buffer, position: int, header: BatchHeader, *, bytes_max: int) -> PlainRecords | None:
    """Return the records of the batch at `position`, whose header is `header`; None if `reader` must read it.

    Raises CodecError or RecordsTooLargeError.
    """
    if header.count != header.last_offset_delta + 1:
        return None
    view = memoryview(buffer).cast("B")
    data = bytes(decompress(header.codec, view[position + HEADER_BYTES : position + header.size], bytes_max))
    if not 0 < header.count <= len(data) // RECORD_BYTES_MIN:
        return None
    keys: list[bytes] = []
    values: list[bytes] = []
    try:
        end = _read(data, header.count, keys, values)
    except IndexError:
        return None
    return PlainRecords(keys, values) if end == len(data) else None


def _read(data: bytes, count: int, keys: list[bytes], values: list[bytes]) -> int:
    """Append to `keys` and `values`. Returns the position after the last record, or -1 at one that has headers.

    Varints are read in place, because a call per varint would take most of the time. Raises IndexError.
    """
    add_key, add_value = keys.append, values.append
    position = 0
    for _ in range(count):
        size = data[position]
        position += 1
        if size > 0x7F:
            size, position = _read_longer(data, size, position)
        record_end = position + (size >> 1)
        # The attributes, the timestamp delta and the offset delta.
        position += 1
        while data[position] > 0x7F:
            position += 1
        position += 1
        while data[position] > 0x7F:
            position += 1
        size = data[position + 1]
        position += 2
        if size == _NULL:
            add_key(b"")
        else:
            if size > 0x7F:
                size, position = _read_longer(data, size, position)
            start = position
            position += size >> 1
            add_key(data[start:position])
        size = data[position]
        position += 1
        if size == _NULL:
            add_value(b"")
        else:
            if size > 0x7F:
                size, position = _read_longer(data, size, position)
            start = position
            position += size >> 1
            add_value(data[start:position])
        if data[position] or position + 1 != record_end:
            return -1
        position = record_end
    return position


def _read_longer(data: bytes, first: int, position: int) -> tuple[int, int]:
    """Return (unsigned value, position after it) of a varint whose first byte was read. Raises IndexError."""
    value, shift = first & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
