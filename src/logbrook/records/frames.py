"""Bounds on the decompressed size of LZ4, zstd and snappy data, found by walking its frames.

LZ4 and zstd data are frames of blocks. A block declares its compressed size and is bounded in its output. Walking the
blocks gives an upper bound that is less than a block above the actual size for what clients write. A forged field
cannot inflate it: a frame's declared content size can lower the bound, not raise it. The framing of xerial's
snappy-java is a header and raw snappy blocks, each of which declares its size.

Every walk stops once the bound exceeds the caller's, so hostile frames cost no more than honest ones.
"""

from collections.abc import Callable

from logbrook.records.errors import CodecError

# Largest expansion of each format: a snappy copy yields 64 bytes from 3, a deflate match 258 bytes from 2 bits, a
# length byte of an LZ4 match up to 255 bytes, and a zstd block of 4 bytes that repeats one byte up to 128 KiB.
SNAPPY_EXPANSION_MAX = 22
GZIP_EXPANSION_MAX = 1032
LZ4_EXPANSION_MAX = 255
ZSTD_EXPANSION_MAX = 32 << 10
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16

_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_BYTES_MAX = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_UNCOMPRESSED_BIT = 0x8000_0000

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES_MAX = 128 << 10
_ZSTD_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_COMPRESSED = 0, 1, 2

# Both formats have skippable frames with these magic numbers.
_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFF_FFF0


def lz4_bound(view: memoryview, bytes_max: int) -> int:
    """Return an upper bound of the decompressed size of LZ4 frames; stops above `bytes_max`. Raises CodecError."""
    return _bound(view, bytes_max, "LZ4", _LZ4_MAGIC, _lz4_frame)


def zstd_bound(view: memoryview, bytes_max: int) -> int:
    """Return an upper bound of the decompressed size of zstd frames; stops above `bytes_max`. Raises CodecError."""
    return _bound(view, bytes_max, "zstd", _ZSTD_MAGIC, _zstd_frame)


def _bound(
    view: memoryview,
    bytes_max: int,
    name: str,
    frame_magic: int,
    read_frame: Callable[[memoryview, int, int], tuple[int, int]],
) -> int:
    """Sum the bounds of all frames. `read_frame` returns the bound of a frame and the position after it."""
    bound, position = 0, 0
    while position < view.nbytes and bound <= bytes_max:
        magic = _uint(view, position, 4)
        if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            position += 8 + _uint(view, position + 4, 4)
            continue
        if magic != frame_magic:
            raise CodecError(f"{magic:#010x} is not the magic number of {name} frames")
        frame_bound, position = read_frame(view, position, bytes_max)
        bound += frame_bound
    return bound


def _lz4_frame(view: memoryview, position: int, bytes_max: int) -> tuple[int, int]:
    """Return (upper bound of the output, position after the frame) of the frame at `position`."""
    flags, descriptor = _uint(view, position + 4, 1), _uint(view, position + 5, 1)
    block_bytes_max = _LZ4_BLOCK_BYTES_MAX.get(descriptor >> 4 & 0x07)
    if block_bytes_max is None:
        raise CodecError(f"block descriptor {descriptor:#04x} of an LZ4 frame is unknown")
    position += 6
    declared = None
    if flags & 0x08:
        declared = _uint(view, position, 8)
        position += 8
    position += 5 if flags & 0x01 else 1  # a dictionary id, and the checksum of the header
    block_checksum_bytes = 4 if flags & 0x10 else 0
    bound = 0
    while bound <= bytes_max:
        field = _uint(view, position, 4)
        position += 4
        if field == 0:
            position += 4 if flags & 0x04 else 0  # the checksum of the content
            break
        size = field & ~_LZ4_UNCOMPRESSED_BIT
        bound += size if field & _LZ4_UNCOMPRESSED_BIT else min(block_bytes_max, size * LZ4_EXPANSION_MAX)
        position += size + block_checksum_bytes
    return bound if declared is None else min(bound, declared), position


def _zstd_frame(view: memoryview, position: int, bytes_max: int) -> tuple[int, int]:
    """Return (upper bound of the output, position after the frame) of the frame at `position`."""
    descriptor = _uint(view, position + 4, 1)
    is_single_segment = bool(descriptor & 0x20)
    # A window descriptor, unless the content is one segment, and a dictionary id.
    position += (5 if is_single_segment else 6) + _ZSTD_DICTIONARY_ID_BYTES[descriptor & 0x03]
    size_field_bytes = (int(is_single_segment), 2, 4, 8)[descriptor >> 6]
    declared = None
    if size_field_bytes:
        declared = _uint(view, position, size_field_bytes) + (256 if size_field_bytes == 2 else 0)
        position += size_field_bytes
    bound, is_last = 0, False
    while not is_last and bound <= bytes_max:
        field = _uint(view, position, 3)
        is_last, kind, size = bool(field & 1), field >> 1 & 0x03, field >> 3
        if kind > _ZSTD_COMPRESSED:
            raise CodecError("a zstd block is of the reserved type")
        bound += _ZSTD_BLOCK_BYTES_MAX if kind == _ZSTD_COMPRESSED else min(size, _ZSTD_BLOCK_BYTES_MAX)
        position += 3 + (1 if kind == _ZSTD_RLE else size)
    position += 4 if descriptor & 0x04 else 0  # the checksum of the content
    return bound if declared is None else min(bound, declared), position


def xerial_blocks(view: memoryview) -> list[memoryview]:
    """Return the raw snappy blocks of one or more xerial frames. Raises CodecError."""
    blocks = []
    position, end = 0, view.nbytes
    while position < end:
        if view[position : position + 8] == XERIAL_MAGIC:
            position += XERIAL_HEADER_BYTES
            continue
        length = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if not 0 <= length <= end - position:
            raise CodecError(f"a snappy block of {length} bytes does not fit the {end - position} bytes left")
        blocks.append(view[position : position + length])
        position += length
    if position > end:
        raise CodecError("a snappy frame is truncated in its header")
    return blocks


def _uint(view: memoryview, position: int, size: int) -> int:
    field = view[position : position + size]
    if field.nbytes < size:
        raise CodecError("a frame is truncated")
    return int.from_bytes(field, "little")
