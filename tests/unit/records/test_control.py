"""The marker that ends a transaction."""

import pytest

from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.records.batch import check_batch, check_produced, read_header, renew_crc
from logbrook.records.builder import build_batch
from logbrook.records.control import Marker, build_marker, read_marker
from logbrook.records.errors import CorruptBatchError, InvalidBatchError, RecordsError
from logbrook.records.reader import iter_records
from logbrook.records.record import Record

COMMIT = b"\0\0\0\1"
VALUE = b"\0\0\0\0\0\5"


def control(*records: Record) -> bytearray:
    return build_batch(
        records, producer_id=ProducerId(7), producer_epoch=ProducerEpoch(1), transactional=True, control=True
    )


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_is_read_back_as_it_was_built(is_commit: bool) -> None:
    data = build_marker(ProducerId(7), ProducerEpoch(2), is_commit, 1234, coordinator_epoch=5)
    assert read_marker(data) == Marker(is_commit, 5)
    header = check_batch(memoryview(data), 0, len(data))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.count) == (7, 2, -1, 1)
    assert header.is_control
    assert header.is_transactional
    assert header.max_timestamp == 1234


def test_a_marker_has_the_bytes_that_kafka_gives_it() -> None:
    (record,) = iter_records(
        build_marker(ProducerId(7), ProducerEpoch(0), True, 0, coordinator_epoch=258), bytes_max=100
    )
    assert (record.key, record.value) == (b"\0\0\0\1", b"\0\0\0\0\1\2")
    (record,) = iter_records(
        build_marker(ProducerId(7), ProducerEpoch(0), False, 0, coordinator_epoch=-1), bytes_max=100
    )
    assert (record.key, record.value) == (b"\0\0\0\0", b"\0\0\xff\xff\xff\xff")


def test_clients_may_not_write_markers() -> None:
    with pytest.raises(InvalidBatchError):
        check_produced(read_header(build_marker(ProducerId(7), ProducerEpoch(0), True, 0, coordinator_epoch=0)))


def test_a_batch_of_data_is_no_marker() -> None:
    assert read_marker(build_batch([Record(COMMIT, VALUE)])) is None


@pytest.mark.parametrize("kind", [2, 3, 5, 100, -1])
def test_another_control_record_is_no_marker(kind: int) -> None:
    """Logs may contain other control records: leader changes and snapshot headers."""
    key = b"\0\0" + kind.to_bytes(2, "big", signed=True)
    assert read_marker(control(Record(key, b"anything"))) is None
    assert read_marker(control(Record(key, None), Record(key, None))) is None


def test_fields_of_a_later_version_are_not_looked_at() -> None:
    assert read_marker(control(Record(b"\0\1\0\1more", b"\0\2\0\0\0\5more"))) == Marker(True, 5)


@pytest.mark.parametrize(
    "record",
    [
        Record(None, VALUE),
        Record(b"", VALUE),
        Record(b"\0\0\0", VALUE),
        Record(b"\xff\xff\0\1", VALUE),
        Record(COMMIT, None),
        Record(COMMIT, VALUE[:5]),
        Record(COMMIT, b"\xff\xff\0\0\0\0"),
    ],
)
def test_a_malformed_marker_is_refused(record: Record) -> None:
    with pytest.raises(CorruptBatchError):
        read_marker(control(record))


def test_a_marker_stands_alone() -> None:
    with pytest.raises(CorruptBatchError, match="2 records"):
        read_marker(control(Record(COMMIT, VALUE), Record(COMMIT, VALUE)))


def test_a_huge_control_record_is_not_read() -> None:
    with pytest.raises(RecordsError):
        read_marker(control(Record(COMMIT, VALUE + bytes(100_000))))


def test_every_cut_and_every_flipped_bit_is_refused_or_read() -> None:
    good = bytes(build_marker(ProducerId(7), ProducerEpoch(0), True, 1234, coordinator_epoch=5))
    for length in range(len(good)):
        with pytest.raises(RecordsError):
            read_marker(good[:length])
    for position in range(len(good)):
        for bit in range(8):
            data = bytearray(good)
            data[position] ^= 1 << bit
            if position >= 21:
                renew_crc(memoryview(data), 0, len(data))
            try:
                read_marker(data)
            except RecordsError:
                continue
