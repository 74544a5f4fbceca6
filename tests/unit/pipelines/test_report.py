"""Serialization and validation of reports."""

import json
from dataclasses import replace
from typing import Any

import pytest

from logbrook.pipelines.report import PipelineReport, ReportError, RunState, SinkReport, SourceReport, parse_report

REPORT = PipelineReport(
    pipeline="orders",
    state=RunState.RUNNING,
    since_ms=1_000,
    said_ms=100_000,
    interval_ms=5_000,
    host="here",
    pid=7,
    version="1.2.3",
    error="it was “bad”",
    sinks=(SinkReport("orders-a", 10, 2.5, 3, 0.5, 99_000), SinkReport("orders-b", 4, 1.0, 1, 0.75, 98_000, 2)),
    sources=(SourceReport("clicks", 5), SourceReport("orders", 2)),
)


def test_a_report_is_read_back_from_a_topic() -> None:
    assert parse_report(REPORT.to_json()) == REPORT
    young = replace(REPORT, error=None, sinks=(SinkReport("orders-a"),), sources=())
    assert parse_report(young.to_json()) == young


def test_totals_are_sums_over_sinks_and_sources() -> None:
    assert (REPORT.rows_per_s, REPORT.lag, REPORT.batch_s) == (3.5, 7, 0.75)
    young = replace(REPORT, sinks=(SinkReport("orders-a"),), sources=())
    assert (young.rows_per_s, young.lag, young.batch_s) == (0.0, None, None)


def test_restarts_are_counted_and_earlier_versions_had_none() -> None:
    assert (REPORT.restarts, REPORT.status_at(0)["restarts"]) == (2, 2)
    fields = json.loads(REPORT.to_json())
    for sink in fields["sinks"]:
        del sink["restarts"]
    assert parse_report(json.dumps(fields).encode()).restarts == 0


def test_a_run_is_lost_when_it_is_silent_for_six_intervals_and_has_not_ended() -> None:
    assert REPORT.state_at(130_000) is RunState.RUNNING
    assert REPORT.state_at(130_001) is RunState.LOST
    assert replace(REPORT, state=RunState.STARTING).state_at(200_000) is RunState.LOST
    for state in (RunState.STOPPED, RunState.FAILED):
        assert replace(REPORT, state=state).state_at(10**12) is state
    # A clock that is ahead does not make the report lost.
    assert REPORT.state_at(0) is RunState.RUNNING


def test_unknown_fields_of_later_versions_are_ignored() -> None:
    fields = json.loads(REPORT.to_json())
    fields["colour"] = "green"
    fields["sinks"][0]["colour"] = "blue"
    assert parse_report(json.dumps(fields).encode()) == REPORT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state", "dancing"),
        ("pipeline", 3),
        ("since_ms", "noon"),
        ("said_ms", -1),
        ("said_ms", 10**18),
        ("pid", None),
        ("sinks", [{"name": "a"}]),
        ("sinks", [json.loads(REPORT.to_json())["sinks"][0] | {"rows_per_s": float("inf")}]),
        ("sources", 1),
        ("host", ...),
    ],
)
def test_a_record_that_is_none_is_refused(name: str, value: Any) -> None:
    fields = json.loads(REPORT.to_json())
    if value is ...:
        del fields[name]
    else:
        fields[name] = value
    with pytest.raises(ReportError, match="this is not a pipeline report"):
        parse_report(json.dumps(fields).encode())


@pytest.mark.parametrize("value", [b"", b"\xff", b"[]", b"null", b"[" * 100_000])
def test_bytes_that_are_none_are_refused(value: bytes) -> None:
    with pytest.raises(ReportError):
        parse_report(value)
