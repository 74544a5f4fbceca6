"""Drivers of batch writes, windows, a join through `foreachBatch`, upserts and a pipeline with dead letters, killed.

All scenarios share a driver, so each kill hits all of them.
"""

import pytest
from pyspark.sql import SparkSession

from logbrook.testing.exactly_once.campaign_broker import BrokerFactory, RestartableBroker
from logbrook.testing.exactly_once.scenario_campaign import ScenarioCampaign
from logbrook.testing.exactly_once.scenario_outcome import ScenarioOutcome, ScenarioPlan
from logbrook.testing.exactly_once.stops import StopPoint
from tests.spark.exactly_once import RestartableKafka, kafka_is_available

# `make test` kills once, with the pipeline, whose streams write to a table, to a topic and to one of dead letters. A
# table and a topic stop before their commit, the other topic after it.
NAMES = ("pipeline",)
STOPS = {
    "pipeline-orders": StopPoint.BEFORE_COMMIT,
    "pipeline-copies": StopPoint.AFTER_COMMIT,
    "pipeline-dead": StopPoint.BEFORE_COMMIT,
}
KILLS = 2
# `make test-all`: the writers that stop, and are killed there: at the first kill all table commits and the transactions
# of the pipeline. At the second the transactions that follow a table commit, and commits that Spark has not recorded.
FIRST_STOPS = dict.fromkeys(
    (
        "windows-windows",
        "join-joined",
        "upserts-current",
        "batch-written",
        "pipeline-orders",
        "pipeline-copies",
        "pipeline-dead",
    ),
    StopPoint.BEFORE_COMMIT,
)
SECOND_STOPS = {
    "windows-windows": StopPoint.AFTER_COMMIT,
    "join-sent": StopPoint.BEFORE_COMMIT,
    "upserts-current": StopPoint.AFTER_COMMIT,
    "batch-sent": StopPoint.BEFORE_COMMIT,
    "pipeline-orders": StopPoint.AFTER_COMMIT,
    "pipeline-copies": StopPoint.AFTER_COMMIT,
    "pipeline-dead": StopPoint.BEFORE_COMMIT,
}
NUMBERS = 60


@pytest.mark.timeout(900)
def test_a_driver_killed_in_its_commits_leaves_every_row_to_be_written_once(spark: SparkSession) -> None:
    with ScenarioCampaign(ScenarioPlan(1, names=NAMES, parallelism=1)) as campaign:
        campaign.write_input(NUMBERS)
        campaign.kill_at(STOPS)
        (pipeline,) = finish(campaign, spark, kills=1)
    assert min(pipeline.in_table_commit, pipeline.in_transaction, pipeline.after_commit) > 0


@pytest.mark.timeout(900)
@pytest.mark.long
def test_drivers_killed_in_their_commits_leave_every_row_to_be_written_once(spark: SparkSession) -> None:
    with ScenarioCampaign(ScenarioPlan(KILLS, parallelism=1)) as campaign:
        for stops in (FIRST_STOPS, SECOND_STOPS):
            campaign.write_input(NUMBERS)
            campaign.kill_at(stops)
        outcomes = finish(campaign, spark)
    assert all(outcome.in_table_commit for outcome in outcomes)
    assert {outcome.name for outcome in outcomes if outcome.in_transaction} == {"join", "batch", "pipeline"}
    assert {outcome.name for outcome in outcomes if outcome.after_commit} == {"windows", "upserts", "pipeline"}


@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize("broker", [RestartableBroker, RestartableKafka])
def test_drivers_and_brokers_killed_at_random_leave_every_row_to_be_written_once(
    spark: SparkSession, broker: BrokerFactory
) -> None:
    """`make exactly-once` kills more often."""
    if broker is RestartableKafka and not kafka_is_available():
        pytest.skip("NO APACHE KAFKA, SO NOTHING IS SHOWN WITH ONE")
    with ScenarioCampaign(ScenarioPlan(KILLS, restarts_broker=True), broker=broker) as campaign:
        campaign.kill_all()
        outcomes = finish(campaign, spark)
    assert all(outcome.restarts for outcome in outcomes)


def finish(campaign: ScenarioCampaign, spark: SparkSession, kills: int = KILLS) -> list[ScenarioOutcome]:
    """Process everything with the session of the tests, and compare it with the oracles."""
    campaign.write_last_input()
    for scenario in campaign.scenarios:
        scenario.finish(spark)
    outcomes = campaign.compare()
    assert all(outcome.is_good for outcome in outcomes), "\n".join(map(str, outcomes))
    assert {outcome.kills for outcome in outcomes} == {kills}
    assert all(outcome.rows for outcome in outcomes)
    return outcomes
