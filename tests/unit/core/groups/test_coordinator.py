"""Group coordinator beyond the scenarios: edge cases of the interface, record formats and bounds."""

import re

import pytest

from logbrook.core.coordinator import CoordinatorNotAvailableError, CorruptCoordinatorRecordError
from logbrook.core.groups.errors import (
    FencedInstanceIdError,
    GroupError,
    IllegalGenerationError,
    InvalidGroupIdError,
    MemberIdRequiredError,
    OversizedFieldError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from logbrook.core.groups.group import GroupState
from logbrook.core.groups.messages import (
    CommitRequest,
    JoinRequest,
    JoinResult,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from logbrook.core.groups.records import GroupKey, OffsetKey, decode_key
from logbrook.core.groups.shard import GroupCoordinatorShard
from logbrook.model.identifiers import Offset
from logbrook.testing.seeded_random import SeededRandom
from tests.unit.core.groups.kit import T0, T1, Shell, a_commit, a_config, a_coordinator, a_join, refusal

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def test_a_member_id_is_the_client_id_and_a_uuid() -> None:
    joined = Shell(a_coordinator()).join(1, a_join("app"))
    assert isinstance(joined, JoinResult)
    assert re.fullmatch(f"app-{UUID}", joined.member_id)


def test_a_static_member_id_is_the_instance_id_and_a_uuid() -> None:
    joined = Shell(a_coordinator()).join(1, a_join("app", instance_id="worker-1"))
    assert isinstance(joined, JoinResult)
    assert re.fullmatch(f"worker-1-{UUID}", joined.member_id)


def test_a_member_id_fits_a_string_however_long_the_client_id_is() -> None:
    shell = Shell(a_coordinator())
    joined = shell.join(1, a_join("x" * 32_767))
    assert isinstance(joined, JoinResult)
    assert len(joined.member_id) < 300
    assert isinstance(shell.sync(2, SyncRequest("g", 1, joined.member_id)), SyncResult)


def test_the_same_seed_gives_the_same_member_ids() -> None:
    first, second = (Shell(a_coordinator()).join(1, a_join("app")) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "join",
    [
        a_join("x" * 32_768),
        a_join("é" * 20_000),
        a_join(instance_id="x" * 40_000),
        a_join(protocol_type="x" * 40_000),
        a_join(protocols=(("a", b""), ("x" * 40_000, b""))),
    ],
    ids=["client id", "characters of two bytes", "instance id", "protocol type", "protocol name"],
)
def test_a_string_too_long_for_a_record_is_refused(join: JoinRequest) -> None:
    shell = Shell(a_coordinator())
    assert refusal(shell.join(1, join)) is OversizedFieldError
    assert shell.coordinator.list_groups() == []


@pytest.mark.parametrize("group_id", ["", "x" * 32_768])
def test_an_invalid_group_id_is_refused(group_id: str) -> None:
    shell = Shell(a_coordinator())
    assert refusal(shell.join(1, a_join(group_id=group_id))) is InvalidGroupIdError
    assert refusal(shell.sync(2, SyncRequest(group_id, 1, "m"))) is InvalidGroupIdError
    with pytest.raises(InvalidGroupIdError):
        shell.coordinator.heartbeat(group_id, 1, "m", None, 0)
    with pytest.raises(InvalidGroupIdError):
        shell.coordinator.leave(group_id, [LeavingMember("m")], 0)
    with pytest.raises(InvalidGroupIdError):
        shell.coordinator.delete_offsets(group_id, [T0])


def test_the_largest_assignment_that_a_leader_sends_comes_back_whole() -> None:
    shell = Shell(a_coordinator())
    joined = shell.join(1, a_join())
    assert isinstance(joined, JoinResult)
    assignment = bytes(1_000_000)
    result = shell.sync(2, SyncRequest("g", 1, joined.member_id, assignments=[(joined.member_id, assignment)]))
    assert result == SyncResult("consumer", "range", assignment)


def test_an_assignment_for_an_unknown_member_is_ignored() -> None:
    shell = Shell(a_coordinator())
    joined = shell.join(1, a_join())
    assert isinstance(joined, JoinResult)
    result = shell.sync(2, SyncRequest("g", 1, joined.member_id, assignments=[("stranger", b"all")]))
    assert result == SyncResult("consumer", "range", b"")


def test_a_sync_with_another_protocol_type_is_refused() -> None:
    shell = Shell(a_coordinator())
    joined = shell.join(1, a_join())
    assert isinstance(joined, JoinResult)
    result = shell.sync(2, SyncRequest("g", 1, joined.member_id, protocol_type="connect"))
    assert isinstance(result, GroupError)
    assert isinstance(shell.sync(3, SyncRequest("g", 1, joined.member_id, protocol_type="consumer")), SyncResult)


def test_a_heartbeat_of_a_new_member_with_a_pending_join_starts_its_session_timeout() -> None:
    """The heartbeat starts its session timeout, which is earlier than the deadline that is queued."""
    coordinator = a_coordinator(initial_rebalance_delay_ms=100_000)
    required = coordinator.join(JoinRequest("g", "", "c", "", 6_000, 6_000, "consumer", [("r", b"")], None, True), 1, 0)
    error = required.replies[0].result
    assert isinstance(error, MemberIdRequiredError)
    coordinator.join(JoinRequest("g", error.member_id, "c", "", 6_000, 6_000, "consumer", [("r", b"")]), 2, 0)
    coordinator.tick(6_000)
    assert coordinator.next_deadline_ms() == 100_000
    with pytest.raises(RebalanceInProgressError):
        coordinator.heartbeat("g", 0, error.member_id, None, now_ms=10_000)
    coordinator.validate()
    assert coordinator.next_deadline_ms() == 16_000


def test_a_tick_before_anything_is_due_does_nothing() -> None:
    shell = Shell(a_coordinator())
    shell.stable_member()
    deadline_ms = shell.coordinator.next_deadline_ms()
    assert deadline_ms == 10_000
    outcome = shell.coordinator.tick(deadline_ms - 1)
    assert not outcome.writes
    assert not outcome.replies
    assert shell.coordinator.next_deadline_ms() == deadline_ms


def test_no_member_times_out_during_a_grace_period() -> None:
    shell = Shell(a_coordinator())
    member = shell.stable_member()
    shell.coordinator.begin_grace(50_000)
    shell.coordinator.validate()
    shell.apply(shell.coordinator.tick(49_999))
    assert shell.coordinator.next_deadline_ms() == 50_000
    # A rebalance waits for the member, and not for one that is not there.
    shell.join("second", a_join("d", rebalance_timeout_ms=60_000))
    shell.coordinator.begin_grace(100_000)
    shell.apply(shell.coordinator.tick(99_999))
    assert "second" not in shell.results
    shell.now_ms = 99_999
    shell.join("again", a_join(member_id=member.member_id))
    assert {type(shell.results[reply]) for reply in ("second", "again")} == {JoinResult}
    shell.coordinator.validate()


def test_the_first_rebalance_of_a_group_does_not_wait_for_the_end_of_a_grace_period() -> None:
    shell = Shell(a_coordinator(initial_rebalance_delay_ms=3_000))
    shell.join("first", a_join())
    shell.coordinator.begin_grace(100_000)
    shell.coordinator.validate()
    shell.apply(shell.coordinator.tick(3_000))
    assert isinstance(shell.results["first"], JoinResult)


def test_a_late_tick_does_all_that_was_due() -> None:
    shell = Shell(a_coordinator())
    silent = shell.stable_member()
    shell.join("waiting", a_join("d"))
    shell.apply(shell.coordinator.tick(200_000))
    shell.coordinator.validate()
    joined = shell.results["waiting"]
    assert isinstance(joined, JoinResult)
    assert joined.leader_id == joined.member_id
    with pytest.raises(UnknownMemberIdError):
        shell.coordinator.heartbeat("g", silent.generation, silent.member_id, None, 200_000)


def test_a_rebalance_timeout_of_nothing_or_less_does_not_spin() -> None:
    shell = Shell(a_coordinator())
    joined = shell.join(1, a_join(instance_id="i", rebalance_timeout_ms=-1))
    assert isinstance(joined, JoinResult)
    shell.sync(2, SyncRequest("g", 1, joined.member_id, "i"))
    shell.join(3, a_join("d", rebalance_timeout_ms=0))
    ticks = 0
    while (deadline_ms := shell.coordinator.next_deadline_ms()) is not None and deadline_ms < 60_000:
        shell.now_ms = max(shell.now_ms, deadline_ms)
        shell.apply(shell.coordinator.tick(shell.now_ms))
        shell.coordinator.validate()
        ticks += 1
    assert ticks < 30


def test_disconnecting_an_idle_member_changes_nothing() -> None:
    shell = Shell(a_coordinator())
    shell.stable_member()
    shell.coordinator.disconnect("first join", 0)
    shell.coordinator.disconnect("never heard of", 0)
    shell.coordinator.validate()
    assert shell.coordinator.describe("g").state == "Stable"


def test_a_commit_writes_one_record_per_partition_and_acknowledges_nothing_by_itself() -> None:
    coordinator = a_coordinator()
    decision = coordinator.commit_offsets(
        CommitRequest("g", "", -1, [OffsetToCommit(T0, Offset(5)), OffsetToCommit(T1, Offset(6))]), now_ms=9
    )
    assert [decode_key(key) for key, _ in decision.write.records] == [OffsetKey("g", T0), OffsetKey("g", T1)]
    assert decision.errors == {}
    assert coordinator.fetch_offsets("g", None) == {}


def test_transactional_commits_of_old_clients_have_no_member_and_pass_in_a_rebalance() -> None:
    shell = Shell(a_coordinator())
    joined = shell.join(1, a_join())
    assert isinstance(joined, JoinResult)
    offsets = [OffsetToCommit(T0, Offset(5))]
    shell.coordinator.commit_offsets(CommitRequest("g", "", -1, offsets, transactional=True), 0)
    shell.coordinator.commit_offsets(CommitRequest("g", joined.member_id, 1, offsets, transactional=True), 0)
    with pytest.raises(IllegalGenerationError):
        shell.coordinator.commit_offsets(CommitRequest("g", joined.member_id, 9, offsets, transactional=True), 0)
    assert shell.join(2, a_join("s", instance_id="i")) is None
    with pytest.raises(FencedInstanceIdError):
        shell.coordinator.commit_offsets(CommitRequest("g", "old", 1, offsets, "i", transactional=True), 0)


def test_a_write_that_failed_is_answered_as_retriable_and_leaves_no_trace() -> None:
    coordinator = a_coordinator()
    decision = coordinator.commit_offsets(a_commit(5), now_ms=0)
    assert coordinator.list_groups() == []
    assert coordinator.append_refused(decision.write, 0).replies == []
    assert coordinator.list_groups() == []


def test_a_group_that_becomes_empty_before_its_first_assignment_keeps_its_generation() -> None:
    shell = Shell(a_coordinator())
    joined = shell.join(1, a_join())
    assert isinstance(joined, JoinResult)
    shell.apply(shell.coordinator.leave("g", [LeavingMember(joined.member_id, None)], 0)[1])
    assert shell.coordinator.describe("g").state == GroupState.EMPTY
    shell.coordinator.validate()
    joined_next = shell.join(2, a_join())
    assert isinstance(joined_next, JoinResult)
    assert (joined.generation, joined_next.generation) == (1, 3)


def test_a_group_whose_first_metadata_cannot_be_written_is_removed_when_it_is_empty() -> None:
    shell = Shell(a_coordinator())
    joined = shell.join(1, a_join())
    assert isinstance(joined, JoinResult)
    _, outcome = shell.coordinator.leave("g", [LeavingMember(joined.member_id, None)], 0)
    assert shell.coordinator.append_refused(outcome.writes[0], 0).writes == []
    assert shell.coordinator.list_groups() == []
    shell.coordinator.validate()


def test_a_failed_takeover_of_a_static_member_makes_the_group_rebalance() -> None:
    shell = Shell(a_coordinator())
    joined = shell.join(1, a_join(instance_id="i"))
    assert isinstance(joined, JoinResult)
    shell.sync(2, SyncRequest("g", 1, joined.member_id, "i"))
    outcome = shell.coordinator.join(a_join(instance_id="i"), 3, 0)
    assert outcome.replies == []
    failed = shell.coordinator.append_refused(outcome.writes[0], 0)
    assert [(reply.reply_to, type(reply.result)) for reply in failed.replies] == [(3, CoordinatorNotAvailableError)]
    assert shell.coordinator.describe("g").state == "PreparingRebalance"
    shell.coordinator.validate()


def test_no_timer_runs_before_the_log_has_been_read() -> None:
    coordinator = GroupCoordinatorShard(a_config(), SeededRandom())
    assert coordinator.next_deadline_ms() is None
    assert coordinator.tick(10**12).writes == []


def test_a_record_that_does_not_read_changes_nothing() -> None:
    coordinator = a_coordinator()
    for key, value in (
        (b"", b""),
        (b"\xff\xff", None),
        (GroupKey("g").encode(), b"rubbish"),
        (OffsetKey("g", T0).encode(), b"\x00\x03"),
    ):
        with pytest.raises(CorruptCoordinatorRecordError):
            coordinator.replay(key, value)
    assert coordinator.list_groups() == []


def test_records_of_other_kinds_are_skipped() -> None:
    coordinator = a_coordinator()
    coordinator.replay(b"\x00\x03anything", b"anything")
    assert coordinator.list_groups() == []


def test_tombstones_in_the_log_remove_their_entries() -> None:
    shell = Shell(a_coordinator())
    shell.write(shell.coordinator.commit_offsets(a_commit(5), 0).write)
    shell.write(shell.coordinator.delete_group("g"))
    fresh = GroupCoordinatorShard(a_config(), SeededRandom())
    for key, value in shell.log:
        fresh.replay(key, value)
    fresh.finish_loading(0)
    fresh.validate()
    assert fresh.list_groups() == []


def test_groups_can_be_listed_by_state() -> None:
    shell = Shell(a_coordinator())
    shell.stable_member()
    shell.write(shell.coordinator.commit_offsets(CommitRequest("h", "", -1, [OffsetToCommit(T0, Offset(1))]), 0).write)
    assert [group.group_id for group in shell.coordinator.list_groups()] == ["g", "h"]
    assert [group.group_id for group in shell.coordinator.list_groups(["stable"])] == ["g"]
    assert [group.group_id for group in shell.coordinator.list_groups(["EMPTY", "Dead"])] == ["h"]


def test_a_group_that_does_not_exist_is_dead() -> None:
    description = a_coordinator().describe("nobody")
    assert (description.state, description.members) == ("Dead", ())


def test_a_thousand_members_rebalance() -> None:
    shell = Shell(a_coordinator(initial_rebalance_delay_ms=3_000))
    for number in range(1_000):
        shell.join(("join", number), a_join(f"c{number}"))
    shell.now_ms = 3_000
    shell.apply(shell.coordinator.tick(3_000))
    while (deadline_ms := shell.coordinator.next_deadline_ms()) is not None and ("join", 0) not in shell.results:
        shell.now_ms = deadline_ms
        shell.apply(shell.coordinator.tick(deadline_ms))
    joined = [shell.results["join", number] for number in range(1_000)]
    leader = joined[0]
    assert isinstance(leader, JoinResult)
    assert len(leader.members) == 1_000
    for number in reversed(range(1_000)):
        result = joined[number]
        assert isinstance(result, JoinResult)
        shell.sync(("sync", number), SyncRequest("g", 1, result.member_id))
    assert isinstance(shell.results["sync", 999], SyncResult)
    shell.coordinator.validate()
