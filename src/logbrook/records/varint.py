"""The variable-length integers inside a record: zigzag, seven bits a byte, the lowest first.

Kafka has two widths, int (at most 5 bytes) and long (at most 10). A longer one, or one with bits above its width, is
corruption, as is one that the buffer ends within; an encoding with needless zero bytes inside the limit is accepted,
as Kafka accepts it.
"""

from logbrook.records.errors import CorruptBatchError

INT_BITS = 32
LONG_BITS = 64

_MASK_64 = 2**64 - 1
_SINGLE_BYTES = tuple(bytes((value,)) for value in range(0x80))


def read_varint(data: bytes, position: int, end: int, bits: int = INT_BITS) -> tuple[int, int]:
    """(the value at `position`, the position behind it). Raises CorruptBatchError."""
    # Most lengths and deltas take one byte or two; compaction reads five of them for each record.
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
    """The zigzag encoding of `value`, an int or a long: they differ in range, not in form."""
    unsigned = (value << 1) ^ (value >> 63)
    if unsigned < 0x80:
        return _SINGLE_BYTES[unsigned]
    out = bytearray()
    while unsigned >= 0x80:
        out.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


def wrap_int64(value: int) -> int:
    """`value` as a 64-bit integer that overflowed, which is how Java's clients add a delta to a base."""
    if -(2**63) <= value < 2**63:
        return value
    return ((value + 2**63) & _MASK_64) - 2**63


def _read_any(data: bytes, position: int, end: int, bits: int) -> tuple[int, int]:
    unsigned, shift = 0, 0
    while True:
        if position >= end:
            raise CorruptBatchError(f"a varint is cut short at byte {position} of the records")
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
