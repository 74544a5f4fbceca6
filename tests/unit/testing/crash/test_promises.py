"""After "begun" an outcome may be visible, after the second mark it must be."""

import pytest

from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.records.batch import stamp
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.crash import Promises
from logbrook.testing.crash.promises import (
    Acked,
    BatchWritten,
    CompactionBegun,
    CreateBegun,
    Created,
    DeleteBegun,
    Deleted,
    Presence,
    Refused,
    StartMoved,
    StartMoving,
    TruncateBegun,
    Truncated,
)
from logbrook.testing.crash.settings import EVENTS


def batch(offset: int, key: bytes = b"key", value: bytes = b"value") -> bytes:
    data = build_batch([Record(key, value)])
    stamp(data, 0, Offset(offset), LeaderEpoch(0))
    return bytes(data)


def created(*marks: object) -> Promises:
    return Promises([CreateBegun(EVENTS), Created(EVENTS), *marks])


def test_a_partition_may_be_there_while_it_is_made_or_deleted_and_must_be_in_between() -> None:
    promises = Promises([CreateBegun(EVENTS)])
    assert promises.partitions[EVENTS].presence is Presence.MAYBE
    promises.take(Created(EVENTS))
    assert promises.partitions[EVENTS].presence is Presence.REQUIRED
    promises.take(DeleteBegun(EVENTS))
    assert promises.partitions[EVENTS].presence is Presence.MAYBE
    promises.take(Deleted(EVENTS))
    assert EVENTS not in promises.partitions


def test_written_records_may_survive_and_acknowledged_ones_must() -> None:
    promises = created(BatchWritten(EVENTS, 0, batch(0)))
    assert promises.partitions[EVENTS].durable_end == 0
    promises.take(Acked(EVENTS, 0, 1))
    assert promises.partitions[EVENTS].durable_end == 1
    assert promises.partitions[EVENTS].batches == {0: [batch(0)]}


def test_a_refused_append_must_not_be_stored() -> None:
    first, second = batch(0, value=b"first"), batch(0, value=b"second")
    promises = created(BatchWritten(EVENTS, 0, first), Refused(EVENTS, 0, first), BatchWritten(EVENTS, 0, second))
    assert promises.partitions[EVENTS].batches == {0: [second]}


def test_a_log_may_start_anywhere_up_to_where_it_is_moved_until_that_is_done() -> None:
    promises = created(StartMoving(EVENTS, 5))
    promise = promises.partitions[EVENTS]
    assert (promise.start_min, promise.start_max) == (0, 5)
    promises.take(StartMoved(EVENTS, 4))
    assert (promise.start_min, promise.start_max) == (4, 4)


def test_a_truncation_releases_a_batch_whole_and_then_forbids_it() -> None:
    promises = created(BatchWritten(EVENTS, 0, batch(0)), BatchWritten(EVENTS, 1, batch(1)), Acked(EVENTS, 1, 4))
    promises.take(TruncateBegun(EVENTS, 2))
    assert promises.partitions[EVENTS].durable_end == 1
    assert set(promises.partitions[EVENTS].batches) == {0, 1}
    promises.take(Truncated(EVENTS, 1))
    assert set(promises.partitions[EVENTS].batches) == {0}


def test_a_record_that_was_cut_off_may_have_cost_the_older_ones_of_its_key() -> None:
    """A compaction removed them because of it, before it was truncated."""
    marks = [
        BatchWritten(EVENTS, 0, batch(0)),
        BatchWritten(EVENTS, 1, batch(1, b"other")),
        BatchWritten(EVENTS, 2, batch(2)),
    ]
    promises = created(*marks, Acked(EVENTS, 2, 3), CompactionBegun(EVENTS, 3, 0), TruncateBegun(EVENTS, 2))
    assert promises.partitions[EVENTS].cut_keys == {b"key": 2}
    promises.take(Truncated(EVENTS, 2))
    promises.take(Truncated(EVENTS, 1))
    assert promises.partitions[EVENTS].cut_keys == {b"key": 1, b"other": 1}


def test_a_copy_is_a_copy() -> None:
    promises = created()
    copy = promises.copy()
    copy.take(BatchWritten(EVENTS, 0, batch(0)))
    assert promises.partitions[EVENTS].batches == {}


def test_an_unknown_mark_is_refused() -> None:
    with pytest.raises(AssertionError, match="unknown mark"):
        Promises(["acked"])
