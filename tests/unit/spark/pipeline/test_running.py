"""Supervision and stop of queries, with fake queries."""

import json
import threading
from collections.abc import Callable, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from logbrook.spark.errors import JvmEndedError, QueryFailedError, exit_code_of
from logbrook.spark.pipeline import running
from logbrook.spark.pipeline.compiling import PreparedQuery
from logbrook.spark.pipeline.display import QueryProgress
from logbrook.spark.pipeline.restarting import RestartableQuery
from logbrook.spark.pipeline.running import QueryRunner
from logbrook.spark.pipeline.spec import RestartPolicy

CONNECT_BACK = "org.apache.spark.SparkException: Python worker failed to connect back."
AT_ONCE = RestartPolicy(attempts=3, delay_ms=1, delay_ms_max=60_000)


class FakeQuery:
    """A query that is in the middle of a batch until `on_look` changes that."""

    def __init__(self, name: str, on_look: Callable[["FakeQuery"], None] = lambda query: None) -> None:
        self.name = name
        self.is_stopped = False
        self.is_busy = True
        self.error: Exception | None = None
        self.batches = 0
        self._on_look = on_look

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name, as those below
        self._on_look(self)
        return not self.is_stopped and self.error is None

    @property
    def status(self) -> dict[str, Any]:
        return {"message": "Processing new data", "isTriggerActive": self.is_busy}

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        return self.recentProgress[-1] if self.batches else None

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        reports = [
            {
                "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
                "batchId": number,
                "numInputRows": 5,
                "durationMs": {"addBatch": 1},
            }
            for number in range(self.batches)
        ]
        return [SimpleNamespace(batchId=report["batchId"], json=json.dumps(report)) for report in reports]

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.is_stopped = True


class FakeWriter:
    """Starts its queries one after the other, repeating the last one; an exception is raised instead."""

    def __init__(self, *queries: FakeQuery | Exception) -> None:
        self.queries = list(queries)
        self.triggers: list[dict[str, Any]] = []

    def trigger(self, **trigger: Any) -> "FakeWriter":
        self.triggers.append(trigger)
        return self

    def start(self) -> FakeQuery:
        query = self.queries.pop(0) if len(self.queries) > 1 else self.queries[0]
        if isinstance(query, Exception):
            raise query
        return query


@pytest.fixture(autouse=True)
def _quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_POLL_S", 0.01)


