"""The verdict of a scenario campaign on correct and incorrect outputs, and its oracles. Runs without Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from logbrook.testing.exactly_once.leftovers import uncommitted_files
from logbrook.testing.exactly_once.scenario_campaign import ScenarioCampaign
from logbrook.testing.exactly_once.scenario_outcome import ScenarioPlan
from logbrook.testing.exactly_once.scenarios import SCENARIOS, KillScenario


@pytest.fixture
def scenarios(tmp_path: Path) -> dict[str, KillScenario]:
    return {name: scenario("127.0.0.1:1", tmp_path) for name, scenario in SCENARIOS.items()}


def test_the_oracle_of_windows_counts_and_sums(scenarios: dict[str, KillScenario]) -> None:
    start = 1_767_225_600
    windows = {(start, 0, 5, 20): 1, (start, 1, 5, 25): 1, (start + 10, 0, 1, 10): 1}
    assert scenarios["windows"].expected(11) == {"windows": windows}


def test_the_oracle_of_a_join_has_the_pairs_that_are_close_in_time(scenarios: dict[str, KillScenario]) -> None:
    records = [record for number in range(4) for record in scenarios["join"].records(number)]
    assert [record.topic for record in records].count("join-input-right") == 2
    assert scenarios["join"].expected(8)["joined"] == {(1,): 1, (4,): 1, (7,): 1}


def test_the_oracle_of_upserts_has_the_newest_change_of_each_key(scenarios: dict[str, KillScenario]) -> None:
    upserts = scenarios["upserts"]
    assert upserts.expected(6)["current"] == {(1, 1): 1, (2, 2): 1, (3, 3): 1, (4, 4): 1}
    # 37 replaces 0, which was a delete, and 40 deletes 3.
    expected = upserts.expected(41)["current"]
    assert (0, 37) in expected
    assert not any(key == 3 for key, _ in expected)
    partitions = {record.partition for number in (3, 40, 77) for record in upserts.records(number)}
    assert partitions == {1}


def test_files_that_an_upsert_replaced_are_not_uncommitted(tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    for number in (1, 2):
        write_deltalake(table, pa.table({"id": [number]}), mode="overwrite")
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    assert uncommitted_files(tmp_path / "table") == set()
    (tmp_path / "table" / "half.parquet").touch()
    assert uncommitted_files(tmp_path / "table") == {f"{table}/half.parquet"}


def test_the_oracle_of_a_pipeline_distinguishes_rows_and_dead_letters(scenarios: dict[str, KillScenario]) -> None:
    expected = scenarios["pipeline"].expected(7)
    assert expected["orders"] == {(number,): 1 for number in (1, 2, 3, 4, 6)}
    assert expected["copies"] == {f'{{"id":{number}}}': 1 for number in (1, 2, 3, 4, 6)}
    assert expected["dead"] == {"bad 0": 1, "bad 5": 1}


def test_progress_is_that_of_every_query(scenarios: dict[str, KillScenario], tmp_path: Path) -> None:
    pipeline = scenarios["pipeline"]
    commits = [tmp_path / "pipeline" / "checkpoint" / name / "commits" for name in pipeline.checkpoints]
    assert set(pipeline.progress().values()) == {-1}
    for directory in commits:
        directory.mkdir(parents=True)
        (directory / "9").touch()
    before = pipeline.progress()
    assert set(before.values()) == {9}
    for directory in commits:
        assert not pipeline.has_progressed(before)
        (directory / "10").touch()
        (directory / ".10.crc").touch()
    assert pipeline.has_progressed(before)


def test_lost_and_doubled_rows_are_found() -> None:
    with ScenarioCampaign(ScenarioPlan(0, names=("windows",))) as campaign:
        campaign.write_input(20)
        (outcome,) = campaign.compare()
        assert outcome.differences[0].startswith("windows: 4 of 4 rows lost")
        outcome.differences.clear()
        table = campaign.scenarios[0].table("windows")
        names = ("start", "parity", "records", "total")
        rows = [dict(zip(names, row, strict=True)) for row in campaign.scenarios[0].expected(20)["windows"]]
        write_deltalake(str(table), pa.Table.from_pylist(rows))
        (outcome,) = campaign.compare()
        assert outcome.is_good
        assert outcome.rows == 4
        write_deltalake(str(table), pa.Table.from_pylist(rows[:1]), mode="append")
        (outcome,) = campaign.compare()
        (difference,) = outcome.differences
        assert difference.startswith("windows: 1 of 4 rows surplus")
        assert "NOT exactly once" in str(outcome)


def test_after_the_time_of_a_plan_nothing_is_killed() -> None:
    with ScenarioCampaign(ScenarioPlan(5, names=("windows",), seconds_max=0)) as campaign:
        campaign.kill_all()
        assert [outcome.kills for outcome in campaign.outcomes.values()] == [0]
