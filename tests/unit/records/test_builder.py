"""Batches built from records, and rebuilt with some of them."""

from collections.abc import Sequence

import pytest

from logbrook.model.identifiers import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from logbrook.records.batch import HEADER_BYTES, BatchHeader, Codec, TimestampType, check_batch, check_produced
from logbrook.records.builder import build_batch, rebuild_batch
from logbrook.records.reader import iter_records
from logbrook.records.record import RawRecord, Record

BYTES_MAX = 1_000_000
RECORDS = [
    Record(b"k1", b"v1", [("h", b"x"), ("n", None)], 5_000),
    Record(None, b"v2", (), 9_000),
    Record(b"k3", None, (), 4_000),
    Record(b"", b"", [("", b"")], 5_000),
]


def checked(batch: bytearray) -> BatchHeader:
    return check_batch(memoryview(batch), 0, len(batch))


def read(batch: bytearray) -> list[RawRecord]:
    return list(iter_records(batch, bytes_max=BYTES_MAX))


def given(records: Sequence[RawRecord]) -> list[Record]:
    return [Record(record.key, record.value, record.headers, record.timestamp) for record in records]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_back_from_a_batch_as_they_were_given(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec, base_offset=Offset(70))
    assert given(read(batch)) == [record._replace(headers=tuple(record.headers)) for record in RECORDS]
    assert [record.offset for record in read(batch)] == [70, 71, 72, 73]
    check_produced(checked(batch))
    assert checked(batch).codec is codec


def test_the_base_timestamp_is_the_first_records_and_the_max_is_the_largest() -> None:
    header = checked(build_batch(RECORDS))
    assert (header.base_timestamp, header.max_timestamp) == (5_000, 9_000)


def test_every_option_reaches_the_header() -> None:
    header = checked(
        build_batch(
            RECORDS,
            leader_epoch=LeaderEpoch(3),
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            producer_id=ProducerId(10),
            producer_epoch=ProducerEpoch(2),
            base_sequence=40,
            transactional=True,
            control=True,
            delete_horizon_ms=8_000,
        )
    )
    assert (header.leader_epoch, header.timestamp_type) == (3, TimestampType.LOG_APPEND_TIME)
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (10, 2, 43)
    assert (header.is_transactional, header.is_control, header.delete_horizon_ms) == (True, True, 8_000)


def test_a_batch_has_no_producer_and_no_leader_unless_they_are_given() -> None:
    header = checked(build_batch(RECORDS))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (-1, -1, -1, -1)


def test_timestamps_survive_a_delete_horizon() -> None:
    batch = build_batch(RECORDS, delete_horizon_ms=6_000)
    assert [record.timestamp for record in read(batch)] == [5_000, 9_000, 4_000, 5_000]


@pytest.mark.parametrize("timestamps", [(-1, -1), (2**63 - 1, -(2**63)), (-(2**63), 2**63 - 1), (0, 2**62)])
def test_timestamps_of_any_distance_survive(timestamps: tuple[int, int]) -> None:
    batch = build_batch([Record(timestamp=timestamp) for timestamp in timestamps])
    assert tuple(record.timestamp for record in read(batch)) == timestamps
    rebuilt = rebuild_batch(checked(batch), read(batch), delete_horizon_ms=1_700_000_000_000)
    assert tuple(record.timestamp for record in read(rebuilt)) == timestamps


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_rebuilt_with_all_of_its_records_is_the_same(codec: Codec) -> None:
    batch = build_batch(
        RECORDS,
        codec=codec,
        base_offset=Offset(5),
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(1),
        base_sequence=2,
    )
    assert rebuild_batch(checked(batch), read(batch)) == batch


@pytest.mark.parametrize("codec", list(Codec))
def test_a_rebuilt_batch_keeps_offsets_producer_epoch_and_codec(codec: Codec) -> None:
    batch = build_batch(
        RECORDS,
        codec=codec,
        base_offset=Offset(50),
        leader_epoch=LeaderEpoch(4),
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(1),
        base_sequence=7,
        transactional=True,
    )
    before, records = checked(batch), read(batch)
    rebuilt = rebuild_batch(before, [records[0], records[2]])
    after = checked(rebuilt)
    assert read(rebuilt) == [records[0], records[2]]
    assert after.count == 2
    assert after.attributes == before.attributes
    for field in ("base_offset", "last_offset_delta", "leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(after, field) == getattr(before, field)


def test_the_max_timestamp_of_a_rebuilt_batch_is_that_of_the_records_kept() -> None:
    batch = build_batch(RECORDS)
    records = read(batch)
    assert checked(rebuild_batch(checked(batch), [records[0], records[2]])).max_timestamp == 5_000
    assert checked(rebuild_batch(checked(batch), [records[2]])).max_timestamp == 4_000


def test_the_max_timestamp_stays_when_it_is_the_append_time() -> None:
    batch = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    records = read(batch)
    rebuilt = rebuild_batch(checked(batch), records[2:], delete_horizon_ms=77)
    assert checked(rebuilt).max_timestamp == 9_000
    assert [record.timestamp for record in read(rebuilt)] == [9_000, 9_000]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_may_lose_all_of_its_records_and_still_cover_its_offsets(codec: Codec) -> None:
    batch = build_batch(
        RECORDS,
        codec=codec,
        base_offset=Offset(50),
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(1),
        base_sequence=7,
    )
    before = checked(batch)
    emptied = rebuild_batch(before, [])
    after = checked(emptied)
    assert len(emptied) == HEADER_BYTES
    assert read(emptied) == []
    assert (after.count, after.next_offset, after.last_sequence) == (0, before.next_offset, before.last_sequence)
    assert after.max_timestamp == before.max_timestamp
    assert after.codec is Codec.NONE


def test_a_delete_horizon_is_set_and_no_timestamp_changes() -> None:
    for codec in Codec:
        batch = build_batch(RECORDS, codec=codec)
        records = read(batch)
        rebuilt = rebuild_batch(checked(batch), records[1:], delete_horizon_ms=1_700_000_000_000)
        assert checked(rebuilt).delete_horizon_ms == 1_700_000_000_000
        assert checked(rebuilt).max_timestamp == 9_000
        assert given(read(rebuilt)) == given(records[1:])
        assert [record.offset for record in read(rebuilt)] == [record.offset for record in records[1:]]


def test_a_delete_horizon_is_set_only_once() -> None:
    first = rebuild_batch(checked(batch := build_batch(RECORDS)), read(batch), delete_horizon_ms=1_000)
    for later in (None, 2_000):
        second = rebuild_batch(checked(first), read(first)[:2], delete_horizon_ms=later)
        assert checked(second).delete_horizon_ms == 1_000
        assert given(read(second)) == given(read(first)[:2])
