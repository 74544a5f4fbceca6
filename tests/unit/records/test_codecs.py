"""Codecs: every form that clients write is read, and hostile bytes cost neither memory nor more than an error."""

import gzip
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from random import Random
from struct import pack
from zlib import crc32

import cramjam
import pytest
from typing_extensions import Buffer

from logbrook.records.batch import Codec
from logbrook.records.codecs import compress, decompress
from logbrook.records.errors import CodecError, RecordsError, RecordsTooLargeError
from logbrook.records.frames import lz4_bound, zstd_bound

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
RANDOM = Random(20)
TEXT = b"".join(b'{"id": %d, "user": "u%d"}' % (number, RANDOM.randrange(1000)) for number in range(8_000))
PAYLOADS = {
    "empty": b"",
    "one byte": b"x",
    "text": TEXT,
    "zeros": bytes(300_000),
    "noise": RANDOM.randbytes(200_000),
    "a block": TEXT[: 32 * 1024],
    "a block and a byte": TEXT[: 32 * 1024 + 1],
}
XERIAL_HEADER = b"\x82SNAPPY\x00" + pack(">ii", 1, 1)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def xerial(*blocks: bytes) -> bytes:
    return XERIAL_HEADER + b"".join(pack(">i", len(block)) + block for block in map(raw_snappy, blocks))


def unpack(codec: Codec, data: Buffer, bytes_max: int) -> bytes:
    return bytes(decompress(codec, data, bytes_max))


