"""The replication model finds no violation in the real rules, and finds every planted bug."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest

from logbrook.core.cluster import elections, partition
from logbrook.core.cluster.image import ClusterImage, PartitionKey
from logbrook.core.cluster.partition import PartitionRegistration
from logbrook.core.replication import follower as follower_rules
from logbrook.core.replication.leader import (
    UNKNOWN_OFFSET,
    AdvanceHighWatermark,
    FollowerProgress,
    LeaderEffect,
    PartitionLeader,
)
from logbrook.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from logbrook.ports.metadata_store import StoreTransaction
from logbrook.testing.replication import cluster as replication_cluster
from logbrook.testing.replication import model as replication_model
from logbrook.testing.replication.__main__ import main
from logbrook.testing.replication.campaign import CampaignFailureError, ModelSchedule, run_seeds
from logbrook.testing.replication.model import ReplicationModel
from logbrook.testing.replication.state import ModelFaults, ModelViolationError

SEEDS_MAX = 2_000
ADVANCE = PartitionLeader._advance


def test_random_schedules_break_no_promise() -> None:
    assert run_seeds(0, 300) is None


@pytest.mark.long
def test_many_random_schedules_break_no_promise() -> None:
    assert run_seeds(1_000_000, 20_000) is None


def test_a_seed_decides_everything() -> None:
    first, second = ModelSchedule(7), ModelSchedule(7)
    first.run()
    second.run()
    assert first.steps == second.steps
    assert first.model.registration == second.model.registration
    assert first.model.acknowledged == second.model.acknowledged
    assert first.steps != ModelSchedule(8).steps


# Planted bugs. Each is found within SEEDS_MAX schedules; those that take more than some hundred are long tests.


@pytest.mark.parametrize(
    "fault",
    [
        # KIP-101: records below the high watermark of the leader, which the follower does not know yet.
        "truncates_by_high_watermark",
        pytest.param("reports_unsynced_offsets", marks=pytest.mark.long),
        "leads_on_after_restart",
        "keeps_isr_with_replaced_disk",
        "acknowledges_when_appended",
        pytest.param("applies_isr_without_store", marks=pytest.mark.long),
        "reads_follower_past_high_watermark",
        "shows_unknown_offsets",
        "ignores_leader_epochs",
        # KIP-903: a fetch of an earlier life of the follower, which may have lost its disk since.
        "ignores_broker_epochs",
        # Fetches that were sent before a repair report what the replica has lost.
        "repairs_without_epoch",
    ],
)
def test_a_planted_bug_of_a_broker_is_found(fault: str) -> None:
    failure = run_seeds(0, SEEDS_MAX, ModelFaults(**{fault: True}))
    assert failure is not None, f"{fault} was not found in {SEEDS_MAX} schedules"


def elects_any_replica(
    before: PartitionRegistration,
    candidate: BrokerId,
    broker_epoch: BrokerEpoch,
    live: Collection[BrokerId],
    min_insync: int,
    *,
    is_damaged: bool,
) -> PartitionRegistration | None:
    del live, min_insync, is_damaged
    return partition.elect_unclean(before, candidate, broker_epoch) if candidate in before.replicas else None


def elects_eligible_ones_too_early(
    before: PartitionRegistration,
    candidate: BrokerId,
    broker_epoch: BrokerEpoch,
    live: Collection[BrokerId],
    min_insync: int,
    *,
    is_damaged: bool,
) -> PartitionRegistration | None:
    """A replica that left the ISR keeps its eligibility although the high watermark has moved."""
    left = set(before.replicas) - set(before.isr)
    before = replace(before, elr=tuple(left))
    return partition.take_over(before, candidate, broker_epoch, live, min_insync, is_damaged=is_damaged)


def commits_while_others_are_eligible(self: PartitionRegistration, min_insync: int) -> bool:
    return len(self.isr) >= self.insync_min(min_insync)


def commits_below_the_minimum(self: PartitionRegistration, min_insync: int) -> bool:
    del self, min_insync
    return True


def counts_only_the_old_isr(self: PartitionLeader) -> list[LeaderEffect]:
    """KIP-497: the proposed members may be in sync already."""
    proposed, self._proposed = self._proposed, None
    try:
        return ADVANCE(self)
    finally:
        self._proposed = proposed


on_divergence = follower_rules.PartitionFollower.on_divergence


def counts_only_the_new_isr(self: PartitionLeader) -> list[LeaderEffect]:
    registration = self.registration
    if self._proposed is not None:
        self.registration = self._proposed.registration
    try:
        return ADVANCE(self)
    finally:
        self.registration = registration


def follows_the_synced_ends(self: PartitionLeader) -> list[LeaderEffect]:
    """The high watermark falls with the least synced end, for example when fetches arrive in another order."""
    if not self.registration.may_commit(self.min_insync):
        return []
    members = {*self.registration.isr, *(self._proposed.registration.isr if self._proposed is not None else ())}
    offset = min(self._synced_end_of(replica) for replica in members)
    if offset in (UNKNOWN_OFFSET, self.high_watermark):
        return []
    self.high_watermark = offset
    return [AdvanceHighWatermark(offset)]


def joins_below_the_epoch_start(self: PartitionLeader, progress: FollowerProgress) -> bool:
    return progress.synced_end_offset >= self.high_watermark


def joins_anywhere(self: PartitionLeader, progress: FollowerProgress) -> bool:
    del self
    return progress.synced_end_offset >= 0


def acknowledges_deletions_of_the_leader_alone(self: PartitionLeader, offset: Offset) -> bool:
    del self, offset
    return True


def joins_without_deletions(self: PartitionLeader, progress: FollowerProgress) -> bool:
    return progress.synced_end_offset >= max(self.high_watermark, self.epoch_start_offset)


def takes_any_life_for_the_leader(self: ClusterImage, registration: PartitionRegistration) -> bool:
    """A leader that has restarted leads nothing, and nobody takes over from it."""
    return registration.has_leader and registration.leader in self.brokers


def finds_no_divergence(*_arguments: Any) -> None:
    """Take every log for a prefix of the leader's."""


