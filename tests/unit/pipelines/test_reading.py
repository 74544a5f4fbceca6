"""What is found of reports: the last, those before it, and nothing that is none."""

from dataclasses import replace

import pytest

from logbrook import Broker
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.pipelines import reading
from logbrook.pipelines.reading import Seen, read_on
from logbrook.pipelines.report import Report, RunState
from logbrook.pipelines.reports_topic import write_report
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

FIRST = Report("a", RunState.STARTING, 1, 1, 5_000, "here", 1, "0")
SECOND = replace(FIRST, state=RunState.RUNNING, said_ms=2)


def say(client: Client, topic: str, report: Report) -> None:
    write_report(client, topic, report.pipeline, report.to_json())


def test_without_a_topic_there_is_nothing(client: Client) -> None:
    assert read_on(client, "nowhere", Seen()) == Seen()
    assert "nowhere" not in Admin(client).topics.names()


def test_the_topic_is_made_compacted_with_one_partition(client: Client) -> None:
    say(client, "made", FIRST)
    settings = {one.name: one.value for one in Admin(client).configs.of_topic("made")}
    assert settings["cleanup.policy"] == "compact"
    assert len(Admin(client).topics.describe("made").partitions) == 1


def test_reading_goes_on_where_it_ended(client: Client) -> None:
    say(client, "on", FIRST)
    seen = read_on(client, "on", Seen())
    assert seen.reports == {"a": (FIRST,)}
    assert read_on(client, "on", seen) == seen
    other = replace(FIRST, pipeline="b")
    for report in (SECOND, other):
        say(client, "on", report)
    after = read_on(client, "on", seen)
    assert after.reports == {"a": (FIRST, SECOND), "b": (other,)}
    assert after.latest == [SECOND, other]
    assert read_on(client, "on", Seen()) == after


def test_a_pipeline_that_is_forgotten_is_gone(client: Client) -> None:
    say(client, "forgotten", FIRST)
    seen = read_on(client, "forgotten", Seen())
    write_report(client, "forgotten", "a", None)
    assert read_on(client, "forgotten", seen).latest == []


def test_records_that_are_no_reports_are_left_out(client: Client) -> None:
    say(client, "mixed", FIRST)
    others = [(b"a", b"{}"), (b"other", FIRST.to_json()), (None, FIRST.to_json()), (b"\xff", b"1"), (None, None)]
    client.produce("mixed", 0, build_batch([Record(key, value, (), 1) for key, value in others]))
    say(client, "mixed", SECOND)
    assert read_on(client, "mixed", Seen()).reports == {"a": (FIRST, SECOND)}


def test_a_topic_that_was_made_again_is_read_from_its_start(client: Client) -> None:
    say(client, "again", FIRST)
    seen = read_on(client, "again", Seen())
    Admin(client).topics.delete(["again"])
    for report in (replace(FIRST, pipeline="new"), SECOND):
        say(client, "again", report)
    assert sorted(read_on(client, "again", seen).reports) == ["a", "new"]
    assert read_on(client, "again", seen).reports["a"] == (SECOND,)


def test_a_topic_with_more_partitions_is_read_as_a_whole(client: Client) -> None:
    Admin(client).topics.create("wide", 3)
    reports = [replace(FIRST, pipeline=f"p{number}") for number in range(9)]
    for report in reports:
        say(client, "wide", report)
    assert read_on(client, "wide", Seen()).latest == reports


def test_of_each_pipeline_the_last_reports_are_kept(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_KEPT", 2)
    said = [replace(FIRST, said_ms=number) for number in range(5)]
    for report in said:
        say(client, "many", report)
    assert read_on(client, "many", Seen()).reports == {"a": tuple(said[-2:])}


def test_after_compaction_the_last_of_each_is_still_found(broker: Broker, client: Client) -> None:
    long = replace(FIRST, error="x" * 30_000)
    for number in range(80):
        say(client, "compacted", replace(long, said_ms=number))
    say(client, "compacted", replace(FIRST, pipeline="b"))
    broker.run_maintenance()
    seen = read_on(client, "compacted", Seen())
    assert seen.reports["a"][-1].said_ms == 79
    assert 1 < len(seen.reports["a"]) < 80
    assert sorted(seen.reports) == ["a", "b"]
