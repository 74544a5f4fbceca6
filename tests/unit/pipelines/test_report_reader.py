"""Reading reports incrementally: order, limits, tombstones and invalid records."""

from dataclasses import replace

import pytest

from logbrook import Broker
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.pipelines import report_reader
from logbrook.pipelines.report import PipelineReport, RunState
from logbrook.pipelines.report_reader import ReportHistory, read_new_reports
from logbrook.pipelines.reporter import write_report
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

FIRST = PipelineReport("a", RunState.STARTING, 1, 1, 5_000, "here", 1, "0")
SECOND = replace(FIRST, state=RunState.RUNNING, said_ms=2)


def say(client: Client, topic: str, report: PipelineReport) -> None:
    write_report(client, topic, report.pipeline, report.to_json())


def test_a_missing_topic_has_no_reports(client: Client) -> None:
    assert read_new_reports(client, "nowhere", ReportHistory()) == ReportHistory()
    assert "nowhere" not in Admin(client).topics.names()


def test_the_topic_is_made_compacted_with_one_partition(client: Client) -> None:
    say(client, "made", FIRST)
    settings = {setting.name: setting.value for setting in Admin(client).configs.of_topic("made")}
    assert settings["cleanup.policy"] == "compact"
    assert len(Admin(client).topics.describe("made").partitions) == 1


def test_reading_continues_at_the_last_position(client: Client) -> None:
    say(client, "on", FIRST)
    seen = read_new_reports(client, "on", ReportHistory())
    assert seen.reports == {"a": (FIRST,)}
    assert read_new_reports(client, "on", seen) == seen
    report_of_b = replace(FIRST, pipeline="b")
    for report in (SECOND, report_of_b):
        say(client, "on", report)
    after = read_new_reports(client, "on", seen)
    assert after.reports == {"a": (FIRST, SECOND), "b": (report_of_b,)}
    assert after.latest == [SECOND, report_of_b]
    assert read_new_reports(client, "on", ReportHistory()) == after


def test_a_removed_pipeline_is_not_listed(client: Client) -> None:
    say(client, "forgotten", FIRST)
    seen = read_new_reports(client, "forgotten", ReportHistory())
    write_report(client, "forgotten", "a", None)
    assert read_new_reports(client, "forgotten", seen).latest == []


def test_records_that_are_no_reports_are_left_out(client: Client) -> None:
    # Not compacted, or the broker would refuse the records without a key.
    client.create_topic("mixed")
    say(client, "mixed", FIRST)
    others = [(b"a", b"{}"), (b"other", FIRST.to_json()), (None, FIRST.to_json()), (b"\xff", b"1"), (None, None)]
    client.produce("mixed", 0, build_batch([Record(key, value, (), 1) for key, value in others]))
    say(client, "mixed", SECOND)
    assert read_new_reports(client, "mixed", ReportHistory()).reports == {"a": (FIRST, SECOND)}


def test_a_topic_that_was_recreated_is_read_from_its_start(client: Client) -> None:
    say(client, "again", FIRST)
    seen = read_new_reports(client, "again", ReportHistory())
    Admin(client).topics.delete(["again"])
    for report in (replace(FIRST, pipeline="new"), SECOND):
        say(client, "again", report)
    assert sorted(read_new_reports(client, "again", seen).reports) == ["a", "new"]
    assert read_new_reports(client, "again", seen).reports["a"] == (SECOND,)


def test_a_topic_with_more_partitions_is_read_as_a_whole(client: Client) -> None:
    Admin(client).topics.create("wide", 3)
    reports = [replace(FIRST, pipeline=f"p{number}") for number in range(9)]
    for report in reports:
        say(client, "wide", report)
    assert read_new_reports(client, "wide", ReportHistory()).latest == reports


def test_of_each_pipeline_the_last_reports_are_kept(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_reader, "_REPORTS_KEPT", 2)
    said = [replace(FIRST, said_ms=number) for number in range(5)]
    for report in said:
        say(client, "many", report)
    assert read_new_reports(client, "many", ReportHistory()).reports == {"a": tuple(said[-2:])}


def test_after_compaction_the_last_of_each_is_still_found(broker: Broker, client: Client) -> None:
    long = replace(FIRST, error="x" * 30_000)
    for number in range(80):
        say(client, "compacted", replace(long, said_ms=number))
    say(client, "compacted", replace(FIRST, pipeline="b"))
    broker.run_maintenance()
    seen = read_new_reports(client, "compacted", ReportHistory())
    assert seen.reports["a"][-1].said_ms == 79
    assert 1 < len(seen.reports["a"]) < 80
    assert sorted(seen.reports) == ["a", "b"]
