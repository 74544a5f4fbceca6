"""Runs that say how they are, to a real broker: what arrives, when, and what happens when nobody listens."""

import threading
from collections.abc import Callable
from pathlib import Path

from logbrook import Broker
from logbrook.client import Client
from logbrook.pipelines.reading import Seen, read_on
from logbrook.pipelines.report import Report, RunState, SinkReport, SourceReport
from logbrook.pipelines.reporter import Reporter
from logbrook.testing.kill.free_port import free_port
from tests.interop.waiting import wait_until

NEVER_S = 3_600.0


def said(client: Client, topic: str) -> tuple[Report, ...]:
    return read_on(client, topic, Seen()).reports.get("p", ())


def states(client: Client, topic: str) -> list[str]:
    return [str(one.state) for one in said(client, topic)]


def eventually(condition: Callable[[], bool]) -> None:
    wait_until(condition, "the report")


def test_each_state_is_said_at_once_and_the_last_before_the_end(broker: Broker, client: Client) -> None:
    reporter = Reporter(broker.bootstrap_servers, "states", "p", interval_s=NEVER_S)
    reporter.tell(RunState.STARTING)
    eventually(lambda: states(client, "states") == ["starting"])
    reporter.tell(RunState.RUNNING)
    eventually(lambda: states(client, "states") == ["starting", "running"])
    sinks, sources = (SinkReport("p-a", 10, 2.0, 1, 0.5, 3),), (SourceReport("t", 4),)
    reporter.tell(RunState.RUNNING, sinks=sinks, sources=sources)
    reporter.tell(RunState.FAILED, sinks=sinks, sources=sources, error="it broke")
    reporter.close()
    last = said(client, "states")[-1]
    assert states(client, "states") == ["starting", "running", "failed"]
    assert (last.sinks, last.sources, last.error) == (sinks, sources, "it broke")
    assert reporter.problem is None


def test_progress_is_said_every_interval_and_so_is_that_there_is_none(broker: Broker, client: Client) -> None:
    reporter = Reporter(broker.bootstrap_servers, "beats", "p", interval_s=0.05)
    reporter.tell(RunState.RUNNING)
    eventually(lambda: len(said(client, "beats")) >= 3)
    reporter.tell(RunState.RUNNING, sinks=[SinkReport("p-a", 10)])
    eventually(lambda: said(client, "beats")[-1].sinks == (SinkReport("p-a", 10),))
    reporter.close()
    times = [one.said_ms for one in said(client, "beats")]
    assert times == sorted(times)
    assert len({one.since_ms for one in said(client, "beats")}) == 1


def test_who_has_told_nothing_says_nothing(broker: Broker, client: Client) -> None:
    Reporter(broker.bootstrap_servers, "quiet", "p").close()
    assert read_on(client, "quiet", Seen()) == Seen()


def test_a_cluster_that_is_away_is_a_problem_and_is_told_when_it_is_back(tmp_path: Path) -> None:
    settings = {"network": {"listen": f"127.0.0.1:{free_port()}"}}
    with Broker(data=str(tmp_path / "data"), settings=settings) as broker:
        reporter = Reporter(broker.bootstrap_servers, "back", "p", interval_s=0.05)
        reporter.tell(RunState.RUNNING)
        with Client(broker.bootstrap_servers) as client:
            eventually(lambda: bool(said(client, "back")))
        broker.stop()
        eventually(lambda: reporter.problem is not None)
        broker.start()
        eventually(lambda: reporter.problem is None)
        reporter.tell(RunState.STOPPED)
        reporter.close()
        with Client(broker.bootstrap_servers) as client:
            assert said(client, "back")[-1].state is RunState.STOPPED
    assert "pipeline-reports" not in [one.name for one in threading.enumerate()]


def test_an_address_that_is_none_is_a_problem_too() -> None:
    reporter = Reporter("nowhere", "t", "p")
    reporter.tell(RunState.RUNNING)
    reporter.close()
    assert reporter.problem == "'nowhere' is not HOST:PORT"
