"""Inspection of producers' batches: the errors, with the records that cause them."""

from collections.abc import Sequence
from random import Random

import pytest

from logbrook.records.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, NO_TIMESTAMP, Codec, check_batch, read_header
from logbrook.records.builder import build_batch, seal
from logbrook.records.codecs import compress
from logbrook.records.errors import (
    CorruptBatchError,
    InvalidBatchError,
    InvalidTimestampsError,
    RecordsTooLargeError,
    RejectedRecordsError,
    TooManyRecordsError,
)
from logbrook.records.inspection import FAULTS_MAX, RECORDS_MAX, InspectionRules, inspect_batches
from logbrook.records.reader import iter_records
from logbrook.records.record import Record, encode_varint

BYTES_MAX = 1 << 20
KEYED = InspectionRules(BYTES_MAX, requires_keys=True)
NO_RULES = InspectionRules(BYTES_MAX)


def batch_with_keys(keys: Sequence[bytes | None], codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([Record(key=key, value=b"v", timestamp=1_000) for key in keys], codec=codec)


def batch_of_bytes(records: bytes, count: int, codec: Codec = Codec.NONE) -> bytearray:
    """Return a batch with a valid header and checksum around `records`."""
    header = read_header(batch_with_keys([b"k"], codec))
    batch = bytearray(HEADER_BYTES) + records
    seal(header._replace(count=count, last_offset_delta=count - 1), batch)
    return batch


@pytest.mark.parametrize("codec", Codec)
def test_records_without_a_key_are_named_by_their_place_in_the_batch(codec: Codec) -> None:
    batch = memoryview(batch_with_keys([b"a", None, b"", None], codec))
    with pytest.raises(RejectedRecordsError) as refused:
        inspect_batches(batch, KEYED)
    assert [fault.batch_index for fault in refused.value.faults] == [1, 3]
    assert refused.value.faults[0].reason.startswith("Compacted topic cannot accept message without key")
    assert inspect_batches(batch, NO_RULES) is batch


@pytest.mark.parametrize("codec", Codec)
def test_batches_that_obey_the_rules_are_returned_as_they_are(codec: Codec) -> None:
    batches = memoryview(batch_with_keys([b"a", b""], codec) + batch_with_keys([b"b"], codec))
    assert inspect_batches(batches, KEYED) is batches


def test_long_fields_do_not_hide_a_missing_key() -> None:
    # Varints of several bytes for the record's length, the timestamp delta and the offset delta.
    records = [Record(key=b"k", timestamp=0)] * 200 + [Record(value=bytes(500), timestamp=2**40)] + [Record(key=b"")]
    with pytest.raises(RejectedRecordsError) as refused:
        inspect_batches(memoryview(build_batch(records)), KEYED)
    assert [fault.batch_index for fault in refused.value.faults] == [200]


@pytest.mark.parametrize("seed", range(50))
def test_the_walk_for_keys_agrees_with_decoding(seed: int) -> None:
    random = Random(seed)
    keys = [random.choice([None, b"", bytes(random.randrange(200))]) for _ in range(random.randrange(1, 200))]
    records = [Record(key, bytes(random.randrange(300)), (), random.randrange(2**42)) for key in keys]
    batch = memoryview(build_batch(records, codec=random.choice(list(Codec))))
    indexes = []
    for rules in (KEYED, KEYED._replace(is_full=True)):
        try:
            inspect_batches(batch, rules)
        except RejectedRecordsError as error:
            indexes.append([fault.batch_index for fault in error.faults])
        else:
            indexes.append([])
    assert indexes == [[index for index, key in enumerate(keys) if key is None][:FAULTS_MAX]] * 2


def test_the_length_of_a_missing_key_may_have_redundant_bytes() -> None:
    body = b"\x00\x00\x00" + b"\x81\x80\x00" + b"\x01\x00"
    with pytest.raises(RejectedRecordsError):
        inspect_batches(memoryview(batch_of_bytes(encode_varint(len(body)) + body, 1)), KEYED)
    # A key of 64 bytes has a length that begins like it.
    inspect_batches(memoryview(batch_with_keys([bytes(64)])), KEYED)


@pytest.mark.parametrize(
    "records", [b"\x0c\x00\x00\x00\x00", b"\x0c" + bytes(7), b"\x02\x00\x00", b"\x0c\x00\xff\xff\xff\xff\xff"]
)
def test_keys_are_not_searched_outside_their_record(records: bytes) -> None:
    with pytest.raises(InvalidBatchError):
        inspect_batches(memoryview(batch_of_bytes(records, 1)), KEYED)


def test_the_second_of_two_batches_is_inspected_too() -> None:
    with pytest.raises(RejectedRecordsError):
        inspect_batches(memoryview(batch_with_keys([b"a"]) + batch_with_keys([None])), KEYED)


def test_the_list_of_faults_is_bounded() -> None:
    with pytest.raises(RejectedRecordsError) as refused:
        inspect_batches(memoryview(batch_with_keys([None] * (FAULTS_MAX + 50), Codec.ZSTD)), KEYED)
    assert len(refused.value.faults) == FAULTS_MAX


@pytest.mark.parametrize("codec", Codec)
def test_records_that_cannot_be_decoded_are_invalid(codec: Codec) -> None:
    for records in (compress(codec, b"\x7f" * 40), b"\xff" * 40):
        with pytest.raises(InvalidBatchError, match="cannot be decoded"):
            inspect_batches(memoryview(batch_of_bytes(records, 1, codec)), KEYED)


def test_a_batch_that_decompresses_to_too_much_is_refused() -> None:
    bomb = batch_of_bytes(compress(Codec.GZIP, bytes(1 << 20)), 1, Codec.GZIP)
    with pytest.raises(RecordsTooLargeError):
        inspect_batches(memoryview(bomb), InspectionRules(1 << 10, requires_keys=True))


def test_a_batch_with_too_many_records_is_not_decompressed() -> None:
    bomb = memoryview(batch_of_bytes(compress(Codec.ZSTD, bytes(BYTES_MAX)), RECORDS_MAX + 1, Codec.ZSTD))
    with pytest.raises(TooManyRecordsError):
        inspect_batches(bomb, KEYED)
    assert inspect_batches(bomb, NO_RULES) is bomb


def test_header_and_checksum_are_checked_first() -> None:
    flipped = batch_with_keys([None])
    flipped[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        inspect_batches(memoryview(flipped), KEYED)
    with pytest.raises(InvalidBatchError, match="record count"):
        inspect_batches(memoryview(batch_of_bytes(b"", 0)), KEYED)


def batch_at(*timestamps: int, codec: Codec = Codec.NONE, keys: bool = True) -> bytearray:
    return build_batch(
        [Record(key=b"k" if keys else None, timestamp=timestamp) for timestamp in timestamps], codec=codec
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_timestamps_outside_the_limits_are_named(codec: Codec) -> None:
    batch = memoryview(batch_at(99, 100, 200, 201, NO_TIMESTAMP, codec=codec))
    for limits, expected in (((100, 200), [0, 3]), ((100, None), [0]), ((None, 200), [3])):
        rules = InspectionRules(BYTES_MAX, timestamp_min=limits[0], timestamp_max=limits[1])
        with pytest.raises(InvalidTimestampsError) as refused:
            inspect_batches(batch, rules)
        assert [fault.batch_index for fault in refused.value.faults] == expected
        assert "out of range" in refused.value.faults[0].reason


def test_a_batch_with_both_faults_is_refused_for_its_timestamps() -> None:
    rules = InspectionRules(BYTES_MAX, requires_keys=True, timestamp_max=200)
    with pytest.raises(InvalidTimestampsError):
        inspect_batches(memoryview(build_batch([Record(), Record(key=b"k", timestamp=201)])), rules)
    # The key is checked first.
    with pytest.raises(RejectedRecordsError) as refused:
        inspect_batches(memoryview(batch_at(201, keys=False)), rules)
    assert not isinstance(refused.value, InvalidTimestampsError)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("target", Codec)
def test_a_batch_is_compressed_with_the_topics_codec(codec: Codec, target: Codec) -> None:
    batch = memoryview(batch_with_keys([b"a", None, b"c"], codec))
    inspected = inspect_batches(batch, InspectionRules(BYTES_MAX, codec=target))
    if codec is target:
        assert inspected is batch
    header = check_batch(inspected, 0, len(inspected))
    assert header.codec is target
    expected = read_header(batch)._replace(
        attributes=header.attributes, batch_length=len(inspected) - LENGTH_PREFIX_BYTES, crc=header.crc
    )
    assert header == expected
    assert list(iter_records(inspected, bytes_max=BYTES_MAX)) == list(iter_records(batch, bytes_max=BYTES_MAX))


@pytest.mark.parametrize(("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 12)), (Codec.ZSTD, (-50, 19))])
def test_a_higher_level_compresses_more(codec: Codec, levels: tuple[int, int]) -> None:
    words = b" ".join(b"%d" % (number * number % 1_009) for number in range(5_000))
    batch = memoryview(build_batch([Record(value=words)]))
    low, high = (len(inspect_batches(batch, InspectionRules(BYTES_MAX, codec=codec, level=level))) for level in levels)
    assert high < low < len(batch)


def test_one_of_two_batches_is_compressed_and_both_are_returned() -> None:
    batches = batch_with_keys([b"a"], Codec.ZSTD) + batch_with_keys([b"b"])
    inspected = inspect_batches(memoryview(batches), InspectionRules(BYTES_MAX, codec=Codec.ZSTD))
    second = read_header(inspected).size
    assert [read_header(inspected, at).codec for at in (0, second)] == [Codec.ZSTD] * 2
    assert [record.key for record in iter_records(inspected, second, bytes_max=BYTES_MAX)] == [b"b"]


def test_a_wrong_max_timestamp_is_corrected_if_records_are_decoded() -> None:
    batch = batch_at(5, 9, 7, codec=Codec.GZIP)
    seal(read_header(batch)._replace(max_timestamp=4_000), batch)
    inspected = inspect_batches(memoryview(batch), InspectionRules(BYTES_MAX, is_full=True))
    assert check_batch(inspected, 0, len(inspected)).max_timestamp == 9
    assert inspect_batches(memoryview(batch), NO_RULES)[:] == batch


def test_only_a_full_validation_decodes_the_headers_of_records() -> None:
    batch = build_batch([Record(key=b"k", headers=[("h", b"v")])])
    # The length of the header's value.
    batch[-2] = 0x7E
    seal(read_header(batch), batch)
    inspect_batches(memoryview(batch), KEYED)
    with pytest.raises(InvalidBatchError):
        inspect_batches(memoryview(batch), InspectionRules(BYTES_MAX, is_full=True))
