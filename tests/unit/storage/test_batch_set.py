"""The batches of one append: all checked before any is written, then given their offsets."""

from typing import Any, NamedTuple

import pytest

from logbrook.config import LogConfig
from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.records.batch import check_batch, iter_headers
from logbrook.records.errors import CorruptBatchError, InvalidBatchError, RecordsError
from logbrook.storage.batch_set import AppendOrigin, CheckedBatch, check_batches, stamp_batches
from logbrook.storage.errors import BatchTooLargeError
from tests.unit.storage.kit import BATCH_BYTES, NOW_MS, PARTITION, batch, marker, numbered


class BatchSet(NamedTuple):
    batches: list[CheckedBatch]
    records: int
    from_producers: bool


def checked(data: bytes | bytearray, origin: AppendOrigin = AppendOrigin.CLIENT, **settings: Any) -> BatchSet:
    return BatchSet(*check_batches(memoryview(data), PARTITION, LogConfig(**settings), origin))


def test_every_batch_is_found_with_its_place_and_its_header() -> None:
    batch_set = checked(batch(b"a", b"b") + batch(b"c"))
    assert [position for position, _ in batch_set.batches] == [0, len(batch(b"a", b"b"))]
    assert [header.count for _, header in batch_set.batches] == [2, 1]
    assert batch_set.records == 3


def test_it_is_known_whether_a_producer_has_to_be_asked_about() -> None:
    assert not checked(batch() + batch()).from_producers
    assert checked(batch() + batch(producer=(5, 0, 0))).from_producers


def test_an_empty_batch_set_is_refused() -> None:
    with pytest.raises(InvalidBatchError):
        checked(b"")


@pytest.mark.parametrize("bad", [batch()[:-1], bytes(100), batch()[:40]])
def test_one_bad_batch_spoils_all(bad: bytes) -> None:
    with pytest.raises(RecordsError):
        checked(batch() + bad)


def test_every_batch_is_measured() -> None:
    with pytest.raises(BatchTooLargeError) as raised:
        checked(batch() + batch(b"value!"), max_message_bytes=BATCH_BYTES)
    assert raised.value.size == BATCH_BYTES + 1


def test_a_coordinator_may_write_batches_that_a_client_may_not() -> None:
    data = marker(5)
    with pytest.raises(InvalidBatchError):
        checked(data)
    assert checked(data, AppendOrigin.COORDINATOR).records == 1


def test_a_marker_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="no version and type"):
        checked(batch(control=True, transactional=True, producer=(5, 0, -1)), AppendOrigin.COORDINATOR)


def test_offsets_are_given_one_after_the_other_and_the_checksums_still_hold() -> None:
    data = bytearray(b"".join(numbered(2)) + batch(b"a", b"b", timestamps=[7, 9]))
    placed = stamp_batches(memoryview(data), checked(data).batches, Offset(100), LeaderEpoch(4), None)
    assert placed == [(0, 100, NOW_MS), (BATCH_BYTES, 101, NOW_MS), (2 * BATCH_BYTES, 102, 9)]
    for position, header in iter_headers(data):
        assert header.leader_epoch == 4
        check_batch(memoryview(data), position, len(data))


def test_log_append_time_is_written_if_it_is_configured() -> None:
    data = batch(b"a", timestamps=[7])
    assert stamp_batches(memoryview(data), checked(data).batches, Offset(0), LeaderEpoch(0), 500) == [(0, 0, 500)]
    header = check_batch(memoryview(data), 0, len(data))
    assert header.max_timestamp == 500
