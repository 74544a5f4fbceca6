"""Messages with one invalid length, count, tag or number.

A part of a message is overwritten in place, so that everything around it stays valid and the decoder gets as far as the
invalid part.
"""

from collections.abc import Iterator
from random import Random

from logbrook.protocol.encoding import encode
from logbrook.protocol.schema import ApiMessage

# Lengths and counts of flexible versions: null, large, and values that exceed 32 bits or five bytes.
VARINTS = (
    b"\x00",
    b"\x7f",
    b"\xff\xff\x03",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x80\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
)
# Lengths and counts of other versions: null, below null, large, and the limits of 16 and 32 bits.
FIXED = (
    b"\xff\xff",
    b"\xff\xfe",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x03\x0d\x40",
)


def with_hostile_lengths(message: ApiMessage, version: int) -> Iterator[bytes]:
    """Yield the message with an invalid value at the beginning of each field, and at every byte of tagged fields."""
    pieces = encode(message, version)
    data = b"".join(pieces)
    is_flexible = version >= message.FLEXIBLE_SINCE
    position = 0
    for piece in pieces:
        # A piece is a number, a length with its content, or a whole tagged field, which may have lengths inside.
        for start in range(position, position + len(piece) if is_flexible and len(piece) < 128 else position + 1):
            for hostile in VARINTS if is_flexible else FIXED:
                yield data[:start] + hostile + data[start + len(hostile) :]
        position += len(piece)


def mutated(data: bytes, random: Random) -> bytes:
    """Return `data` with a few bytes changed, moved, removed or duplicated."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        start = random.randrange(len(changed) + 1)
        stop = min(len(changed), start + random.choice((1, 1, 2, 4, 9)))
        match random.randrange(5):
            case 0:
                changed[start:stop] = random.randbytes(stop - start)
            case 1:
                del changed[start:stop]
            case 2:
                changed[start:start] = changed[start:stop]
            case 3:
                changed[start:stop] = bytes(stop - start)
            case _:
                changed[start:stop] = b"\xff" * (stop - start)
    return bytes(changed)
