"""Campaigns of simulated schedules: their totals, and where the next run continues."""

from pathlib import Path

import pytest

from logbrook.testing.simulation.campaign import SimulationFailureError, SimulationRun
from logbrook.testing.simulation.runner import CampaignProgress, SimulationCampaign, run_schedules

FAILING = 47


class QuickRun(SimulationRun):
    """A schedule that does nothing, and fails if its seed is 47."""

    def run(self) -> None:
        self._loop.close()
        self.faults = 2
        self.history.on_acknowledged(0, 0, b"v")
        if self._seed == FAILING:
            raise SimulationFailureError(self._seed, ["a fault"], "a promise was broken")


def new_campaign(first: int, count: int, jobs: int = 1, **options: object) -> SimulationCampaign:
    return SimulationCampaign(QuickRun, first, count, jobs, lambda _: None, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("jobs", [1, 2])
def test_all_seeds_are_run_and_counted(jobs: int) -> None:
    campaign = new_campaign(100, 45, jobs)
    campaign.run()
    assert (campaign.tally.schedules, campaign.tally.faults, campaign.tally.acknowledged) == (45, 90, 45)
    assert campaign.progress == CampaignProgress(100, 145, 45)
    assert "45 schedules" in campaign.summary()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_ends_a_campaign_and_is_reported_with_its_events(jobs: int) -> None:
    campaign = new_campaign(0, 1_000, jobs)
    campaign.run()
    assert campaign.tally.failures == [(FAILING, ["a fault"], "a promise was broken")]
    assert campaign.tally.schedules < 1_000


def test_a_campaign_can_go_on_after_a_failure() -> None:
    campaign = new_campaign(0, 100, keep_going=True)
    campaign.run()
    assert campaign.tally.schedules == 100
    assert campaign.progress == CampaignProgress(0, 100, 100, [FAILING])


def test_a_campaign_file_has_the_totals_of_all_runs(tmp_path: Path) -> None:
    path = tmp_path / "campaign.json"
    assert CampaignProgress.load(path) is None
    new_campaign(100, 30, file=path).run()
    earlier = CampaignProgress.load(path)
    assert earlier == CampaignProgress(100, 130, 30)
    new_campaign(earlier.next_seed, 25, file=path, earlier=earlier).run()
    assert CampaignProgress.load(path) == CampaignProgress(100, 155, 55)


def test_seeds_above_one_that_is_not_finished_do_not_count() -> None:
    campaign = new_campaign(0, 60)
    campaign._on_finished(20)
    assert campaign.progress.schedules == 0
    campaign._on_finished(0)
    assert (campaign.progress.next_seed, campaign.progress.schedules) == (40, 40)


def test_run_schedules_stops_at_the_first_failure() -> None:
    tally = run_schedules(QuickRun, FAILING - 1, 10)
    assert (tally.schedules, [seed for seed, _, _ in tally.failures]) == (2, [FAILING])