@contextmanager
def no_more_memory_than(bytes_max: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= bytes_max


@pytest.mark.parametrize(("codec", "name"), list(product(Codec, PAYLOADS)))
def test_compressed_data_decompresses_to_the_same_bytes(codec: Codec, name: str) -> None:
    data = PAYLOADS[name]
    assert unpack(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_any_buffer_is_taken(codec: Codec) -> None:
    for data in (TEXT, bytearray(TEXT), memoryview(TEXT), memoryview(b"  " + TEXT)[2:]):
        packed = compress(codec, data)
        for form in (packed, bytearray(packed), memoryview(packed)):
            assert unpack(codec, form, len(TEXT)) == TEXT


@pytest.mark.parametrize(("codec", "name"), [pair for pair in product(Codec, PAYLOADS) if pair[1] != "empty"])
def test_one_byte_more_than_the_bound_is_refused(codec: Codec, name: str) -> None:
    data = PAYLOADS[name]
    with pytest.raises(RecordsTooLargeError) as caught:
        decompress(codec, compress(codec, data), len(data) - 1)
    assert caught.value.bytes_max == len(data) - 1


def test_without_compression_nothing_is_copied() -> None:
    data = bytearray(b"abc")
    view = decompress(Codec.NONE, data, 3)
    data[0] = ord("z")
    assert bytes(view) == b"zbc"


def test_snappy_is_written_in_the_blocks_of_snappy_java() -> None:
    packed = compress(Codec.SNAPPY, TEXT[:40_000])
    assert packed == xerial(TEXT[: 32 * 1024], TEXT[32 * 1024 : 40_000])


def test_raw_snappy_is_read() -> None:
    assert unpack(Codec.SNAPPY, raw_snappy(TEXT), len(TEXT)) == TEXT
    assert unpack(Codec.SNAPPY, raw_snappy(b""), 0) == b""


def test_snappy_blocks_may_have_any_size() -> None:
    assert unpack(Codec.SNAPPY, xerial(b"a", TEXT, b"", b"z"), len(TEXT) + 2) == b"a" + TEXT + b"z"


def test_snappy_frames_may_be_concatenated() -> None:
    assert unpack(Codec.SNAPPY, xerial(b"one", b"two") + xerial(b"three"), 100) == b"onetwothree"


def test_lz4_is_written_with_independent_blocks_and_no_content_checksum() -> None:
    # Java's clients refuse linked blocks.
    packed = compress(Codec.LZ4, TEXT)
    assert packed[:4] == bytes.fromhex("04224d18")
    version, is_independent, has_content_checksum = packed[4] >> 6, packed[4] & 0x20, packed[4] & 0x04
    assert (version, bool(is_independent), bool(has_content_checksum)) == (1, True, False)


def test_lz4_frames_with_linked_blocks_and_checksums_are_read() -> None:
    for block_linked, content_checksum in product((True, False), (True, False)):
        compressor = cramjam.lz4.Compressor(content_checksum=content_checksum, block_linked=block_linked)
        compressor.compress(TEXT)
        assert unpack(Codec.LZ4, bytes(compressor.finish()), len(TEXT)) == TEXT


def test_zstd_frames_without_a_declared_size_are_read() -> None:
    compressor = cramjam.zstd.Compressor(level=1)
    packed = bytearray()
    for start in range(0, len(TEXT), 10_000):
        compressor.compress(TEXT[start : start + 10_000])
        packed += bytes(compressor.flush())
    packed += bytes(compressor.finish())
    assert packed[4] >> 5 == 0  # neither a content size nor a single segment
    assert unpack(Codec.ZSTD, packed, len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_concatenated_members_and_frames_are_all_read(codec: Codec) -> None:
    parts = [TEXT, b"", b"short", PAYLOADS["noise"]]
    whole = b"".join(parts)
    packed = b"".join(compress(codec, part) for part in parts)
    assert unpack(codec, packed, len(whole)) == whole
    with pytest.raises(RecordsTooLargeError):
        decompress(codec, packed, len(whole) - 1)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_skippable_frames_are_skipped(codec: Codec) -> None:
    skippable = pack("<II", 0x184D2A53, 5) + b"12345"
    assert unpack(codec, skippable + compress(codec, TEXT) + skippable, len(TEXT)) == TEXT


def test_gzip_with_every_optional_field_is_read() -> None:
    body = gzip.compress(TEXT)[10:]
    header = b"\x1f\x8b\x08\x1f" + bytes(6) + b"\x02\x00xx" + b"name\x00" + b"comment\x00"
    with_checksum = header + pack("<H", crc32(header) & 0xFFFF)
    assert unpack(Codec.GZIP, with_checksum + body, len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_cut_anywhere_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT[:500])
    # An empty snappy frame is complete, and so is one that ends between two blocks.
    first = len(XERIAL_HEADER) + 1 if codec is Codec.SNAPPY else 0
    for size in range(first, len(packed)):
        with pytest.raises(CodecError):
            decompress(codec, packed[:size], 1_000)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_trailing_bytes_are_refused(codec: Codec) -> None:
    for tail in (b"\x00", b"garbage and more of it"):
        with pytest.raises(CodecError):
            decompress(codec, compress(codec, TEXT) + tail, len(TEXT) * 2)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("garbage", [b"\xff" * 40, b"not compressed at all", bytes(64)], ids=["ones", "text", "zeros"])
def test_garbage_is_refused(codec: Codec, garbage: bytes) -> None:
    with pytest.raises(CodecError):
        decompress(codec, garbage, 1_000_000)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_mutated_data_gives_bytes_within_the_bound_or_an_error(codec: Codec) -> None:
    random = Random(int(codec))
    whole = compress(codec, TEXT[:3_000])
    for _ in range(2_000):
        packed = bytearray(whole)
        for _ in range(random.randrange(1, 4)):
            packed[random.randrange(len(packed) if random.random() < 0.5 else 24)] = random.randrange(256)
        try:
            assert len(unpack(codec, packed, 5_000)) <= 5_000
        except RecordsError:
            continue


def test_seven_bytes_that_declare_two_gigabytes_are_refused_without_allocating() -> None:
    bomb = b"\xff\xff\xff\xff\x07" + b"\x00a"
    with no_more_memory_than(20_000):
        with pytest.raises(RecordsTooLargeError):
            decompress(Codec.SNAPPY, bomb, 2**20)
        with pytest.raises(CodecError, match="more than it can decompress to"):
            decompress(Codec.SNAPPY, bomb, 2**31 - 1)
        with pytest.raises(CodecError, match="more than it can decompress to"):
            decompress(Codec.SNAPPY, XERIAL_HEADER + pack(">i", len(bomb)) + bomb, 2**31 - 1)


@pytest.mark.parametrize("length", [-(2**31), -1, 1, 2**31 - 1])
def test_an_impossible_snappy_block_length_is_refused_without_allocating(length: int) -> None:
    with no_more_memory_than(20_000), pytest.raises(CodecError):
        decompress(Codec.SNAPPY, XERIAL_HEADER + pack(">i", length), 2**31 - 1)


def test_a_declared_frame_size_never_raises_the_bound() -> None:
    huge = pack("<Q", 2**62)
    lz4 = b"\x04\x22\x4d\x18\x68\x40" + huge + b"\x00" + bytes(4)
    zstd = b"\x28\xb5\x2f\xfd\xe0" + huge + b"\x01\x00\x00"
    assert lz4_bound(memoryview(lz4), 2**40) == 0
    assert zstd_bound(memoryview(zstd), 2**40) == 0
    with no_more_memory_than(20_000):
        for codec, data in ((Codec.LZ4, lz4), (Codec.ZSTD, zstd)):
            with pytest.raises(CodecError):
                decompress(codec, data, 2**31 - 1)


def test_a_wrong_gzip_trailer_allocates_no_more_than_the_data_can_expand_to() -> None:
    packed = gzip.compress(b"a" * 100)
    with no_more_memory_than(len(packed) * 1032 + 20_000), pytest.raises(CodecError):
        decompress(Codec.GZIP, packed[:-4] + b"\xff\xff\xff\xff", 2**31 - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_within_the_memory_of_its_bound(codec: Codec) -> None:
    bomb = compress(codec, bytes(50_000_000))
    with no_more_memory_than(1_100_000), pytest.raises(RecordsTooLargeError):
        decompress(codec, bomb, 1_000_000)


def test_a_bomb_of_many_small_frames_is_refused_within_the_memory_of_its_bound() -> None:
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        bomb = compress(codec, bytes(100_000)) * 1_000
        with no_more_memory_than(1_100_000), pytest.raises(RecordsTooLargeError):
            decompress(codec, bomb, 1_000_000)


def test_a_small_batch_does_not_keep_the_memory_of_a_whole_block() -> None:
    packed = [compress(codec, b"small") for codec in COMPRESSED]
    kept: list[memoryview] = []
    with no_more_memory_than(1_000_000):
        for _ in range(200):
            kept += [decompress(codec, data, 10_000_000) for codec, data in zip(COMPRESSED, packed, strict=True)]
    assert {bytes(view) for view in kept} == {b"small"}


def test_cramjam_reports_a_full_buffer_with_the_expected_error() -> None:
    # The codecs tell a bomb from garbage by this sentence.
    for library in (cramjam.gzip, cramjam.lz4, cramjam.zstd):
        with pytest.raises(cramjam.DecompressionError, match="failed to write whole buffer"):
            library.decompress_into(bytes(library.compress(TEXT)), bytearray(len(TEXT) - 1))
