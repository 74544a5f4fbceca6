"""The header of a batch: parsing, validation and stamping."""

from struct import pack_into
from typing import Any

import pytest

from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    SEQUENCE_MAX,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    TimestampType,
    advance_sequence,
    check_batch,
    check_produced,
    iter_headers,
    read_header,
    read_prefix,
    stamp,
    stamp_log_append_time,
)
from logbrook.records.builder import build_batch
from logbrook.records.errors import CorruptBatchError, InvalidBatchError, RecordsError, UnsupportedMagicError
from logbrook.records.reader import iter_records
from logbrook.records.record import Record

RECORDS = [
    Record(b"a", b"1", timestamp=1_000),
    Record(b"b", b"2", timestamp=3_000),
    Record(b"c", None, timestamp=2_000),
]


def batch(**options: Any) -> bytearray:
    return build_batch(RECORDS, **options)


def checked(data: bytes | bytearray) -> BatchHeader:
    return check_batch(memoryview(data), 0, len(data))


def produced(**fields: Any) -> BatchHeader:
    return read_header(batch())._replace(**fields)


def test_every_field_of_the_header_is_read_from_its_place() -> None:
    header = checked(
        batch(
            base_offset=2**40,
            leader_epoch=7,
            codec=Codec.ZSTD,
            producer_id=2**41,
            producer_epoch=5,
            base_sequence=99,
            transactional=True,
        )
    )
    assert (header.base_offset, header.leader_epoch, header.magic) == (2**40, 7, 2)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 3_000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**41, 5, 99)
    assert (header.count, header.last_offset_delta) == (3, 2)
    assert (header.last_offset, header.next_offset, header.last_sequence) == (2**40 + 2, 2**40 + 3, 101)
    assert (header.codec, header.timestamp_type) == (Codec.ZSTD, TimestampType.CREATE_TIME)
    assert (header.is_transactional, header.is_control, header.delete_horizon_ms) == (True, False, None)


def test_the_size_of_a_batch_counts_the_bytes_before_its_length_field() -> None:
    data = batch()
    assert read_header(data).size == len(data) == read_header(data).batch_length + LENGTH_PREFIX_BYTES
    assert read_prefix(data) == (0, len(data))


def test_sequences_wrap_to_zero_after_the_largest_int() -> None:
    assert advance_sequence(SEQUENCE_MAX, 1) == 0
    assert produced(base_sequence=SEQUENCE_MAX - 1, last_offset_delta=3).last_sequence == 1


def test_a_control_batch_and_a_delete_horizon_are_seen_in_the_attributes() -> None:
    header = read_header(batch(control=True, delete_horizon_ms=77))
    assert header.is_control
    assert header.delete_horizon_ms == 77


def test_headers_are_walked_from_batch_to_batch_and_a_partial_last_one_is_left_out() -> None:
    first, second = batch(base_offset=0), batch(base_offset=3)
    run = first + second + batch(base_offset=6)[:-1]
    places = [(position, header.base_offset) for position, header in iter_headers(run)]
    assert places == [(0, 0), (len(first), 3)]
    within = iter_headers(run, len(first), len(first) + len(second))
    assert [header.base_offset for _, header in within] == [3]
    assert list(iter_headers(run[: HEADER_BYTES - 1])) == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, HEADER_BYTES - LENGTH_PREFIX_BYTES - 1])
def test_a_walk_stops_at_an_impossible_length(length: int) -> None:
    data = batch()
    pack_into(">i", data, 8, length)
    with pytest.raises(CorruptBatchError, match="smaller than a batch header"):
        list(iter_headers(data))


def test_a_batch_cut_within_its_header_is_corrupt() -> None:
    data = batch()
    for size in range(HEADER_BYTES):
        with pytest.raises(CorruptBatchError, match=f"{size} bytes are left"):
            checked(data[:size])


def test_a_batch_cut_within_its_records_is_corrupt() -> None:
    with pytest.raises(CorruptBatchError, match="does not fit"):
        checked(batch()[:-1])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, HEADER_BYTES - LENGTH_PREFIX_BYTES - 1, 2**31 - 1])
def test_an_impossible_batch_length_is_corrupt(length: int) -> None:
    data = batch()
    pack_into(">i", data, 8, length)
    with pytest.raises(CorruptBatchError, match="does not fit"):
        checked(data)


