import pytest

from logbrook.core.groups.offsets import PendingOffsets
from logbrook.core.groups.records import OffsetValue
from logbrook.model.identifiers import LeaderEpoch, Offset, ProducerId
from tests.unit.core.groups.kit import T0, T1


def value(offset: int) -> OffsetValue:
    return OffsetValue(Offset(offset), LeaderEpoch(-1), "", commit_timestamp_ms=0)


@pytest.fixture
def pending() -> PendingOffsets:
    """Producer 1 before producer 2 in one partition, and producer 1 alone in the other."""
    offsets = PendingOffsets()
    offsets.add(ProducerId(1), T0, value(10))
    offsets.add(ProducerId(1), T1, value(11))
    offsets.add(ProducerId(2), T0, value(20))
    offsets.validate()
    return offsets


def test_a_commit_gives_the_offsets_of_its_producer(pending: PendingOffsets) -> None:
    assert pending.commit(ProducerId(1)) == {T0: value(10), T1: value(11)}
    pending.validate()
    assert list(pending) == [T0], "the other producer's is newer, and undecided"
    assert pending.commit(ProducerId(2)) == {T0: value(20)}
    assert not pending


def test_a_pending_offset_older_than_a_committed_one_is_dropped(pending: PendingOffsets) -> None:
    assert pending.commit(ProducerId(2)) == {T0: value(20)}
    pending.validate()
    assert list(pending) == [T1]
    assert pending.commit(ProducerId(1)) == {T1: value(11)}
    assert not pending


def test_a_newer_offset_of_the_same_producer_takes_the_place_of_its_older_one(pending: PendingOffsets) -> None:
    pending.add(ProducerId(1), T0, value(30))
    pending.validate()
    assert pending.commit(ProducerId(2)) == {T0: value(20)}
    assert pending.commit(ProducerId(1)) == {T0: value(30), T1: value(11)}


def test_an_abort_drops_the_offsets_of_its_producer(pending: PendingOffsets) -> None:
    pending.abort(ProducerId(1))
    pending.validate()
    assert list(pending) == [T0]
    assert pending.commit(ProducerId(1)) == {}
    assert pending.commit(ProducerId(2)) == {T0: value(20)}


def test_an_offset_newer_than_all_pending_ones_drops_them(pending: PendingOffsets) -> None:
    pending.drop_partition(T0)
    pending.validate()
    assert T0 not in pending
    assert T1 in pending
    assert pending.commit(ProducerId(2)) == {}
    assert pending.commit(ProducerId(1)) == {T1: value(11)}


def test_an_end_without_pending_offsets_changes_nothing(pending: PendingOffsets) -> None:
    assert pending.commit(ProducerId(3)) == {}
    pending.abort(ProducerId(3))
    pending.validate()
    assert set(pending) == {T0, T1}
