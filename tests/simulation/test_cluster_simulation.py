"""Clusters of whole brokers in simulated time: random schedules with faults, and planted bugs that they must find."""

import pytest

from logbrook.server.cluster.leading import LeadingReplicas
from logbrook.testing.simulation.cluster_campaign import ClusterSimulationRun, run_cluster_seeds
from tests.simulation import planted_cluster_bugs as bugs
from tests.simulation.planted_cluster_bugs import Plant


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


def test_a_background_task_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(LeadingReplicas, "on_tick", fail)
    failure = run_cluster_seeds(0, 1, seconds=2)
    assert failure is not None
    assert "planted" in str(failure)


# The bugs that two schedules find.
QUICKLY_FOUND: list[Plant] = [
    bugs.acknowledge_before_replication,
    bugs.show_uncommitted_records_of_followers,
    bugs.change_the_isr_without_the_store,
    bugs.never_compare_logs,
    bugs.forget_loaded_state,
    bugs.let_the_high_watermark_lead,
]
SLOWLY_FOUND: list[Plant] = [
    bugs.show_uncommitted_records,
    bugs.join_transactions_without_the_coordinator,
    bugs.forget_the_epochs_of_a_log,
    bugs.truncate_to_the_high_watermark,
    bugs.elect_any_replica,
    bugs.keep_replaced_disks_in_the_isr,
    bugs.reply_before_commit,
    bugs.elect_eligible_replicas_too_early,
    bugs.serve_before_offsets_are_known,
    bugs.count_unsynced_records,
    bugs.let_anybody_join_the_isr,
    bugs.coordinate_without_a_lease,
]


@pytest.mark.parametrize("plant", QUICKLY_FOUND)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    plant(monkeypatch)
    assert run_cluster_seeds(2, 2) is not None


@pytest.mark.long
@pytest.mark.parametrize("plant", SLOWLY_FOUND)
def test_a_planted_bug_that_needs_more_schedules_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    plant(monkeypatch)
    assert run_cluster_seeds(0, 200) is not None
