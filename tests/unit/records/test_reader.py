"""Decoding of records: golden batches of other clients, and malformed ones."""

from collections.abc import Callable
from struct import pack_into

import pytest

from logbrook.model.identifiers import Offset
from logbrook.records.batch import HEADER_BYTES, Codec, TimestampType, check_batch, renew_crc
from logbrook.records.builder import build_batch, encode_record, rebuild_batch
from logbrook.records.codecs import compress
from logbrook.records.errors import (
    CodecError,
    CorruptBatchError,
    InvalidBatchError,
    RecordsError,
    RecordsTooLargeError,
    UnsupportedMagicError,
)
from logbrook.records.reader import iter_records
from logbrook.records.record import RawRecord, Record, encode_varint
from tests.unit.records.golden import GOLDEN, RECORDS

BYTES_MAX = 1_000_000
CODECS = {codec.name.lower(): codec for codec in Codec}


def read(batch: bytes | bytearray) -> list[RawRecord]:
    return list(iter_records(batch, bytes_max=BYTES_MAX))


def with_records(encoded: bytes, *, count: int = 1, last_offset_delta: int = 0, codec: Codec = Codec.NONE) -> bytearray:
    """Return a batch with these record bytes and a valid checksum."""
    batch = build_batch([Record()], codec=codec, base_offset=Offset(1_000))[:HEADER_BYTES] + compress(codec, encoded)
    pack_into(">i", batch, 8, len(batch) - 12)
    pack_into(">i", batch, 23, last_offset_delta)
    pack_into(">i", batch, 57, count)
    renew_crc(memoryview(batch), 0, len(batch))
    return batch


def record_of(*fields: int | bytes) -> bytes:
    """Return a record with these fields, numbers as varints, after a correct length."""
    body = b"".join(field if isinstance(field, bytes) else encode_varint(field) for field in fields)
    return encode_varint(len(body)) + body


@pytest.mark.parametrize("name", GOLDEN)
def test_the_batches_of_other_clients_are_read(name: str) -> None:
    batch = GOLDEN[name]
    header = check_batch(memoryview(batch), 0, len(batch))
    records = read(batch)
    assert [Record(record.key, record.value, record.headers, record.timestamp) for record in records] == RECORDS
    assert [record.offset for record in records] == [0, 1, 2, 3]
    assert header.codec is CODECS[name.split(", ")[1]]
    if name.startswith("aiokafka"):
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4242, 7, 100)


@pytest.mark.parametrize("client", ["kafka-python 3.0.12", "aiokafka 0.14.0", "librdkafka 2.16.0"])
def test_built_batches_equal_those_of_other_clients(client: str) -> None:
    golden = GOLDEN[f"{client}, none"]
    header = check_batch(memoryview(golden), 0, len(golden))
    built = build_batch(
        RECORDS,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    assert built == golden


@pytest.mark.parametrize("name", GOLDEN)
def test_the_batches_of_other_clients_are_rebuilt(name: str) -> None:
    batch = GOLDEN[name]
    header = check_batch(memoryview(batch), 0, len(batch))
    assert read(rebuild_batch(header, read(batch)[1:])) == read(batch)[1:]


def test_a_batch_is_read_where_it_stands_in_a_larger_buffer() -> None:
    batch = build_batch(RECORDS, base_offset=Offset(8))
    assert list(iter_records(memoryview(b"before" + batch + b"after"), 6, bytes_max=BYTES_MAX)) == read(batch)


def test_nothing_that_is_read_keeps_the_buffer() -> None:
    batch = build_batch(RECORDS)
    records = read(batch)
    batch.clear()  # raises BufferError while a view exists
    assert records[0].value == RECORDS[0].value


def test_a_null_value_is_a_tombstone_and_an_empty_one_is_not() -> None:
    assert [record.is_tombstone for record in read(build_batch(RECORDS))] == [False, False, True, False]


def test_the_timestamp_of_every_record_is_the_append_time_when_the_broker_set_it() -> None:
    batch = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {record.timestamp for record in read(batch)} == {1_700_000_000_007}


def test_the_records_of_control_batches_are_read_too() -> None:
    marker = Record(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", (), 5)
    assert read(build_batch([marker], control=True))[0].key == marker.key


def test_the_encoded_bytes_of_all_records_are_the_records_of_the_batch() -> None:
    batch = build_batch(RECORDS)
    assert b"".join(record.encoded for record in read(batch)) == batch[HEADER_BYTES:]


def test_a_header_key_that_is_not_utf8_is_read_with_replacement_characters() -> None:
    encoded = record_of(b"\x00", 0, 0, -1, -1, 1, 2, b"a\xff", -1)
    assert read(with_records(encoded))[0].headers == (("a\ufffd", None),)


def test_an_empty_batch_has_no_records_whatever_its_codec() -> None:
    for codec in Codec:
        batch = with_records(b"", count=0)
        pack_into(">h", batch, 21, codec)
        assert read(batch[:HEADER_BYTES]) == []


def test_the_decompressed_records_are_bounded() -> None:
    batch = build_batch([Record(value=bytes(100_000))], codec=Codec.ZSTD)
    with pytest.raises(RecordsTooLargeError):
        list(iter_records(batch, bytes_max=100_000))


def test_records_that_do_not_decompress_are_refused() -> None:
    batch = build_batch(RECORDS, codec=Codec.GZIP)
    with pytest.raises(CodecError):
        read(batch[:HEADER_BYTES] + b"x" * (len(batch) - HEADER_BYTES))


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (-1, "record count -1"),
        (-(2**31), "record count"),
        (2**31 - 1, "record count"),
        (5, "truncated"),
        (3, "bytes follow"),
    ],
)
def test_the_record_count_is_that_of_the_records(count: int, sentence: str) -> None:
    batch = build_batch(RECORDS, base_offset=Offset(1_000))
    pack_into(">i", batch, 23, 10)
    pack_into(">i", batch, 57, count)
    with pytest.raises(CorruptBatchError, match=rf"batch at offset 1000: .*{sentence}"):
        read(batch)


