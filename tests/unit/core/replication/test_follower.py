"""A follower whose leader has removed records. `tests/scenarios/replication` has the other rules."""

import pytest

from logbrook.core.replication.follower import (
    NO_EPOCH,
    AppendFetched,
    EpochEnd,
    FollowerEffect,
    MoveHighWatermark,
    MoveLogStart,
    PartitionFollower,
    ReplicaFetch,
    StartAt,
    TruncateLog,
    find_divergence,
)
from logbrook.model.identifiers import BrokerId, LeaderEpoch, Offset

THREE, FIVE = LeaderEpoch(3), LeaderEpoch(5)


@pytest.fixture
def follower() -> PartitionFollower:
    return PartitionFollower(BrokerId(1), FIVE)


def test_a_follower_that_ends_before_the_leaders_log_starts_again_there(follower: PartitionFollower) -> None:
    assert follower.on_out_of_range(Offset(50), Offset(0), Offset(20)) == [StartAt(Offset(50))]


def test_an_empty_log_after_the_end_of_the_leaders_starts_again(follower: PartitionFollower) -> None:
    assert follower.on_out_of_range(Offset(5), Offset(20), Offset(20)) == [StartAt(Offset(5))]


@pytest.mark.parametrize(
    ("log_start_offset", "base_offset", "next_offset", "effects"),
    [
        (15, 10, 20, [StartAt(Offset(10))]),
        (15, 15, 20, []),
        # Not a batch that the leader returns for the end of this log.
        (15, 10, 15, []),
        (9, 10, 20, [TruncateLog(Offset(10))]),
        (12, 10, 20, [TruncateLog(Offset(12))]),
    ],
)
def test_a_log_that_ends_within_a_batch_makes_room_for_the_batch(
    follower: PartitionFollower,
    log_start_offset: int,
    base_offset: int,
    next_offset: int,
    effects: list[FollowerEffect],
) -> None:
    """The leader's log starts within it, too: clients have deleted its first records."""
    assert effects == follower.before_append(
        Offset(base_offset), Offset(next_offset), Offset(log_start_offset), Offset(15)
    )


def test_a_log_with_records_in_the_leaders_range_is_kept(follower: PartitionFollower) -> None:
    assert follower.on_out_of_range(Offset(5), Offset(0), Offset(20)) == []


def test_a_response_moves_high_watermark_and_log_start_up_to_the_log_end(follower: PartitionFollower) -> None:
    effects = follower.on_response(
        has_records=True,
        leader_high_watermark=Offset(40),
        leader_log_start_offset=Offset(35),
        high_watermark=Offset(10),
        log_start_offset=Offset(0),
        log_end_offset=Offset(30),
    )
    # In this order: what the leader has deleted was not compared, and must not become visible.
    assert effects == [AppendFetched(), MoveLogStart(Offset(30)), MoveHighWatermark(Offset(30))]


def test_a_follower_fetches_with_unsynced_records_only_below_the_high_watermark_of_this_leader(
    follower: PartitionFollower,
) -> None:
    assert not follower.may_fetch(Offset(30), Offset(20)), "the leader has not told its high watermark yet"
    follower.on_response(
        has_records=True,
        leader_high_watermark=Offset(40),
        leader_log_start_offset=Offset(0),
        high_watermark=Offset(10),
        log_start_offset=Offset(0),
        log_end_offset=Offset(30),
    )
    assert follower.may_fetch(Offset(39), Offset(20))
    assert not follower.may_fetch(Offset(40), Offset(39)), "the leader would add it to the ISR"
    assert follower.may_fetch(Offset(40), Offset(40))


def test_the_high_watermark_of_a_follower_does_not_fall(follower: PartitionFollower) -> None:
    effects = follower.on_response(
        has_records=False,
        leader_high_watermark=Offset(5),
        leader_log_start_offset=Offset(0),
        high_watermark=Offset(10),
        log_start_offset=Offset(0),
        log_end_offset=Offset(30),
    )
    assert effects == []


def test_an_epoch_that_retention_removed_at_the_leader_ends_where_its_log_begins() -> None:
    ahead = ReplicaFetch(Offset(150), THREE, FIVE, Offset(0))
    assert find_divergence(ahead, None, Offset(100)) == EpochEnd(THREE, Offset(100))
    assert find_divergence(ReplicaFetch(Offset(100), THREE, FIVE, Offset(0)), None, Offset(100)) is None


def test_an_empty_log_does_not_diverge() -> None:
    assert find_divergence(ReplicaFetch(Offset(0), NO_EPOCH, FIVE, Offset(0)), None, Offset(0)) is None


def test_a_log_without_a_common_epoch_is_truncated_to_its_start(follower: PartitionFollower) -> None:
    effects = follower.on_divergence(EpochEnd(THREE, Offset(50)), None, Offset(20), Offset(60), Offset(20))
    assert effects == [TruncateLog(Offset(20))]


def test_a_log_that_diverges_before_its_start_starts_again_with_the_leaders(follower: PartitionFollower) -> None:
    """The leader, elected uncleanly, has other records at the offsets that retention has removed here."""
    effects = follower.on_divergence(
        EpochEnd(THREE, Offset(90)), EpochEnd(THREE, Offset(120)), Offset(100), Offset(120), Offset(0)
    )
    assert effects == [StartAt(Offset(0))]


def test_a_log_of_a_later_epoch_than_the_leaders_last_is_truncated_to_its_start(follower: PartitionFollower) -> None:
    """All committed records were deleted; the leader's log ends where this one starts."""
    assert follower.on_divergence(EpochEnd(THREE, Offset(100)), None, Offset(100), Offset(101), Offset(0)) == [
        TruncateLog(Offset(100))
    ]


def test_a_log_that_agrees_up_to_its_start_is_truncated_there(follower: PartitionFollower) -> None:
    """All committed records were deleted, and the uncommitted ones are not the leader's, which has not deleted any yet.

    Starting again at the leader's start would drop a high watermark that clients know.
    """
    effects = follower.on_divergence(
        EpochEnd(THREE, Offset(100)), EpochEnd(THREE, Offset(101)), Offset(100), Offset(101), Offset(0)
    )
    assert effects == [TruncateLog(Offset(100))]


def test_a_log_that_retention_has_emptied_starts_again_if_it_diverges(follower: PartitionFollower) -> None:
    """It keeps its last epoch, so that the leader compares it."""
    for leader_log_start_offset in (Offset(0), Offset(100)):
        for own_end in (EpochEnd(THREE, Offset(100)), None):
            effects = follower.on_divergence(
                EpochEnd(THREE, Offset(90)), own_end, Offset(100), Offset(100), leader_log_start_offset
            )
            assert effects == [StartAt(leader_log_start_offset)]
