"""Nothing acknowledged is lost to a kill, nothing comes twice from an idempotent producer, nothing goes back,
and of a transaction everything or nothing is seen.

A failure tells its seed. To see it again, with what it leaves:

    python -m logbrook.testing.kill --kills 10 --seed 1 --keep /tmp/kill
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from logbrook.testing.history.findings import AbortedRead, CommitWentBack, LostWrite, UncommittedRead
from logbrook.testing.kill.campaign import Campaign
from logbrook.testing.kill.damage import cut_tails
from logbrook.testing.kill.moments import Moment
from logbrook.testing.kill.plan import FLAGS, Plan
from tests.kill.conftest import KILLS

KILLS_MIN = 20
SEEDS = (1, 2)
KILLS_PER_SEED = 10

RecordProperty = Callable[[str, object], None]


def test_the_runs_add_up() -> None:
    assert len(SEEDS) * KILLS_PER_SEED >= KILLS_MIN


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_see_every_promise_kept_over_kills(seed: int, record_property: RecordProperty) -> None:
    outcome = Campaign(Plan(KILLS_PER_SEED, seed)).run()
    record_property(KILLS, outcome.moments.total())
    print(outcome)  # noqa: T201 - N is the result
    assert outcome.is_good, str(outcome)
    assert (outcome.moments.total(), set(outcome.moments)) == (KILLS_PER_SEED, set(Moment))
    counts = outcome.verdict.counts
    assert counts.acknowledged > 100 * KILLS_PER_SEED, "there was no load to speak of"
    assert counts.polled > counts.acknowledged, "two groups read everything"
    assert min(counts.committed, counts.resumed, counts.latest_seen, counts.topics_created) > 0
    assert min(counts.transactions_committed, counts.transactions_aborted) > 0


def test_a_broker_that_loses_what_it_acknowledged_is_caught() -> None:
    """The first life is never synced but through the write-ahead log, half of which is then cut off."""
    lost_bytes = []

    def damage(data: str) -> int:
        lost_bytes.append(cut_tails(data))
        return lost_bytes[-1]

    outcome = Campaign(Plan(kills=1, seed=3, flags=FLAGS, damage=damage)).run()
    assert lost_bytes[0] > 0
    assert LostWrite in {type(finding) for finding in outcome.verdict.findings}, str(outcome)


def test_a_broker_that_does_not_come_back_is_told_with_its_log() -> None:
    def replace_by_a_file(data: str) -> int:
        shutil.rmtree(data)
        return Path(data).write_text("no directory")

    outcome = Campaign(Plan(kills=1, seed=5, damage=replace_by_a_file)).run()
    assert not outcome.is_good
    assert "the broker ended while it was starting" in outcome.problems[0]
    assert "--- life 2" in outcome.problems[0], "the end of its log is told"


def test_a_broker_that_forgets_what_groups_committed_is_caught() -> None:
    flags = (*FLAGS, "--offsets=memory")
    outcome = Campaign(Plan(kills=1, seed=4, moments=(Moment.COMMITTING,), flags=flags)).run()
    assert {type(finding) for finding in outcome.verdict.findings} == {CommitWentBack}, str(outcome)


def test_readers_that_are_given_what_was_aborted_are_caught() -> None:
    """For them it is as if the broker took no notice of which records they want to see."""
    outcome = Campaign(Plan(kills=1, seed=6, moments=(Moment.TRANSACTING,), isolation="read_uncommitted")).run()
    assert {type(one) for one in outcome.verdict.findings} & {AbortedRead, UncommittedRead}, str(outcome)
