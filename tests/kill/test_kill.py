"""After kills no acknowledged record is lost, no record of an idempotent producer is duplicated, no committed offset
decreases, and of each transaction all records or none are read.

A failure names its seed. To run it again and keep its files:

    python -m logbrook.testing.kill --kills 10 --seed 1 --keep /tmp/kill
"""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logbrook.testing.history import Rule
from logbrook.testing.kill.campaign import KillCampaign
from logbrook.testing.kill.plan import FLAGS, KillOutcome, KillPlan, Moment
from tests.kill.conftest import KILLS
from tests.kill.damage import cut_tails

# `make test` kills at each kind of moment once; `make test-all` has more kills.
RUNS = [
    pytest.param(len(Moment), 1),
    pytest.param(10, 2, marks=pytest.mark.long),
    pytest.param(10, 3, marks=pytest.mark.long),
]

RecordProperty = Callable[[str, object], None]


@pytest.mark.parametrize(("kills", "seed"), RUNS)
def test_clients_see_every_promise_kept_over_kills(kills: int, seed: int, record_property: RecordProperty) -> None:
    outcome = KillCampaign(KillPlan(kills, seed)).run()
    record_property(KILLS, outcome.moments.total())
    print(outcome)  # noqa: T201 - N is the result
    assert outcome.is_good, str(outcome)
    assert (outcome.moments.total(), set(outcome.moments)) == (kills, set(Moment))
    counts = outcome.verdict.counts
    assert counts.acknowledged > 100 * kills, "there was no load to speak of"
    assert counts.polled > counts.acknowledged, "two groups read everything"
    assert min(counts.committed, counts.resumed, counts.latest_seen, counts.topics_created) > 0
    assert min(counts.transactions_committed, counts.transactions_aborted) > 0


def test_lost_writes_and_uncommitted_reads_are_caught() -> None:
    """The campaigns run at the same time: most of their time is spent waiting."""
    lost_bytes: list[int] = []

    def lose_tails(data: str) -> int:
        lost_bytes.append(cut_tails(data))
        return lost_bytes[-1]

    plans = (
        # The first process syncs only through the write-ahead log, half of which is then truncated.
        KillPlan(kills=1, seed=3, flags=FLAGS, damage=lose_tails),
        # To readers it looks as if the broker ignored their isolation level.
        KillPlan(kills=1, seed=6, moments=(Moment.TRANSACTING,), isolation="read_uncommitted"),
    )
    with ThreadPoolExecutor(len(plans)) as pool:
        lost, uncommitted = pool.map(lambda plan: KillCampaign(plan).run(), plans)
    assert lost_bytes[0] > 0
    assert Rule.LOST_WRITE in rules(lost), str(lost)
    # The transaction that the kill interrupts is aborted by a new producer, or by its own after the restart.
    assert rules(uncommitted) & {Rule.ABORTED_READ, Rule.FENCED_READ, Rule.UNCOMMITTED_READ}, str(uncommitted)


@pytest.mark.long
def test_forgotten_offsets_and_a_broker_that_does_not_start_are_caught() -> None:
    plans = (
        KillPlan(kills=1, seed=4, moments=(Moment.COMMITTING,), flags=(*FLAGS, "--offsets=memory")),
        KillPlan(kills=1, seed=5, damage=replace_by_a_file),
    )
    with ThreadPoolExecutor(len(plans)) as pool:
        forgotten, gone = pool.map(lambda plan: KillCampaign(plan).run(), plans)
    assert rules(forgotten) == {Rule.COMMIT_WENT_BACK}, str(forgotten)
    assert not gone.is_good
    assert "the broker exited while starting" in gone.problems[0]
    assert "--- life 2" in gone.problems[0], "the end of its log is told"


def rules(outcome: KillOutcome) -> set[Rule]:
    return {anomaly.rule for anomaly in outcome.verdict.anomalies}


def replace_by_a_file(data: str) -> int:
    shutil.rmtree(data)
    return Path(data).write_text("no directory")
