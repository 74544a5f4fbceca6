"""Clusters of whole brokers in simulated time: random schedules with faults, and planted bugs that they must find."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from logbrook.core.replication.leader import PartitionLeader, ProposeRegistration
from logbrook.server.cluster.leading import LeadingReplicas
from logbrook.server.cluster.replica import Replica
from logbrook.server.coordinators.runtime import CoordinatorContext, CoordinatorRuntime, complete
from logbrook.server.coordinators.transactions import TransactionCoordinatorService
from logbrook.server.handlers import fetch
from logbrook.testing.simulation.cluster_campaign import ClusterSimulationRun, run_cluster_seeds

Plant = Callable[[pytest.MonkeyPatch], None]


def test_random_schedules_break_no_promise() -> None:
    assert run_cluster_seeds(0, 4, seconds=10) is None


@pytest.mark.long
def test_many_random_schedules_break_no_promise() -> None:
    assert run_cluster_seeds(1_000, 300) is None


def test_a_seed_decides_everything() -> None:
    first, second = ClusterSimulationRun(5, 5), ClusterSimulationRun(5, 5)
    for run in (first, second):
        run.run()
    assert first.events == second.events
    assert first.history == second.history


# Planted bugs


def acknowledge_before_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    """acks=all is answered when the leader has synced the records."""
    on_synced = LeadingReplicas.on_synced

    def on_synced_at_once(leading: LeadingReplicas, *arguments: Any, waits: bool, timeout_s: float | None) -> None:
        del waits
        monkeypatch.setattr(type(leading._membership), "is_certain", True)
        on_synced(leading, *arguments, waits=False, timeout_s=timeout_s)

    monkeypatch.setattr(LeadingReplicas, "on_synced", on_synced_at_once)


def show_uncommitted_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers read up to the log end offset, of leaders and followers."""
    monkeypatch.setattr(fetch._Fetch, "_end_offset", lambda _, log: log.log_end_offset)


def change_the_isr_without_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader drops followers on its own."""

    async def apply(
        leading: LeadingReplicas, replica: Replica, leader: PartitionLeader, proposal: ProposeRegistration
    ) -> None:
        effects = leader.on_registration(proposal.registration, leader.partition_epoch + 1)
        leader.partition_epoch = proposal.partition_epoch
        leading._carry_out(replica, effects)

    monkeypatch.setattr(LeadingReplicas, "_propose", apply)


def never_compare_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader does not look for records that only a follower has."""
    monkeypatch.setattr("logbrook.server.cluster.leading.find_divergence", lambda *_: None)


def reply_before_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinators reply when their records are appended."""

    def release(
        _: CoordinatorRuntime[Any], __: CoordinatorContext[Any], future: "asyncio.Future[Any]", result: object
    ) -> None:
        complete(future, result)

    monkeypatch.setattr(CoordinatorRuntime, "release", release)


def join_transactions_without_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders append records of transactions whose coordinator does not know the partition."""

    async def join(*_: Any, **__: Any) -> None:
        """Ask nobody."""

    monkeypatch.setattr(TransactionCoordinatorService, "join", join)


def let_the_high_watermark_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark moves with the leader's own log."""
    monkeypatch.setattr(PartitionLeader, "_synced_end_of", lambda leader, _: leader.synced_end_offset)


def forget_the_epochs_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower names no epoch, so that its leader cannot compare the logs."""
    monkeypatch.setattr("logbrook.server.cluster.replica_fetcher._last_epoch", lambda _: -1)


QUICKLY_FOUND: list[Plant] = [
    show_uncommitted_records,
    change_the_isr_without_the_store,
    never_compare_logs,
    join_transactions_without_the_coordinator,
    let_the_high_watermark_lead,
    forget_the_epochs_of_a_log,
]
SLOWLY_FOUND: list[Plant] = [acknowledge_before_replication, reply_before_commit]


@pytest.mark.parametrize("plant", QUICKLY_FOUND)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    plant(monkeypatch)
    assert run_cluster_seeds(0, 4) is not None


@pytest.mark.long
@pytest.mark.parametrize("plant", SLOWLY_FOUND)
def test_a_planted_bug_that_needs_more_schedules_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    plant(monkeypatch)
    assert run_cluster_seeds(0, 30) is not None
