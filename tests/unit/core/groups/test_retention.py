from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.offset_rules import SWEEP_INTERVAL_MS, RetentionSweep, expire_offsets
from logbrook.core.groups.records import GroupKey, GroupMetadata, OffsetValue
from logbrook.model.identifiers import LeaderEpoch, Offset
from tests.unit.core.groups.kit import T0, a_config

CONFIG = a_config(offsets_retention_ms=1_000)
WRITTEN = GroupMetadata("consumer", 1, None, None, state_timestamp_ms=0, members=())


def a_group(state: GroupState, protocol_type: str | None = "consumer") -> Group:
    """Return a group with an offset that was committed at the time 0."""
    group = Group("g")
    group.state = state
    group.protocol_type = protocol_type
    group.offsets.replay(T0, OffsetValue(Offset(5), LeaderEpoch(-1), "", commit_timestamp_ms=0))
    return group


def test_nothing_expires_in_a_rebalance() -> None:
    for state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE):
        assert expire_offsets(a_group(state), CONFIG, 10**9) is None


def test_nothing_expires_while_members_read_unknown_topics() -> None:
    assert expire_offsets(a_group(GroupState.STABLE), CONFIG, 10**9) is None


def test_offsets_of_an_empty_group_expire_by_the_time_it_became_empty() -> None:
    group = a_group(GroupState.EMPTY)
    group.state_timestamp_ms = 500
    assert expire_offsets(group, CONFIG, 1_499) is None
    assert expire_offsets(group, CONFIG, 1_500) is not None


def test_without_an_empty_time_the_commit_time_starts_the_retention() -> None:
    group = a_group(GroupState.EMPTY)
    assert expire_offsets(group, CONFIG, 999) is None
    assert expire_offsets(group, CONFIG, 1_000) is not None


def test_a_group_that_was_never_written_needs_no_tombstone() -> None:
    write = expire_offsets(a_group(GroupState.EMPTY, protocol_type=None), CONFIG, 1_000)
    assert write is not None
    assert len(write.records) == 1


def test_an_empty_group_goes_with_its_last_offset() -> None:
    group = a_group(GroupState.EMPTY)
    group.written_metadata = WRITTEN
    write = expire_offsets(group, CONFIG, 1_000)
    assert write is not None
    assert write.records[-1] == (GroupKey("g").encode(), None)


def test_an_empty_group_stays_while_a_member_is_about_to_join() -> None:
    joining = a_group(GroupState.EMPTY)
    joining.written_metadata = WRITTEN
    joining.pending_members = {"m": 2_000}
    write = expire_offsets(joining, CONFIG, 1_000)
    assert write is not None
    assert len(write.records) == 1, "the offset goes, the group stays"


def test_a_sweep_takes_some_groups_per_step_until_it_is_through() -> None:
    sweep = RetentionSweep()
    assert sweep.next_ms is None
    sweep.start(0)
    ids = [f"g{number}" for number in range(2_500)]
    assert sweep.take_due(ids, SWEEP_INTERVAL_MS - 1) == []
    swept: list[str] = []
    steps = 0
    while sweep.next_ms == SWEEP_INTERVAL_MS:
        step = sweep.take_due(ids, SWEEP_INTERVAL_MS)
        assert len(step) <= 1_000
        swept += step
        steps += 1
    assert swept == ids
    assert steps == 3
    assert sweep.next_ms == 2 * SWEEP_INTERVAL_MS
