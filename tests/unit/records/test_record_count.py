"""The record count of a produced batch must be possible."""

import cramjam
import pytest

from logbrook.records.batch import HEADER_BYTES, BatchHeader, Codec, read_header
from logbrook.records.builder import build_batch, seal
from logbrook.records.codecs import compress
from logbrook.records.errors import InvalidBatchError
from logbrook.records.record import Record, encode_varint
from logbrook.records.record_count import check_record_count

COUNT_MAX = 2**31 - 1


def batch_of_bytes(records: bytes, count: int, codec: Codec = Codec.NONE) -> bytearray:
    """Return a batch with a valid header and checksum around `records`."""
    header = read_header(build_batch([Record()], codec=codec))
    batch = bytearray(HEADER_BYTES) + records
    seal(header._replace(count=count, last_offset_delta=count - 1), batch)
    return batch


def check(batch: bytearray) -> BatchHeader:
    # Between other bytes, which must not be read.
    data = memoryview(b"\xff" * 5 + batch + b"\xff" * 5)
    header = read_header(data, 5)
    check_record_count(data, 5, header)
    return header


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("value", [None, b"", b"x" * 57, bytes(58), bytes(20_000)])
def test_batches_as_producers_build_them_are_accepted(codec: Codec, value: bytes | None) -> None:
    for count in (1, 2, 3, 200, 20_000 if not value else 201):
        check(build_batch([Record(value=value)] * count, codec=codec))


@pytest.mark.parametrize(
    ("records", "count"),
    [
        pytest.param(b"\xff" * 100, 1, id="a varint that does not end"),
        pytest.param(b"\x01" + bytes(99), 1, id="a negative length"),
        pytest.param(b"\x0a" + bytes(5), 1, id="shorter than any record"),
        pytest.param(b"\x0c" + bytes(7), 1, id="bytes after the only record"),
        pytest.param(b"\x0e" + bytes(6), 1, id="longer than the batch"),
        pytest.param(b"\x10" + bytes(12), 2, id="no room for the second"),
        pytest.param(encode_varint(1_000) + bytes(999), 1, id="a long one that is too long"),
        pytest.param(encode_varint(2**31 - 1) + bytes(999), 1, id="far too long"),
        pytest.param(bytes(100), 1, id="zeros"),
    ],
)
def test_a_first_record_that_does_not_fit_is_refused(records: bytes, count: int) -> None:
    with pytest.raises(InvalidBatchError):
        check(batch_of_bytes(records, count))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("count", [100_000_000, COUNT_MAX])
def test_a_compressed_batch_cannot_claim_more_records_than_it_could_hold(codec: Codec, count: int) -> None:
    with pytest.raises(InvalidBatchError, match="impossible"):
        check(batch_of_bytes(compress(codec, bytes(10_000)), count, codec))


def test_even_frames_that_expand_to_anything_cannot_claim_every_offset() -> None:
    bomb = cramjam.zstd.compress(bytes(1 << 20))
    with pytest.raises(InvalidBatchError, match="impossible"):
        check(batch_of_bytes(bytes(bomb) * 2_000, COUNT_MAX, Codec.ZSTD))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("garbage", [b"", b"\x00" * 100, b"garbage, garbage and garbage"])
def test_bytes_that_do_not_begin_as_the_codecs_do_are_refused(codec: Codec, garbage: bytes) -> None:
    with pytest.raises(InvalidBatchError):
        check(batch_of_bytes(garbage, 1, codec))
