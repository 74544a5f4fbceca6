"""How queries are watched and ended, with queries that only play their part."""

import json
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from logbrook.spark.pipeline.compiling import Query
from logbrook.spark.pipeline.errors import QueryFailedError, exit_code_of
from logbrook.spark.pipeline.running import Run
from logbrook.spark.pipeline.watching import QueryState


class FakeQuery:
    """A query that is in the middle of a batch until `on_look` says something else."""

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
            {"timestamp": f"2026-01-01T00:00:{number:02}.000Z", "batchId": number, "numInputRows": 5}
            for number in range(self.batches)
        ]
        return [SimpleNamespace(batchId=report["batchId"], json=json.dumps(report)) for report in reports]

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.is_stopped = True


class FakeWriter:
    def __init__(self, query: FakeQuery) -> None:
        self.query = query
        self.triggers: list[dict[str, Any]] = []

    def trigger(self, **trigger: Any) -> "FakeWriter":
        self.triggers.append(trigger)
        return self

    def start(self) -> FakeQuery:
        return self.query


class Said:
    """A display that remembers."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.last: list[tuple[str, int]] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def update(self, states: Sequence[QueryState]) -> None:
        pass

    def close(self, states: Sequence[QueryState]) -> None:
        self.last = [(state.name, state.rows) for state in states]


def ready(query: FakeQuery) -> Query:
    writer: Any = FakeWriter(query)
    return Query(query.name, writer)


def test_the_batch_in_flight_may_end() -> None:
    asked = threading.Event()

    def end_batch(query: FakeQuery) -> None:
        if query.batches:
            asked.set()
        query.batches += 1

    query, said = FakeQuery("q", end_batch), Said()
    Run(said, asked).run([ready(query)])
    assert query.is_stopped
    assert said.sentences == ["stopping; the batches in flight have 30 s to end"]


def test_a_batch_that_takes_too_long_is_left() -> None:
    asked = threading.Event()
    query, said = FakeQuery("q", lambda query: asked.set()), Said()
    Run(said, asked, stop_s_max=0.2).run([ready(query)])
    assert query.is_stopped
    assert said.sentences[1] == "a batch takes too long; it is left, and begins again with the next start"


def test_queries_that_have_ended_end_the_run_and_every_batch_is_counted() -> None:
    def end(query: FakeQuery) -> None:
        query.batches, query.is_stopped = 7, True

    said = Said()
    writer = ready(FakeQuery("q", end))
    Run(said, threading.Event()).run([writer], once=True)
    fake: Any = writer.writer
    assert (said.last, fake.triggers) == ([("q", 35)], [{"availableNow": True}])


def test_a_query_that_fails_ends_the_others() -> None:
    def fail(query: FakeQuery) -> None:
        query.error = ValueError("Traceback\nlogbrook.spark.errors.DataLossError: offset 3 is gone\n SQLSTATE: 38000")

    other = FakeQuery("other")
    other.is_busy = False
    with pytest.raises(QueryFailedError, match=r"^query 'bad' failed: offset 3 is gone$") as failed:
        Run(Said(), threading.Event()).run([ready(other), ready(FakeQuery("bad", fail))])
    assert other.is_stopped
    assert exit_code_of(failed.value) == 4
    assert "Traceback" in failed.value.details
