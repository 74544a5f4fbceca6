"""Offsets that are committed in transactions, over all groups."""

import pytest

from logbrook.core.coordinator import CoordinatorRecord, CorruptCoordinatorRecordError, ProducerIdentity
from logbrook.core.groups.errors import GroupIdNotFoundError
from logbrook.core.groups.group import GroupState
from logbrook.core.groups.messages import CommitRequest, FetchedOffset, OffsetToCommit
from logbrook.core.groups.offset_rules import SWEEP_INTERVAL_MS
from logbrook.core.groups.records import GroupKey, GroupMetadata, OffsetKey
from logbrook.core.groups.shard import GroupCoordinatorShard
from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.testing.seeded_random import SeededRandom
from tests.unit.core.groups.kit import T0, T1, Shell, a_commit, a_config, a_coordinator

PRODUCER_ID = ProducerId(9)


def commit(
    coordinator: GroupCoordinatorShard, offset: int, group_id: str = "g", now_ms: int = 0
) -> list[CoordinatorRecord]:
    """Return the records of an offset that a transaction commits."""
    request = CommitRequest(
        group_id,
        "",
        -1,
        [OffsetToCommit(T0, Offset(offset))],
        transactional=True,
        producer_id=PRODUCER_ID,
        producer_epoch=ProducerEpoch(0),
    )
    return coordinator.commit_offsets(request, now_ms).write.records


def replay(
    coordinator: GroupCoordinatorShard, records: list[CoordinatorRecord], producer_id: int = PRODUCER_ID
) -> None:
    for key, value in records:
        coordinator.replay(key, value, ProducerIdentity(ProducerId(producer_id), ProducerEpoch(0)))
    coordinator.validate()


def offset_of(coordinator: GroupCoordinatorShard, group_id: str = "g") -> int:
    return coordinator.fetch_offsets(group_id, [T0])[T0].offset


@pytest.mark.parametrize(("is_commit", "expected"), [(True, 5), (False, -1)])
def test_an_end_decides_the_offsets_of_all_groups(is_commit: bool, expected: int) -> None:
    coordinator = a_coordinator()
    for group_id in ("g", "h"):
        replay(coordinator, commit(coordinator, 5, group_id))
        assert offset_of(coordinator, group_id) == -1
        assert coordinator.unstable_partitions(group_id) == {T0}
    coordinator.replay_marker(ProducerIdentity(PRODUCER_ID, ProducerEpoch(0)), is_commit=is_commit)
    coordinator.validate()
    for group_id in ("g", "h"):
        assert offset_of(coordinator, group_id) == expected
        assert coordinator.unstable_partitions(group_id) == frozenset()
    assert len(coordinator.list_groups()) == (2 if is_commit else 0)


def test_an_end_decides_nothing_of_other_producers() -> None:
    coordinator = a_coordinator()
    replay(coordinator, commit(coordinator, 5), producer_id=1)
    replay(coordinator, commit(coordinator, 6, "h"), producer_id=2)
    coordinator.replay_marker(ProducerIdentity(ProducerId(1), ProducerEpoch(0)), is_commit=True)
    coordinator.replay_marker(ProducerIdentity(ProducerId(3), ProducerEpoch(0)), is_commit=True)
    assert (offset_of(coordinator, "g"), offset_of(coordinator, "h")) == (5, -1)
    coordinator.replay_marker(ProducerIdentity(ProducerId(2), ProducerEpoch(0)), is_commit=True)
    assert offset_of(coordinator, "h") == 6


def test_an_end_that_comes_twice_decides_once() -> None:
    """A broker writes a marker again if it cannot know that it was written."""
    coordinator = a_coordinator()
    replay(coordinator, commit(coordinator, 5))
    coordinator.replay_marker(ProducerIdentity(PRODUCER_ID, ProducerEpoch(0)), is_commit=True)
    shell = Shell(coordinator)
    shell.write(coordinator.commit_offsets(a_commit(8), 0).write)
    coordinator.replay_marker(ProducerIdentity(PRODUCER_ID, ProducerEpoch(0)), is_commit=True)
    assert offset_of(coordinator) == 8


def test_a_group_that_is_deleted_meanwhile_does_not_reappear() -> None:
    coordinator = a_coordinator()
    shell = Shell(coordinator)
    replay(coordinator, commit(coordinator, 5))
    deletion = coordinator.delete_group("g")
    assert deletion.records == [(OffsetKey("g", T0).encode(), None)]
    shell.write(deletion)
    with pytest.raises(GroupIdNotFoundError):
        coordinator.delete_group("g")
    coordinator.replay_marker(ProducerIdentity(PRODUCER_ID, ProducerEpoch(0)), is_commit=True)
    assert coordinator.list_groups() == []