def keeps_the_leader_epoch(
    before: PartitionRegistration, leader: BrokerId, broker_epoch: BrokerEpoch
) -> PartitionRegistration:
    return replace(before, leader=leader, leader_broker_epoch=broker_epoch)


def ignores_the_epoch_of_the_divergence(
    self: follower_rules.PartitionFollower,
    divergence: follower_rules.EpochEnd,
    own_end: follower_rules.EpochEnd | None,
    log_start_offset: Offset,
    log_end_offset: Offset,
    leader_log_start_offset: Offset,
) -> list[follower_rules.FollowerEffect]:
    """KIP-279: after two quick elections the end of the leader's epoch is not the end of the common records."""
    del self, own_end, leader_log_start_offset
    return [follower_rules.TruncateLog(Offset(max(log_start_offset, min(divergence.end_offset, log_end_offset))))]


def restarts_where_the_logs_agree(
    self: follower_rules.PartitionFollower,
    divergence: follower_rules.EpochEnd,
    own_end: follower_rules.EpochEnd | None,
    log_start_offset: Offset,
    log_end_offset: Offset,
    leader_log_start_offset: Offset,
) -> list[follower_rules.FollowerEffect]:
    """A log whose committed records were all deleted is emptied, instead of truncated to its start."""
    effects = on_divergence(self, divergence, own_end, log_start_offset, log_end_offset, leader_log_start_offset)
    is_whole = effects == [follower_rules.TruncateLog(log_start_offset)]
    return [follower_rules.StartAt(leader_log_start_offset)] if is_whole else effects


def starts_within_a_batch(*_arguments: Any) -> list[follower_rules.FollowerEffect]:
    """The log cannot take the batch that the leader sends."""
    return []


def compares_offsets_only(
    fetch: follower_rules.ReplicaFetch, own_end: follower_rules.EpochEnd | None, first_epoch_start: Offset
) -> follower_rules.EpochEnd | None:
    """Two logs of the same length need not have the same records."""
    del first_epoch_start
    if own_end is None or own_end.end_offset >= fetch.offset or fetch.last_epoch == follower_rules.NO_EPOCH:
        return None
    return follower_rules.EpochEnd(LeaderEpoch(fetch.last_epoch), own_end.end_offset)


