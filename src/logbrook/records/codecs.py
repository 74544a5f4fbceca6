"""The four compressions of a record batch, with a bound on what comes out.

Compressed bytes come from strangers, so three rules hold for every codec:

- Nothing is allocated on the word of a length field alone. Before any output buffer exists, the frames and blocks are
  walked to find how much these bytes can really become; the buffer is no larger than that, and than the caller's bound.
- More than `bytes_max` bytes never come out: RecordsTooLargeError.
- Whatever does not decompress to its end, or has something behind its end, is a CodecError.

The walk makes the output buffer almost exact, so one pass suffices: the blocks of an LZ4 frame and of a zstd frame have
a maximum size, a snappy block declares its length, and gzip alone is retried with a larger buffer when its trailer did
not tell the truth (it gives the length of the last member only). Concatenated frames and members are all read.

What is written is what every client reads. Java clients refuse LZ4 frames with linked blocks, and some clients read
snappy only in the framing of xerial's snappy-java, which is why neither is left to the library's defaults.
"""

from collections.abc import Callable

import cramjam
from typing_extensions import Buffer

from logbrook.records.batch import Codec
from logbrook.records.errors import CodecError, RecordsTooLargeError
from logbrook.records.frames import XERIAL_MAGIC, lz4_bound, xerial_blocks, zstd_bound

GZIP_LEVEL = 6
LZ4_LEVEL = 1
ZSTD_LEVEL = 3

_XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
# The block that snappy-java writes; a reader takes any size.
_XERIAL_BLOCK_BYTES = 32 << 10

# The largest expansion each format can express: a snappy copy makes 64 bytes of 3, a deflate match 258 of 2 bits.
_SNAPPY_EXPANSION_MAX = 22
_GZIP_EXPANSION_MAX = 1032
_GZIP_MEMBER_BYTES_MIN = 18

# What Rust's standard library says when a writer takes no more: the output is larger than the buffer.
_BUFFER_FULL = "failed to write whole buffer"


def compress(codec: Codec, data: Buffer) -> bytes:
    """`data` in the form that every Kafka client reads."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=GZIP_LEVEL))
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data).cast("B"))
        case Codec.LZ4:
            compressor = cramjam.lz4.Compressor(level=LZ4_LEVEL, content_checksum=False, block_linked=False)
            compressor.compress(bytes(data))  # it takes no other buffer
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def decompress(codec: Codec, data: Buffer, bytes_max: int) -> memoryview:
    """What `data` decompresses to; without compression, a view of `data` itself.

    Raises RecordsTooLargeError when that is more than `bytes_max`, and CodecError when it is not the codec's.
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
    """One pass into a buffer that can hold all that `view` can become, or one byte more than is allowed."""
    # The byte more tells a batch that exceeds the bound from one that fills it, even where a codec would stop quietly.
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
    # A small batch has a bound of a whole block, which is not to stay in memory with it.
    del out[size:]
    return memoryview(out)


def _decompress_gzip(view: memoryview, bytes_max: int) -> memoryview:
    if view.nbytes < _GZIP_MEMBER_BYTES_MIN:
        raise CodecError(f"{view.nbytes} bytes are fewer than a gzip member has")
    bound = view.nbytes * _GZIP_EXPANSION_MAX
    # The trailer gives the length of the last member, modulo 2^32: exact for what clients write, a hint otherwise.
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
        if size > block.nbytes * _SNAPPY_EXPANSION_MAX:
            raise CodecError(f"a snappy block of {block.nbytes} bytes declares {size}, more than it can hold")
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
