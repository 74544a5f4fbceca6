"""Compression codecs of record batches, with a bound on the decompressed size.

Compressed data comes from untrusted clients, so for every codec:

- No memory is allocated based on a length field alone. First the frames and blocks are walked to bound the
  decompressed size; the output buffer is no larger than that bound and the caller's.
- More than `bytes_max` bytes of output raise RecordsTooLargeError.
- Truncated data and trailing bytes raise CodecError.

The bound is nearly exact, so one pass suffices: LZ4 and zstd blocks have a maximum size and a snappy block declares its
length. Only gzip is retried with a larger buffer if its trailer, the length of the last member, was not the whole
length. Concatenated frames and members are all read.

The output can be read by every client: Java clients reject LZ4 frames with linked blocks, and some clients read snappy
only in the framing of xerial's snappy-java, so neither is left to the library's defaults.
"""

from collections.abc import Callable

import cramjam
from typing_extensions import Buffer

from logbrook.records.batch import Codec
from logbrook.records.errors import CodecError, RecordsTooLargeError
from logbrook.records.frames import (
    GZIP_EXPANSION_MAX,
    SNAPPY_EXPANSION_MAX,
    XERIAL_MAGIC,
    lz4_bound,
    xerial_blocks,
    zstd_bound,
)

GZIP_LEVEL = 6
LZ4_LEVEL = 1
ZSTD_LEVEL = 3

_XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
# Block size of snappy-java; readers accept any size.
_XERIAL_BLOCK_BYTES = 32 << 10

_GZIP_MEMBER_BYTES_MIN = 18

# Message of Rust's standard library when the output does not fit the buffer.
_BUFFER_FULL = "failed to write whole buffer"


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` in a form that every Kafka client reads. `level` None is the codec's default here."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=GZIP_LEVEL if level is None else level))
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data).cast("B"))
        case Codec.LZ4:
            lz4_level = LZ4_LEVEL if level is None else level
            compressor = cramjam.lz4.Compressor(level=lz4_level, content_checksum=False, block_linked=False)
            compressor.compress(bytes(data))  # accepts no other buffer type
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL if level is None else level))


def decompress(codec: Codec, data: Buffer, bytes_max: int) -> memoryview:
    """Decompress `data`; without compression, return a view of it.

    Raises RecordsTooLargeError above `bytes_max` bytes, and CodecError for malformed data.
    """
    view = memoryview(data).cast("B")
    match codec:
        case Codec.NONE:
            if view.nbytes > bytes_max:
                raise RecordsTooLargeError(bytes_max)
            return view
        case Codec.GZIP:
            return _decompress_gzip(view, bytes_max)
        case Codec.SNAPPY:
            return _decompress_snappy(view, bytes_max)
        case Codec.LZ4:
            return _decompress_frames(cramjam.lz4.decompress_into, view, lz4_bound(view, bytes_max), bytes_max)
        case Codec.ZSTD:
            return _decompress_frames(cramjam.zstd.decompress_into, view, zstd_bound(view, bytes_max), bytes_max)


def _compress_xerial(view: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, view.nbytes, _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        out += len(block).to_bytes(4, "big")
        out += memoryview(block)
    return bytes(out)


def _decompress_frames(
    decompress_into: Callable[[memoryview, bytearray], int], view: memoryview, bound: int, bytes_max: int
) -> memoryview:
    """Decompress in one pass into a buffer of the size bound, at most one byte more than `bytes_max`."""
    # The extra byte distinguishes output above `bytes_max` from output of that size, even if the codec stops silently.
    out = bytearray(min(bound, bytes_max + 1))
    try:
        size = decompress_into(view, out)
    except cramjam.DecompressionError as error:
        if _BUFFER_FULL in str(error) and len(out) > bytes_max:
            raise RecordsTooLargeError(bytes_max) from None
        raise CodecError(str(error)) from None
    if size > bytes_max:
        raise RecordsTooLargeError(bytes_max)
    return _trim(out, size)


def _trim(out: bytearray, size: int) -> memoryview:
    # The bound of a small batch is a whole block; do not keep the unused rest in memory.
    del out[size:]
    return memoryview(out)


def _decompress_gzip(view: memoryview, bytes_max: int) -> memoryview:
    if view.nbytes < _GZIP_MEMBER_BYTES_MIN:
        raise CodecError(f"{view.nbytes} bytes are fewer than a gzip member's minimum of {_GZIP_MEMBER_BYTES_MIN}")
    bound = view.nbytes * GZIP_EXPANSION_MAX
    # The trailer has the length of the last member modulo 2^32: exact for a single member, as clients write.
    capacity = max(int.from_bytes(view[-4:], "little"), view.nbytes)
    while True:
        capacity = min(capacity, bound, bytes_max + 1)
        out = bytearray(capacity)
        try:
            size = cramjam.gzip.decompress_into(view, out)
        except cramjam.DecompressionError as error:
            if _BUFFER_FULL not in str(error) or capacity == bound:
                raise CodecError(str(error)) from None
            if capacity > bytes_max:
                raise RecordsTooLargeError(bytes_max) from None
            del out
            capacity *= 4
            continue
        if size > bytes_max:
            raise RecordsTooLargeError(bytes_max)
        return _trim(out, size)


def _decompress_snappy(view: memoryview, bytes_max: int) -> memoryview:
    blocks = xerial_blocks(view) if view[:8] == XERIAL_MAGIC else [view]
    sizes: list[int] = []
    total = 0
    for block in blocks:
        size = _snappy_size(block)
        total += size
        if total > bytes_max:
            raise RecordsTooLargeError(bytes_max)
        if size > block.nbytes * SNAPPY_EXPANSION_MAX:
            raise CodecError(f"a snappy block of {block.nbytes} bytes declares {size}, more than it can decompress to")
        sizes.append(size)
    out = memoryview(bytearray(total))
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        try:
            cramjam.snappy.decompress_raw_into(block, out[position : position + size])
        except cramjam.DecompressionError as error:
            raise CodecError(str(error)) from None
        position += size
    return out


def _snappy_size(block: memoryview) -> int:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CodecError(str(error)) from None
    return size
