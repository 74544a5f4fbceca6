"""Varints: zigzag, at most 5 or 10 bytes, never outside the buffer."""

import pytest

from logbrook.records.errors import CorruptBatchError
from logbrook.records.record import INT_BITS, LONG_BITS, encode_varint, read_varint, wrap_int64

INTS = [0, -1, 1, 63, -64, 64, -65, 8191, -8192, 8192, 2**20, -(2**20), 2**31 - 1, -(2**31)]
LONGS = [*INTS, 2**31, 2**42, -(2**42), 2**63 - 1, -(2**63)]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (300, "d804")],
)
def test_the_encoding_is_zigzag_with_the_lowest_bits_first(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


@pytest.mark.parametrize("value", LONGS)
def test_a_long_is_read_back_wherever_it_stands(value: int) -> None:
    encoded = encode_varint(value)
    for data in (encoded, b"x" + encoded + b"y"):
        start = data.index(encoded)
        assert read_varint(data, start, len(data), LONG_BITS) == (value, start + len(encoded))


@pytest.mark.parametrize("value", INTS)
def test_an_int_is_read_back(value: int) -> None:
    encoded = encode_varint(value)
    assert len(encoded) <= 5
    assert read_varint(encoded, 0, len(encoded)) == (value, len(encoded))


@pytest.mark.parametrize("value", LONGS)
def test_a_varint_cut_short_is_corrupt(value: int) -> None:
    encoded = encode_varint(value)
    for end in range(len(encoded)):
        with pytest.raises(CorruptBatchError, match="truncated"):
            read_varint(encoded + b"\x00" * 10, 0, end, LONG_BITS)


@pytest.mark.parametrize("encoded", ["ffffffff1f", "808080808000", "ffffffffff01", "ff" * 12])
def test_an_int_has_at_most_five_bytes_and_32_bits(encoded: str) -> None:
    with pytest.raises(CorruptBatchError, match="longer than 32 bits"):
        read_varint(bytes.fromhex(encoded), 0, len(encoded) // 2, INT_BITS)


@pytest.mark.parametrize("encoded", ["ff" * 9 + "02", "80" * 10 + "00", "ff" * 12])
def test_a_long_has_at_most_ten_bytes_and_64_bits(encoded: str) -> None:
    with pytest.raises(CorruptBatchError, match="longer than 64 bits"):
        read_varint(bytes.fromhex(encoded), 0, len(encoded) // 2, LONG_BITS)


def test_needless_zero_bytes_within_the_limit_are_accepted() -> None:
    assert read_varint(b"\x82\x80\x80\x80\x00", 0, 5) == (1, 5)


def test_sums_wrap_at_64_bits() -> None:
    assert wrap_int64(2**63) == -(2**63)
    assert wrap_int64(-(2**63) - 1) == 2**63 - 1
    assert wrap_int64(12) == 12