class Said:
    """A display that records messages."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.last: list[tuple[str, int]] = []

    def print(self, message: str) -> None:
        self.sentences.append(message)

    def update(self, states: Sequence[QueryProgress]) -> None:
        pass

    def close(self, states: Sequence[QueryProgress]) -> None:
        self.last = [(state.name, state.rows) for state in states]


def ready(query: FakeQuery, *restarted: FakeQuery | Exception) -> PreparedQuery:
    writer: Any = FakeWriter(query, *restarted)
    return PreparedQuery(query.name, writer)


def failing(reason: str = CONNECT_BACK, batches: int = 0) -> FakeQuery:
    query = FakeQuery("q")
    query.error, query.batches = ValueError(reason), batches
    return query


def ending(batches: int) -> FakeQuery:
    query = FakeQuery("q")
    query.is_stopped, query.batches = True, batches
    return query


def test_the_batch_in_flight_may_end() -> None:
    asked = threading.Event()

    def end_batch(query: FakeQuery) -> None:
        if query.batches:
            asked.set()
        query.batches += 1

    query, said = FakeQuery("q", end_batch), Said()
    QueryRunner(said, asked).run([ready(query)])
    assert query.is_stopped
    assert said.sentences == ["stopping; the batches in flight have 30 s to end"]


def test_a_batch_that_takes_too_long_is_left() -> None:
    asked = threading.Event()
    query, said = FakeQuery("q", lambda query: asked.set()), Said()
    QueryRunner(said, asked, stop_s_max=0.2).run([ready(query)])
    assert query.is_stopped
    assert said.sentences[1] == "a batch takes too long and is interrupted; the next start repeats it"


def test_queries_that_have_ended_end_the_run_and_every_batch_is_counted() -> None:
    def end(query: FakeQuery) -> None:
        query.batches, query.is_stopped = 7, True

    said = Said()
    writer = ready(FakeQuery("q", end))
    QueryRunner(said, threading.Event()).run([writer], once=True)
    fake: Any = writer.writer
    assert (said.last, fake.triggers) == ([("q", 35)], [{"availableNow": True}])


def test_a_query_that_fails_ends_the_others() -> None:
    def fail(query: FakeQuery) -> None:
        query.error = ValueError("Traceback\nlogbrook.spark.errors.DataLossError: offset 3 is gone\n SQLSTATE: 38000")

    healthy = FakeQuery("other")
    healthy.is_busy = False
    with pytest.raises(QueryFailedError, match=r"^query 'bad' failed: offset 3 is gone$") as failed:
        QueryRunner(Said(), threading.Event()).run([ready(healthy), ready(FakeQuery("bad", fail))])
    assert healthy.is_stopped
    assert exit_code_of(failed.value) == 4
    assert "Traceback" in failed.value.details


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """A running JVM process."""
    process = Mock()
    process.poll.return_value = None
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    return process


def test_the_end_of_the_jvm_is_reported_once_and_the_jvm_is_called_no_more(jvm: Mock) -> None:
    looks = 0

    def end_jvm(query: FakeQuery) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            jvm.poll.return_value = -9
            raise Py4JNetworkError("Answer from Java side is empty")

    query, said = FakeQuery("q", end_jvm), Said()
    query.batches = 1
    with pytest.raises(JvmEndedError, match=r"^Spark's JVM was killed by signal 9; start the command again") as ended:
        QueryRunner(said, threading.Event()).run([ready(query)])
    assert (looks, query.is_stopped, exit_code_of(ended.value)) == (2, False, 4)
    assert said.last == [("q", 0)]


def test_a_jvm_that_ends_with_a_requested_stop_is_no_failure(jvm: Mock) -> None:
    asked = threading.Event()

    def end_jvm(query: FakeQuery) -> None:
        jvm.poll.return_value = 143
        asked.set()

    query, said = FakeQuery("q", end_jvm), Said()
    QueryRunner(said, asked).run([ready(query)])
    assert said.sentences[-1] == "Spark's JVM has ended; the next start repeats the batches in flight"
    assert not query.is_stopped


def test_a_query_that_fails_is_restarted_from_its_checkpoint() -> None:
    said = Said()
    runner = QueryRunner(said, threading.Event(), restart=AT_ONCE)
    runner.run([ready(failing(batches=1), failing(batches=2), ending(batches=4))])
    assert said.sentences == [
        "query 'q' failed: Python worker failed to connect back; restart 1 of 3 in 0.001 s",
        "query 'q' failed: Python worker failed to connect back; restart 1 of 3 in 0.001 s",
    ]
    (state,) = runner.states
    assert (state.restarts, state.error, state.batch_id, state.rows) == (2, None, 3, 20)


def test_the_others_continue_while_a_query_waits_for_its_restart() -> None:
    asked, looks = threading.Event(), count()
    healthy = FakeQuery("healthy", lambda query: asked.set() if next(looks) > 3 else None)
    healthy.is_busy = False
    later = RestartPolicy(attempts=3, delay_ms=60_000, delay_ms_max=60_000)
    runner = QueryRunner(Said(), asked, restart=later)
    runner.run([ready(healthy), ready(failing())])
    assert [(state.name, state.error) for state in runner.states] == [
        ("healthy", None),
        ("q", "Python worker failed to connect back."),
    ]
    assert healthy.is_stopped


def test_restarts_without_a_batch_in_between_are_limited() -> None:
    said = Said()
    with pytest.raises(QueryFailedError, match="query 'q' failed: Python worker failed to connect back"):
        QueryRunner(said, threading.Event(), restart=AT_ONCE).run([ready(failing())])
    assert [sentence.rpartition(";")[2] for sentence in said.sentences] == [
        " restart 1 of 3 in 0.001 s",
        " restart 2 of 3 in 0.002 s",
        " restart 3 of 3 in 0.004 s",
    ]


def test_a_start_that_fails_is_repeated() -> None:
    said = Said()
    runner = QueryRunner(said, threading.Event(), restart=AT_ONCE)
    first: Any = ValueError(CONNECT_BACK)
    runner.run([PreparedQuery("q", FakeWriter(first, ending(batches=1)))])  # type: ignore[arg-type]
    assert (runner.states[0].restarts, len(said.sentences)) == (1, 1)


def test_an_error_that_would_occur_again_is_final() -> None:
    reason = "Traceback\nlogbrook.spark.errors.OptionError: option 'x': it is wrong\n SQLSTATE: 38000"
    with pytest.raises(QueryFailedError, match="it is wrong"):
        QueryRunner(Said(), threading.Event(), restart=AT_ONCE).run([ready(failing(reason))])


def test_without_a_policy_the_first_failure_is_final() -> None:
    with pytest.raises(QueryFailedError, match="failed to connect back"):
        QueryRunner(Said(), threading.Event()).run([ready(failing())])


def test_delays_double_up_to_a_limit() -> None:
    policy = RestartPolicy(attempts=9, delay_ms=500, delay_ms_max=3_000)
    assert [policy.delay_s(failures) for failures in (1, 2, 3, 4, 60)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_query_that_ran_for_long_has_recovered() -> None:
    now_s = 0.0
    policy = RestartPolicy(attempts=1, delay_ms=1_000, delay_ms_max=60_000)
    query = RestartableQuery(ready(failing()), policy, lambda: now_s)
    for _ in range(5):
        assert query.start(once=False) is None
        now_s += 61
        query.state.is_done = True
        assert "restart 1 of 1 in 1 s" in (query.handle_failure() or "")
        assert not query.is_due
        now_s += 1
        assert query.is_due
    query.start(once=False)
    query.state.is_done = True
    with pytest.raises(QueryFailedError):
        query.handle_failure()