@pytest.mark.parametrize("magic", [-128, -1, 0, 1, 3, 127])
def test_only_message_format_v2_is_supported(magic: int) -> None:
    data = batch()
    pack_into(">b", data, 16, magic)
    with pytest.raises(UnsupportedMagicError) as caught:
        checked(data)
    assert caught.value.magic == magic


def test_a_flipped_bit_anywhere_under_the_checksum_is_corrupt() -> None:
    data = batch()
    for bit in range(17 * 8, len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBatchError, match="CRC32C"):
            checked(data)
        data[bit // 8] ^= 1 << bit % 8


def test_a_batch_is_checked_where_it_stands_in_a_larger_buffer() -> None:
    data = batch(base_offset=9)
    buffer = memoryview(b"before" + data + b"after")
    assert check_batch(buffer, 6, len(buffer)).base_offset == 9
    assert check_batch(buffer, 6, 6 + len(data)).base_offset == 9
    with pytest.raises(CorruptBatchError):
        check_batch(buffer, 6, 6 + len(data) - 1)


def test_batches_that_clients_build_are_accepted() -> None:
    for codec in Codec:
        check_produced(checked(batch(codec=codec)))
    check_produced(checked(batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)))
    check_produced(checked(batch(producer_id=0, producer_epoch=0, base_sequence=SEQUENCE_MAX)))


@pytest.mark.parametrize("attributes", [0x80, 0x100, 0x4000, -0x8000])
def test_a_client_may_not_set_unknown_attributes(attributes: int) -> None:
    with pytest.raises(InvalidBatchError, match="unknown bits"):
        check_produced(produced(attributes=attributes))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_client_may_not_use_an_unknown_compression(codec: int) -> None:
    with pytest.raises(InvalidBatchError, match=f"compression type {codec}"):
        check_produced(produced(attributes=codec))


@pytest.mark.parametrize("bit", [CONTROL_BIT, DELETE_HORIZON_BIT, TIMESTAMP_TYPE_BIT])
def test_clients_cannot_set_the_header_fields_of_the_broker(bit: int) -> None:
    with pytest.raises(InvalidBatchError, match="clients may not write"):
        check_produced(produced(attributes=bit))


@pytest.mark.parametrize(
    ("count", "last_offset_delta"),
    [(0, -1), (0, 0), (-1, -2), (3, 3), (3, 1), (1, 2**31 - 1), (2**31 - 1, 0), (-(2**31), 2**31 - 1)],
)
def test_the_record_count_of_a_client_fits_its_last_offset_delta(count: int, last_offset_delta: int) -> None:
    with pytest.raises(InvalidBatchError, match="record count"):
        check_produced(produced(count=count, last_offset_delta=last_offset_delta))


@pytest.mark.parametrize("producer_id", [-2, -(2**63)])
def test_a_producer_id_below_none_is_refused(producer_id: int) -> None:
    with pytest.raises(InvalidBatchError, match="producer id"):
        check_produced(produced(producer_id=producer_id))


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1), (-1, -1), (-(2**15), 0), (0, -(2**31))])
def test_a_producer_with_an_id_has_an_epoch_and_a_sequence(epoch: int, sequence: int) -> None:
    with pytest.raises(InvalidBatchError, match="producer 5 sent"):
        check_produced(produced(producer_id=5, producer_epoch=epoch, base_sequence=sequence))


def test_a_transactional_batch_needs_a_producer_id() -> None:
    with pytest.raises(InvalidBatchError, match="no producer id"):
        check_produced(produced(attributes=TRANSACTIONAL_BIT))


def test_every_refusal_is_a_records_error() -> None:
    for error in (CorruptBatchError, InvalidBatchError, UnsupportedMagicError):
        assert issubclass(error, RecordsError)


def test_stamping_offset_and_epoch_leaves_the_checksum_good() -> None:
    data = bytearray(b"before") + batch()
    stamp(data, 6, Offset(2**50), LeaderEpoch(12))
    header = check_batch(memoryview(data), 6, len(data))
    assert (header.base_offset, header.leader_epoch) == (2**50, 12)
    assert data[:6] == b"before"


def test_stamping_the_append_time_gives_it_to_every_record_and_renews_the_checksum() -> None:
    data = batch(codec=Codec.LZ4)
    stamp_log_append_time(memoryview(data), 0, 5_555)
    header = checked(data)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 5_555)
    assert header.codec is Codec.LZ4
    assert [record.timestamp for record in iter_records(data, bytes_max=1_000)] == [5_555] * 3