GOOD = encode_record(Record(b"k", b"v"), 0, 0)
BAD_RECORDS: dict[str, tuple[bytes, str]] = {
    "length negative": (encode_varint(-1) + bytes(10), "a record of -1 bytes"),
    "length beyond the end": (encode_varint(1_000) + bytes(10), "a record of 1000 bytes"),
    "length not ended": (b"\xff" * 10, "longer than 32 bits"),
    "length zero": (b"\x00" + bytes(10), "truncated"),
    "length only of attributes": (b"\x02" + bytes(10), "truncated"),
    "timestamp delta not ended": (record_of(b"\x00", b"\xff" * 12), "longer than 64 bits"),
    "offset delta negative": (record_of(b"\x00", 0, -1, -1, -1, 0), "offset delta -1"),
    "offset delta above the last": (record_of(b"\x00", 0, 1, -1, -1, 0), "offset delta 1"),
    "offset delta largest": (record_of(b"\x00", 0, 2**31 - 1, -1, -1, 0), "offset delta"),
    "key length negative": (record_of(b"\x00", 0, 0, -2, -1, 0), "a key of -2 bytes"),
    "key beyond the record": (record_of(b"\x00", 0, 0, 5, -1, 0) + GOOD, "a key of 5 bytes"),
    "key length largest": (record_of(b"\x00", 0, 0, 2**31 - 1, b"aaaa", -1, 0), "a key of"),
    "value length smallest": (record_of(b"\x00", 0, 0, -1, -(2**31), 0), "a value of"),
    "value beyond the record": (record_of(b"\x00", 0, 0, -1, 2, 0) + GOOD, "a value of 2 bytes"),
    "no header count": (record_of(b"\x00", 0, 0, 1, b"k", -1), "truncated"),
    "header count negative": (record_of(b"\x00", 0, 0, -1, -1, -1), "header count -1"),
    "header count too large": (record_of(b"\x00", 0, 0, -1, -1, 2, 0, -1), "header count 2"),
    "header count largest": (record_of(b"\x00", 0, 0, -1, -1, 2**31 - 1, 0, -1), "header count"),
    "header key null": (record_of(b"\x00", 0, 0, -1, -1, 1, -1, -1), "no key"),
    "header key beyond the record": (record_of(b"\x00", 0, 0, -1, -1, 1, 3, b"ab"), "a header key of 3 bytes"),
    "header value beyond the record": (record_of(b"\x00", 0, 0, -1, -1, 1, 0, 1), "a header value of 1 bytes"),
    "bytes behind the headers": (record_of(b"\x00", 0, 0, -1, -1, 0, b"x"), "trailing bytes"),
    "bytes behind the records": (GOOD + b"x", "1 bytes follow"),
    "a record behind the records": (GOOD + GOOD, "bytes follow"),
}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("name", BAD_RECORDS)
def test_a_malformed_record_is_corrupt_and_the_error_names_the_batch(name: str, codec: Codec) -> None:
    encoded, sentence = BAD_RECORDS[name]
    with pytest.raises(CorruptBatchError, match=f"the batch at offset 1000: .*{sentence}"):
        read(with_records(encoded, codec=codec))


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 2, 1), (2, 2)])
def test_offset_deltas_ascend(deltas: tuple[int, ...]) -> None:
    encoded = b"".join(encode_record(Record(), delta, 0) for delta in deltas)
    with pytest.raises(CorruptBatchError, match="offset delta"):
        read(with_records(encoded, count=len(deltas), last_offset_delta=5))


def test_offset_deltas_may_have_gaps() -> None:
    encoded = b"".join(encode_record(Record(), delta, 0) for delta in (1, 4))
    records = read(with_records(encoded, count=2, last_offset_delta=5))
    assert [record.offset for record in records] == [1_001, 1_004]


def change_length(batch: bytearray) -> None:
    pack_into(">i", batch, 8, len(batch))


def change_magic(batch: bytearray) -> None:
    batch[16] = 1


def change_codec(batch: bytearray) -> None:
    batch[22] = 5


def change_offset(batch: bytearray) -> None:
    pack_into(">q", batch, 0, -1)


def change_offset_to_the_last(batch: bytearray) -> None:
    pack_into(">q", batch, 0, 2**63 - 2)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (change_length, CorruptBatchError),
        (change_magic, UnsupportedMagicError),
        (change_codec, InvalidBatchError),
        (change_offset, CorruptBatchError),
        (change_offset_to_the_last, CorruptBatchError),
    ],
)
def test_an_invalid_header_is_refused(change: Callable[[bytearray], None], error: type[RecordsError]) -> None:
    batch = build_batch(RECORDS)
    change(batch)
    with pytest.raises(error):
        read(batch)


def test_a_batch_cut_anywhere_is_refused() -> None:
    batch = build_batch(RECORDS)
    for size in range(len(batch)):
        with pytest.raises(CorruptBatchError):
            read(batch[:size])


def test_any_byte_may_be_wrong_and_only_a_records_error_is_raised() -> None:
    for codec in Codec:
        batch = build_batch(RECORDS, codec=codec)
        for position in range(len(batch)):
            for value in (0x00, 0x01, 0x7F, 0x80, 0xFF):
                changed = batch.copy()
                changed[position] = value
                try:
                    read(changed)
                except RecordsError:
                    continue
