"""Offsets that are committed in transactions, over all groups."""

import pytest

from logbrook.core.groups import CommitRequest, CommittedOffset, GroupCoordinator, GroupState, OffsetToCommit, Record
from logbrook.core.groups.errors import CoordinatorLoadingError, CorruptGroupRecordError, GroupIdNotFoundError
from logbrook.core.groups.records import GroupKey, GroupMetadata, OffsetKey
from logbrook.core.groups.retention import SWEEP_INTERVAL_MS
from logbrook.testing.seeded_random import SeededRandom
from tests.unit.core.groups.kit import T0, T1, Shell, a_commit, a_config, a_coordinator

PRODUCER_ID = 9


def commit(coordinator: GroupCoordinator, offset: int, group_id: str = "g", now_ms: int = 0) -> list[Record]:
    """What is written for an offset that a transaction commits."""
    request = CommitRequest(
        group_id,
        "",
        -1,
        [OffsetToCommit(T0, offset)],
        transactional=True,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
    )
    return coordinator.commit_offsets(request, now_ms).write.records


def replay(coordinator: GroupCoordinator, records: list[Record], producer_id: int = PRODUCER_ID) -> None:
    for key, value in records:
        coordinator.replay_transactional(producer_id, key, value)
    coordinator.validate()


def offset_of(coordinator: GroupCoordinator, group_id: str = "g") -> int:
    return coordinator.fetch_offsets(group_id, [T0])[T0].offset


@pytest.mark.parametrize(("is_commit", "expected"), [(True, 5), (False, -1)])
def test_an_end_decides_the_offsets_of_all_groups(is_commit: bool, expected: int) -> None:
    coordinator = a_coordinator()
    for group_id in ("g", "h"):
        replay(coordinator, commit(coordinator, 5, group_id))
        assert offset_of(coordinator, group_id) == -1
        assert coordinator.unstable(group_id) == {T0}
    coordinator.end_transaction(PRODUCER_ID, is_commit=is_commit)
    coordinator.validate()
    for group_id in ("g", "h"):
        assert offset_of(coordinator, group_id) == expected
        assert coordinator.unstable(group_id) == frozenset()
    assert len(coordinator.list_groups()) == (2 if is_commit else 0)


def test_an_end_decides_nothing_of_other_producers() -> None:
    coordinator = a_coordinator()
    replay(coordinator, commit(coordinator, 5), producer_id=1)
    replay(coordinator, commit(coordinator, 6, "h"), producer_id=2)
    coordinator.end_transaction(1, is_commit=True)
    coordinator.end_transaction(3, is_commit=True)
    assert (offset_of(coordinator, "g"), offset_of(coordinator, "h")) == (5, -1)
    coordinator.end_transaction(2, is_commit=True)
    assert offset_of(coordinator, "h") == 6


def test_an_end_that_comes_twice_decides_once() -> None:
    """Markers are written again when a broker does not know whether it has written them."""
    coordinator = a_coordinator()
    replay(coordinator, commit(coordinator, 5))
    coordinator.end_transaction(PRODUCER_ID, is_commit=True)
    shell = Shell(coordinator)
    shell.write(coordinator.commit_offsets(a_commit(8), 0).write)
    coordinator.end_transaction(PRODUCER_ID, is_commit=True)
    assert offset_of(coordinator) == 8


def test_a_group_that_is_deleted_meanwhile_does_not_come_back() -> None:
    coordinator = a_coordinator()
    shell = Shell(coordinator)
    replay(coordinator, commit(coordinator, 5))
    deletion = coordinator.delete_group("g")
    assert deletion.records == [(OffsetKey("g", T0).encode(), None)]
    shell.write(deletion)
    with pytest.raises(GroupIdNotFoundError):
        coordinator.delete_group("g")
    coordinator.end_transaction(PRODUCER_ID, is_commit=True)
    assert coordinator.list_groups() == []


