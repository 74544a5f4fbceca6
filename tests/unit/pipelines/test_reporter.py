"""Reports of runs to a real broker: their content and times, and failures to send them."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.client import Client
from logbrook.pipelines.report import PipelineReport, RunState, SinkReport, SourceReport
from logbrook.pipelines.report_reader import ReportHistory, read_new_reports
from logbrook.pipelines.reporter import PipelineReporter
from logbrook.testing.processes import free_port
from tests.interop.waiting import wait_until

NEVER_S = 3_600.0


def said(client: Client, topic: str) -> tuple[PipelineReport, ...]:
    return read_new_reports(client, topic, ReportHistory()).reports.get("p", ())


def states(client: Client, topic: str) -> list[str]:
    return [str(report.state) for report in said(client, topic)]


def eventually(condition: Callable[[], bool]) -> None:
    wait_until(condition, "the report")


def test_each_state_is_reported_at_once_and_the_last_before_exit(broker: Broker, client: Client) -> None:
    reporter = PipelineReporter(broker.bootstrap_servers, "states", "p", interval_s=NEVER_S)
    reporter.report(RunState.STARTING)
    eventually(lambda: states(client, "states") == ["starting"])
    reporter.report(RunState.RUNNING)
    eventually(lambda: states(client, "states") == ["starting", "running"])
    sinks, sources = (SinkReport("p-a", 10, 2.0, 1, 0.5, 3),), (SourceReport("t", 4),)
    reporter.report(RunState.RUNNING, sinks=sinks, sources=sources)
    reporter.report(RunState.FAILED, sinks=sinks, sources=sources, error="it broke")
    reporter.close()
    last = said(client, "states")[-1]
    assert states(client, "states") == ["starting", "running", "failed"]
    assert (last.sinks, last.sources, last.error) == (sinks, sources, "it broke")
    assert reporter.problem is None


def test_progress_and_its_absence_are_reported_every_interval(broker: Broker, client: Client) -> None:
    reporter = PipelineReporter(broker.bootstrap_servers, "beats", "p", interval_s=0.05)
    reporter.report(RunState.RUNNING)
    eventually(lambda: len(said(client, "beats")) >= 3)
    reporter.report(RunState.RUNNING, sinks=[SinkReport("p-a", 10)])
    eventually(lambda: said(client, "beats")[-1].sinks == (SinkReport("p-a", 10),))
    reporter.close()
    times = [report.said_ms for report in said(client, "beats")]
    assert times == sorted(times)
    assert len({report.since_ms for report in said(client, "beats")}) == 1


def test_a_reporter_without_a_report_sends_nothing(broker: Broker, client: Client) -> None:
    PipelineReporter(broker.bootstrap_servers, "quiet", "p").close()
    assert read_new_reports(client, "quiet", ReportHistory()) == ReportHistory()


def test_reports_resume_when_an_unreachable_cluster_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logbrook.pipelines.reporter._REQUEST_TIMEOUT_S", 0.5)
    settings = {"network": {"listen": f"127.0.0.1:{free_port()}"}}
    with Broker(data=str(tmp_path / "data"), settings=settings) as broker:
        reporter = PipelineReporter(broker.bootstrap_servers, "back", "p", interval_s=0.05)
        reporter.report(RunState.RUNNING)
        with Client(broker.bootstrap_servers) as client:
            eventually(lambda: bool(said(client, "back")))
        broker.stop()
        eventually(lambda: reporter.problem is not None)
        broker.start()
        eventually(lambda: reporter.problem is None)
        reporter.report(RunState.STOPPED)
        reporter.close()
        with Client(broker.bootstrap_servers) as client:
            assert said(client, "back")[-1].state is RunState.STOPPED
    assert "pipeline-reports" not in [thread.name for thread in threading.enumerate()]


def test_an_address_that_is_none_is_a_problem_too() -> None:
    reporter = PipelineReporter("nowhere", "t", "p")
    reporter.report(RunState.RUNNING)
    reporter.close()
    assert reporter.problem == "'nowhere' is not HOST:PORT"