def test_deleting_a_topic_deletes_its_offsets_in_transactions() -> None:
    coordinator = a_coordinator()
    replay(coordinator, commit(coordinator, 5))
    (write,) = coordinator.delete_topic_offsets({"t"})
    Shell(coordinator).write(write)
    coordinator.replay_marker(ProducerIdentity(PRODUCER_ID, ProducerEpoch(0)), is_commit=True)
    assert offset_of(coordinator) == -1


def test_deleting_offsets_deletes_those_in_transactions() -> None:
    coordinator = a_coordinator()
    replay(coordinator, commit(coordinator, 5))
    deletion = coordinator.delete_offsets("g", [T0, T1])
    assert deletion.write.records == [(OffsetKey("g", T0).encode(), None)]


def test_a_group_with_offsets_in_a_transaction_is_kept_until_the_transaction_ends() -> None:
    coordinator = GroupCoordinatorShard(a_config(offsets_retention_ms=1_000), SeededRandom())
    shell = Shell(coordinator)
    metadata = GroupMetadata("consumer", 1, None, None, state_timestamp_ms=0, members=())
    coordinator.replay(GroupKey("g").encode(), metadata.encode())
    coordinator.finish_loading(now_ms=0)
    replay(coordinator, commit(coordinator, 5))
    for sweep in (1, 2):
        outcome = coordinator.tick(sweep * SWEEP_INTERVAL_MS)
        assert outcome.writes == []
    coordinator.replay_marker(ProducerIdentity(PRODUCER_ID, ProducerEpoch(0)), is_commit=False)
    assert coordinator.describe("g").state == GroupState.EMPTY
    shell.apply(coordinator.tick(3 * SWEEP_INTERVAL_MS))
    assert coordinator.describe("g").state == GroupState.DEAD


def test_a_commit_that_failed_leaves_no_trace() -> None:
    coordinator = a_coordinator()
    request = CommitRequest(
        "g",
        "",
        -1,
        [OffsetToCommit(T0, Offset(5))],
        transactional=True,
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
    )
    coordinator.append_refused(coordinator.commit_offsets(request, 0).write, 0)
    coordinator.validate()
    assert coordinator.list_groups() == []


def test_the_log_is_read_back_with_its_markers() -> None:
    writer = a_coordinator()
    loading = GroupCoordinatorShard(a_config(), SeededRandom())
    records = {offset: commit(writer, offset)[0] for offset in (1, 2, 3)}
    replay(loading, [records[1]], producer_id=7)
    loading.replay_marker(ProducerIdentity(ProducerId(7), ProducerEpoch(0)), is_commit=True)
    replay(loading, [records[2]], producer_id=7)
    loading.replay_marker(ProducerIdentity(ProducerId(7), ProducerEpoch(0)), is_commit=False)
    replay(loading, [records[3]], producer_id=8)
    loading.finish_loading(0)
    loading.validate()
    assert loading.fetch_offsets("g", None) == {T0: FetchedOffset(Offset(1))}
    assert loading.unstable_partitions("g") == {T0}
    loading.replay_marker(ProducerIdentity(ProducerId(8), ProducerEpoch(0)), is_commit=True)
    assert offset_of(loading) == 3


def test_a_group_whose_offsets_were_all_aborted_is_not_there_after_loading() -> None:
    loading = GroupCoordinatorShard(a_config(), SeededRandom())
    ((key, value),) = commit(a_coordinator(), 1)
    loading.replay(key, value, ProducerIdentity(ProducerId(7), ProducerEpoch(0)))
    loading.replay_marker(ProducerIdentity(ProducerId(7), ProducerEpoch(0)), is_commit=False)
    loading.finish_loading(0)
    loading.validate()
    assert loading.list_groups() == []


def test_other_records_in_a_transaction_count_at_once() -> None:
    coordinator = a_coordinator()
    Shell(coordinator).write(coordinator.commit_offsets(a_commit(8), 0).write)
    replay(coordinator, [(OffsetKey("g", T0).encode(), None)])
    assert coordinator.list_groups() == []
    coordinator.replay(b"\x00\x03of a kind to come", b"", ProducerIdentity(ProducerId(1), ProducerEpoch(0)))
    with pytest.raises(CorruptCoordinatorRecordError):
        coordinator.replay(OffsetKey("g", T0).encode(), b"\x00", ProducerIdentity(ProducerId(1), ProducerEpoch(0)))
    coordinator.validate()
    assert coordinator.list_groups() == []


def test_nothing_is_unstable_in_a_group_that_does_not_exist() -> None:
    assert a_coordinator().unstable_partitions("g") == frozenset()
