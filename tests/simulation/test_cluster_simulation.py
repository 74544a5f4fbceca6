"""Clusters of whole brokers in simulated time: random schedules with faults, and planted bugs that they must find."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from logbrook.server.cluster.leading import LeadingReplicas
from logbrook.testing.simulation import cluster_campaign
from logbrook.testing.simulation.cluster_campaign import ClusterSimulationRun, run_cluster_seeds
from logbrook.testing.simulation.cluster_faults import ClusterFaults
from tests.simulation import planted_cluster_bugs as bugs
from tests.simulation.planted_cluster_bugs import Plant

SCHEDULES = 300
SCHEDULES_PER_TEST = 20


@pytest.mark.parametrize("first", range(0, SCHEDULES, SCHEDULES_PER_TEST))
def test_random_schedules_break_no_promise(first: int) -> None:
    assert run_cluster_seeds(first, SCHEDULES_PER_TEST) is None


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000, 4_000, 200))
def test_many_random_schedules_break_no_promise(first: int) -> None:
    """In parts: pytest keeps the log records of a test in memory."""
    assert run_cluster_seeds(first, 200) is None


def trace_of(seed: int) -> tuple[object, ...]:
    run = ClusterSimulationRun(seed)
    run.run()
    return run.trace, run.events, run.history


def test_a_seed_decides_every_message() -> None:
    first = {seed: trace_of(seed) for seed in (5, 6)}
    # In another order: a schedule leaves nothing behind that the next one could see.
    assert {seed: trace_of(seed) for seed in (6, 5)} == first


def test_a_schedule_is_the_same_in_every_process() -> None:
    """Hashes of strings differ between processes, and with them the order of sets."""
    seed = 7
    program = (
        "from logbrook.testing.simulation.cluster_campaign import ClusterSimulationRun as Run\n"
        f"run = Run({seed}); run.run(); print(run.trace, run.events)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, env=environment, check=True, text=True)
    run = ClusterSimulationRun(seed)
    run.run()
    assert result.stdout.strip() == f"{run.trace} {run.events}"


def test_a_schedule_that_does_not_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start_again_and_again(faults: ClusterFaults) -> None:
        while True:
            await faults._pause(0.001)

    monkeypatch.setattr(ClusterFaults, "run", start_again_and_again)
    monkeypatch.setattr(cluster_campaign, "_STEPS_MAX", 5_000)
    failure = run_cluster_seeds(0, 1)
    assert failure is not None
    assert "does not end" in str(failure)


def test_a_background_task_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(LeadingReplicas, "on_tick", fail)
    failure = run_cluster_seeds(0, 1, seconds=2)
    assert failure is not None
    assert "planted" in str(failure)


# The bugs that four schedules find, from this seed on.
QUICKLY_FOUND: list[tuple[Plant, int]] = [
    (bugs.acknowledge_before_replication, 0),
    (bugs.change_the_isr_without_the_store, 0),
    (bugs.elect_eligible_replicas_too_early, 0),
    (bugs.forget_loaded_state, 0),
    (bugs.forget_the_epochs_of_a_log, 0),
    (bugs.join_transactions_without_the_coordinator, 12),
    (bugs.let_the_high_watermark_lead, 0),
    (bugs.never_compare_logs, 0),
    (bugs.serve_before_offsets_are_known, 24),
    (bugs.show_uncommitted_records, 10),
    (bugs.truncate_to_the_high_watermark, 0),
]
SLOWLY_FOUND: list[Plant] = [
    bugs.let_anybody_join_the_isr,
    bugs.elect_any_replica,
    bugs.keep_replaced_disks_in_the_isr,
    bugs.reply_before_commit,
    bugs.count_unsynced_records,
    bugs.show_uncommitted_records_of_followers,
    bugs.coordinate_without_a_lease,
    bugs.acknowledge_after_a_failed_sync,
    bugs.truncate_to_the_end_of_the_leaders_epoch,
    bugs.accept_markers_of_deposed_coordinators,
    bugs.let_batches_overtake_each_other,
]


@pytest.fixture
def _plants_fit_the_code(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A plant whose signature is outdated breaks the brokers, and would be found for that reason alone."""
    yield
    errors = [record.exc_info[0] for record in caplog.get_records("call") if record.exc_info]
    assert not {TypeError, AttributeError} & {*errors}


@pytest.mark.usefixtures("_plants_fit_the_code")
@pytest.mark.parametrize(("plant", "first"), QUICKLY_FOUND)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant, first: int) -> None:
    plant(monkeypatch)
    assert run_cluster_seeds(first, 4) is not None


@pytest.mark.long
@pytest.mark.usefixtures("_plants_fit_the_code")
@pytest.mark.parametrize("plant", SLOWLY_FOUND)
def test_a_planted_bug_that_needs_more_schedules_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    plant(monkeypatch)
    assert run_cluster_seeds(0, 2_000) is not None
