"""Outages that Spark's processes meet are shown where the pipeline runs."""

from pathlib import Path

import pytest
from pyspark import SparkFiles

from logbrook.client import ConnectFailedError
from logbrook.client.retry import FailedTry
from logbrook.spark import outage_notes, outages
from logbrook.spark.outage_notes import EXPIRY_MARGIN_MS
from logbrook.spark.outages import OutageLog
from logbrook.spark.pipeline.display import QueryProgress
from logbrook.spark.pipeline.outage_watch import OutageWatch

SERVERS = "127.0.0.1:9092"
BEGUN = f"waiting for {SERVERS}: cannot connect to {SERVERS}: refused"


class Moment:
    """A clock of seconds since the epoch."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Moment:
    """The clock of a worker process of an application with the files in `tmp_path`."""
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    clock = Moment()
    monkeypatch.setattr(outages, "time", clock)
    return clock


def fail(log: OutageLog, failures: int) -> None:
    log(FailedTry(ConnectFailedError("127.0.0.1", 9092, "refused"), failures, 0.1))


def test_a_query_waits_from_the_second_failure_until_no_more_follow(clock: Moment, tmp_path: Path) -> None:
    log, watch, state = OutageLog(SERVERS), OutageWatch(str(tmp_path), clock), QueryProgress("q")
    fail(log, 1)
    assert (watch.update([state]), state.waiting) == ([], None)
    for second in range(2, 14):
        clock.now_s += 1
        fail(log, second)
        assert watch.update([state]) == ([BEGUN] if second == 2 else [])
    assert state.waiting == f"waiting for {SERVERS} since 12 s"
    clock.now_s += 2 + EXPIRY_MARGIN_MS / 1000
    assert watch.update([state]) == [f"the wait for {SERVERS} ended after 17 s"]
    assert state.waiting is None
    assert watch.update([state]) == []


def test_a_wait_for_an_answer_lasts_between_its_failures(clock: Moment, tmp_path: Path) -> None:
    """Tries that end at their time limit fail every 30 s."""
    log, watch, state = OutageLog(SERVERS), OutageWatch(str(tmp_path), clock), QueryProgress("q")
    fail(log, 1)
    clock.now_s += 30
    fail(log, 2)
    assert watch.update([state]) == [BEGUN]
    clock.now_s += 59
    assert watch.update([state]) == []
    assert state.waiting == f"waiting for {SERVERS} since 89 s"


def test_a_query_that_has_made_progress_or_ended_does_not_wait(clock: Moment, tmp_path: Path) -> None:
    log, watch = OutageLog(SERVERS), OutageWatch(str(tmp_path), clock)
    fail(log, 1)
    fail(log, 2)
    done, later = QueryProgress("done", is_done=True), QueryProgress("later", progressed_ms=round(clock.now_s * 1000))
    assert watch.update([done, later]) == [BEGUN]
    assert (done.waiting, later.waiting) == (None, None)


def test_without_a_directory_or_with_a_broken_note_there_are_no_outages(clock: Moment, tmp_path: Path) -> None:
    for content in ("", "[1]", "{}"):
        (tmp_path / f"{outage_notes._PREFIX}{len(content)}").write_text(content)
    assert OutageWatch(str(tmp_path), clock).update([]) == []
    assert OutageWatch(str(tmp_path / "none"), clock).update([]) == []
    assert OutageWatch(None, clock).update([]) == []