def test_deleting_a_topic_deletes_its_offsets_in_transactions() -> None:
    coordinator = a_coordinator()
    replay(coordinator, commit(coordinator, 5))
    (write,) = coordinator.delete_topic_offsets({"t"})
    Shell(coordinator).write(write)
    coordinator.end_transaction(PRODUCER_ID, is_commit=True)
    assert offset_of(coordinator) == -1


def test_deleting_offsets_deletes_those_in_transactions() -> None:
    coordinator = a_coordinator()
    replay(coordinator, commit(coordinator, 5))
    deletion = coordinator.delete_offsets("g", [T0, T1])
    assert deletion.write.records == [(OffsetKey("g", T0).encode(), None)]


def test_a_group_with_offsets_in_a_transaction_is_kept_until_the_transaction_ends() -> None:
    coordinator = a_coordinator(offsets_retention_ms=1_000)
    shell = Shell(coordinator)
    metadata = GroupMetadata("consumer", 1, None, None, state_timestamp_ms=0, members=())
    coordinator.replay(GroupKey("g").encode(), metadata.encode())
    replay(coordinator, commit(coordinator, 5))
    for sweep in (1, 2):
        outcome = coordinator.tick(sweep * SWEEP_INTERVAL_MS)
        assert outcome.writes == []
    coordinator.end_transaction(PRODUCER_ID, is_commit=False)
    assert coordinator.describe("g").state == GroupState.EMPTY
    shell.apply(coordinator.tick(3 * SWEEP_INTERVAL_MS))
    assert coordinator.describe("g").state == GroupState.DEAD


def test_a_commit_that_failed_leaves_no_trace() -> None:
    coordinator = a_coordinator()
    request = CommitRequest("g", "", -1, [OffsetToCommit(T0, 5)], transactional=True, producer_id=1, producer_epoch=0)
    coordinator.write_failed(coordinator.commit_offsets(request, 0).write, 0)
    coordinator.validate()
    assert coordinator.list_groups() == []


def test_the_log_is_read_back_with_its_markers() -> None:
    writer = a_coordinator()
    loading = GroupCoordinator(a_config(), SeededRandom())
    records = {offset: commit(writer, offset)[0] for offset in (1, 2, 3)}
    loading.replay_transactional(7, *records[1])
    loading.end_transaction(7, is_commit=True)
    loading.replay_transactional(7, *records[2])
    loading.end_transaction(7, is_commit=False)
    loading.replay_transactional(8, *records[3])
    with pytest.raises(CoordinatorLoadingError):
        loading.unstable("g")
    loading.finish_loading(0)
    loading.validate()
    assert loading.fetch_offsets("g", None) == {T0: CommittedOffset(1)}
    assert loading.unstable("g") == {T0}
    loading.end_transaction(8, is_commit=True)
    assert offset_of(loading) == 3


def test_a_group_whose_offsets_were_all_aborted_is_not_there_after_loading() -> None:
    loading = GroupCoordinator(a_config(), SeededRandom())
    ((key, value),) = commit(a_coordinator(), 1)
    loading.replay_transactional(7, key, value)
    loading.end_transaction(7, is_commit=False)
    loading.finish_loading(0)
    loading.validate()
    assert loading.list_groups() == []


def test_other_records_in_a_transaction_count_at_once() -> None:
    coordinator = a_coordinator()
    Shell(coordinator).write(coordinator.commit_offsets(a_commit(8), 0).write)
    replay(coordinator, [(OffsetKey("g", T0).encode(), None)])
    assert coordinator.list_groups() == []
    coordinator.replay_transactional(1, b"\x00\x03of a kind to come", b"")
    with pytest.raises(CorruptGroupRecordError):
        coordinator.replay_transactional(1, OffsetKey("g", T0).encode(), b"\x00")
    coordinator.validate()
    assert coordinator.list_groups() == []


def test_nothing_is_unstable_in_a_group_that_is_not_there() -> None:
    assert a_coordinator().unstable("g") == frozenset()