def lets_any_life_join(
    key: PartitionKey,
    partition_epoch: int,
    after: PartitionRegistration,
    broker_id: BrokerId,
    broker_epoch: BrokerEpoch,
    joining: Iterable[tuple[BrokerId, BrokerEpoch]] = (),
) -> StoreTransaction:
    """KIP-903: the follower may have lost its disk since it has caught up, and its leader may not know it yet."""
    del joining
    return elections.partition_change(key, partition_epoch, after, broker_id, broker_epoch)


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (elections, "take_over", elects_any_replica),
        (elections, "take_over", elects_eligible_ones_too_early),
        (PartitionRegistration, "may_commit", commits_while_others_are_eligible),
        (PartitionRegistration, "may_commit", commits_below_the_minimum),
        pytest.param(PartitionLeader, "_advance", counts_only_the_new_isr, marks=pytest.mark.long),
        pytest.param(PartitionLeader, "_has_caught_up", joins_below_the_epoch_start, marks=pytest.mark.long),
        (PartitionLeader, "_has_caught_up", joins_anywhere),
        (PartitionLeader, "has_deletion", acknowledges_deletions_of_the_leader_alone),
        (PartitionLeader, "_advance", follows_the_synced_ends),
        (ClusterImage, "has_live_leader", takes_any_life_for_the_leader),
        (replication_model, "find_divergence", finds_no_divergence),
        (replication_model, "find_divergence", compares_offsets_only),
        (partition, "_led_by", keeps_the_leader_epoch),
        (replication_cluster, "partition_change", lets_any_life_join),
        (follower_rules.PartitionFollower, "on_divergence", ignores_the_epoch_of_the_divergence),
        (follower_rules.PartitionFollower, "on_divergence", restarts_where_the_logs_agree),
        (follower_rules.PartitionFollower, "before_append", starts_within_a_batch),
    ],
    ids=lambda value: value.__name__ if callable(value) and not isinstance(value, type) else None,
)
def test_a_planted_bug_of_a_rule_is_found(
    owner: Any, name: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    failure = run_seeds(0, SEEDS_MAX)
    assert failure is not None, f"{bug.__name__} was not found in {SEEDS_MAX} schedules"


# Bugs that random schedules rarely meet, in schedules made for them


def fetch_of_an_earlier_epoch(faults: ModelFaults) -> None:
    """A fetch reaches a leader that was elected again, after the follower has replaced the records it speaks of."""
    model = ReplicationModel(min_insync=1, faults=faults)
    model.produce(1)
    model.sync(1)
    model.replicate(3)
    model.fetch(3)
    delayed, model.messages = model.messages, []
    model.hand_over(1, 2)
    model.deliver_all()
    model.replicate(3)
    model.produce(2)
    model.sync(2)
    model.replicate(3)
    lose(model, 2)
    assert model.elect(1)
    model.deliver_all()
    model.messages = delayed
    model.receive(0)
    model.read(1)
    lose(model, 1)
    assert model.elect(3)
    model.heal()
    model.judge()


def lose(model: ReplicationModel, broker_id: int) -> None:
    model.stop(broker_id)
    model.expire_lease(broker_id)
    model.deliver_all()


def test_a_fetch_of_an_earlier_leader_epoch_does_not_count() -> None:
    fetch_of_an_earlier_epoch(ModelFaults())
    with pytest.raises(ModelViolationError, match="1 was read at offset 0"):
        fetch_of_an_earlier_epoch(ModelFaults(ignores_leader_epochs=True))


def commit_during_an_unknown_expansion() -> None:
    """The store has added a follower to the ISR, and the leader was not told."""
    model = ReplicationModel(min_insync=1)
    model.now_ms += 2_000
    model.replicate(2)
    model.tick(1)
    assert set(model.registration.isr) == {1, 2}
    model.fetch(3)
    model.receive(0, outcome="unknown")
    assert set(model.registration.isr) == {1, 2, 3}
    model.produce(1)
    model.sync(1)
    model.replicate(2)
    model.replicate(2)
    lose(model, 1)
    lose(model, 2)
    assert model.elect(3)
    model.heal()
    model.judge()


def test_members_of_an_isr_change_in_flight_count(monkeypatch: pytest.MonkeyPatch) -> None:
    commit_during_an_unknown_expansion()
    monkeypatch.setattr(PartitionLeader, "_advance", counts_only_the_old_isr)
    with pytest.raises(ModelViolationError, match="1 was acknowledged at offset 0, where now is None"):
        commit_during_an_unknown_expansion()


def fetches_unsynced_at_the_high_watermark(
    self: follower_rules.PartitionFollower, log_end_offset: Offset, synced_end_offset: Offset
) -> bool:
    """A fetch at the high watermark makes the follower a member of the ISR."""
    return log_end_offset == synced_end_offset or log_end_offset <= self.leader_high_watermark


def catch_up_and_lose_power() -> None:
    """A replica that has caught up loses what it has not synced, after the other replicas have died."""
    model = ReplicationModel(min_insync=1)
    model.now_ms += 2_000
    model.replicate(2)
    model.tick(1)
    assert set(model.registration.isr) == {1, 2}
    for _ in range(2):
        model.produce(1)
        model.sync(1)
        model.replicate(2)
        model.replicate(2)
    # The leader sends a record at a time.
    assert model.fetch(3)
    model.receive(0, records_max=1)
    model.receive(0)
    assert (model.log_end(3), model.synced_end(3)) == (1, 0)
    assert model.fetch(3), "the leader does not count the offset"
    model.receive(0)
    model.receive(0)
    assert (model.log_end(3), model.synced_end(3)) == (2, 0)
    if model.fetch(3):
        model.deliver_all()
        model.receive(0)
    lose(model, 2)
    lose(model, 1)
    model.elect(3)
    model.stop(3, keep=0)
    model.heal()
    model.judge()


def test_a_replica_does_not_join_the_isr_with_records_that_are_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    catch_up_and_lose_power()
    monkeypatch.setattr(follower_rules.PartitionFollower, "may_fetch", fetches_unsynced_at_the_high_watermark)
    with pytest.raises(ModelViolationError, match="acknowledged"):
        catch_up_and_lose_power()


def join_after_a_deletion() -> None:
    """A fetch from before a deletion arrives when the deletion was acknowledged, and its sender is elected next."""
    model = ReplicationModel(min_insync=1)
    model.produce(1)
    model.sync(1)
    for broker_id in (2, 3, 2, 3):
        model.replicate(broker_id)
    model.now_ms += 2_000
    model.replicate(2)
    model.tick(1)
    model.deliver_all()
    assert set(model.registration.isr) == {1, 2}
    model.fetch(3)
    model.delete_records(1)
    model.replicate(2)
    model.replicate(2)
    assert model.deletion_acknowledged == 1
    model.receive(0)
    model.deliver_all()
    lose(model, 2)
    lose(model, 1)
    model.elect(3)
    model.deliver_all()
    model.heal()
    model.judge()


def test_a_replica_does_not_join_the_isr_without_an_acknowledged_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    join_after_a_deletion()
    monkeypatch.setattr(PartitionLeader, "_has_caught_up", joins_without_deletions)
    with pytest.raises(ModelViolationError, match="the log starts at 0, 1 was acknowledged"):
        join_after_a_deletion()


# The command


def test_the_command_reports_the_number_of_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "5", "--steps", "50"]) == 0
    assert "5 schedules without a failure" in capsys.readouterr().out


def test_the_command_prints_the_schedule_that_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elections, "take_over", elects_any_replica)
    assert main(["--seeds", "1000"]) == 1
    output = capsys.readouterr().err
    failure = run_seeds(0, 1000)
    assert isinstance(failure, CampaignFailureError)
    assert failure.schedule[0] in output
    assert f"seed {failure.seed}, after {len(failure.schedule)} steps" in output
