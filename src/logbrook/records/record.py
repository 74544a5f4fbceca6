"""Records, and the variable-length integers that encode them inside a batch.

A varint is zigzag encoded, seven bits per byte, least significant first. Kafka has two widths: int (at most 5 bytes)
and long (at most 10). A longer one, one with bits above its width, or a truncated one is corruption. Redundant zero
bytes within the limit are accepted, as in Kafka.
"""

from collections.abc import Sequence
from typing import NamedTuple

from logbrook.model.identifiers import Offset
from logbrook.records.batch import NO_TIMESTAMP
from logbrook.records.errors import CorruptBatchError

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """A record to be written, without an offset."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp: int = NO_TIMESTAMP


class RawRecord(NamedTuple):
    """A record read from a batch, with its offset and its encoded bytes.

    Everything is copied from the batch, so that a record does not keep a pooled buffer in use.
    """

    offset: Offset
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    # The encoded record with its length prefix. Its deltas are relative to the batch it was read from.
    encoded: bytes

    @property
    def is_tombstone(self) -> bool:
        """True for a null value, which deletes the record's key."""
        return self.value is None


INT_BITS = 32
LONG_BITS = 64

_MASK_64 = 2**64 - 1
_SINGLE_BYTES = tuple(bytes((value,)) for value in range(0x80))


def read_varint(data: bytes | memoryview, position: int, end: int, bits: int = INT_BITS) -> tuple[int, int]:
    """Return (value at `position`, position after it). Raises CorruptBatchError."""
    # Fast path for one or two bytes, as most lengths and deltas have; a record has at least five varints.
    if position + 1 < end:
        first = data[position]
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), position + 1
        second = data[position + 1]
        if second < 0x80:
            unsigned = first & 0x7F | second << 7
            return (unsigned >> 1) ^ -(unsigned & 1), position + 2
    return _read_any(data, position, end, bits)


def encode_varint(value: int) -> bytes:
    """Encode `value`, an int or a long: they differ in range only."""
    return encode_uvarint((value << 1) ^ (value >> 63))


def encode_uvarint(value: int) -> bytes:
    """Encode a value of at least 0 without zigzag."""
    if value < 0x80:
        return _SINGLE_BYTES[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def wrap_int64(value: int) -> int:
    """Wrap `value` to a signed 64-bit integer, as the Java client does when it adds a delta to a base."""
    if -(2**63) <= value < 2**63:
        return value
    return ((value + 2**63) & _MASK_64) - 2**63


def _read_any(data: bytes | memoryview, position: int, end: int, bits: int) -> tuple[int, int]:
    unsigned, shift = 0, 0
    while True:
        if position >= end:
            raise CorruptBatchError(f"a varint is truncated at byte {position} of the records")
        byte = data[position]
        position += 1
        unsigned |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise CorruptBatchError(f"a varint at byte {position} of the records is longer than {bits} bits")
    if unsigned >> bits:
        raise CorruptBatchError(f"a varint at byte {position} of the records is longer than {bits} bits")
    return (unsigned >> 1) ^ -(unsigned & 1), position
