"""Streaming queries from their start to their end.

A stop in the middle of a batch is safe, because the checkpoint has the batch begin again; but to a topic it then writes
some records twice. So whoever asks for an end gets it after the batches in flight, unless they take too long.
"""

import json
import threading
import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from logbrook.spark.pipeline.compiling import Query
from logbrook.spark.pipeline.display import Display
from logbrook.spark.pipeline.errors import QueryFailedError
from logbrook.spark.pipeline.watching import QueryState
from logbrook.spark.sentences import sentence_of

STOP_S_MAX = 30.0
_LOOK_EVERY_S = 0.5
_LOOK_AT_END_EVERY_S = 0.1
_INITIALIZING_S_MAX = 30.0


class Run:
    """Runs queries until all have ended, one has failed, or `asked` is set."""

    def __init__(self, display: Display, asked: threading.Event, *, stop_s_max: float = STOP_S_MAX) -> None:
        self._display = display
        self._asked = asked
        self._stop_s_max = stop_s_max
        self._running: list[tuple[StreamingQuery, QueryState]] = []

    @property
    def states(self) -> list[QueryState]:
        return [state for _, state in self._running]

    def run(self, queries: Sequence[Query], *, once: bool = False) -> None:
        """With `once` they take what is there and end. Raises QueryFailedError."""
        try:
            for query in queries:
                if self._asked.is_set():
                    break
                self._start(query, once)
            while not self._asked.wait(_LOOK_EVERY_S):
                self._look()
                self._raise_failure()
                self._display.update(self.states)
                if all(state.is_done for state in self.states):
                    return
            self._display.say(f"stopping; the batches in flight have {self._stop_s_max:g} s to end")
        finally:
            self._stop()
            self._display.close(self.states)

    def _start(self, query: Query, once: bool) -> None:
        writer = query.writer.trigger(availableNow=True) if once else query.writer
        try:
            started = writer.start()
        # Spark passes on the errors of Java and of Python, which have no common class.
        except Exception as error:
            raise QueryFailedError(query.name, sentence_of(error), str(error)) from error
        self._running.append((started, QueryState(started.name or query.name)))
        # Each query brings up a Python of its own for its sources, and Spark gives it ten seconds. One after the other
        # they make it on a busy machine too.
        deadline_s = time.monotonic() + _INITIALIZING_S_MAX
        while _is_initializing(started) and time.monotonic() < deadline_s:
            if self._asked.wait(_LOOK_AT_END_EVERY_S):
                return

    def _look(self) -> None:
        for query, state in self._running:
            is_active = query.isActive
            state.take(_reports(query, state, has_ended=not is_active))
            state.is_done = not is_active

    def _raise_failure(self) -> None:
        for query, state in self._running:
            if state.is_done and (error := query.exception()) is not None:
                raise QueryFailedError(state.name, sentence_of(error), str(error)) from error

    def _stop(self) -> None:
        """Let the batches in flight end, and then the queries."""
        self._look()
        begun = {id(query): state.batch_id for query, state in self._running}
        deadline_s = time.monotonic() + self._stop_s_max
        pause = threading.Event()
        while any(_is_busy(query) and begun[id(query)] == state.batch_id for query, state in self._running):
            if time.monotonic() > deadline_s:
                self._display.say("a batch takes too long; it is left, and begins again with the next start")
                break
            pause.wait(_LOOK_AT_END_EVERY_S)
            self._look()
        for query, _ in self._running:
            query.stop()
        self._look()


def _is_busy(query: StreamingQuery) -> bool:
    return query.isActive and bool(query.status["isTriggerActive"])


def _is_initializing(query: StreamingQuery) -> bool:
    return query.isActive and "nitializing" in query.status["message"]


def _reports(query: StreamingQuery, state: QueryState, *, has_ended: bool) -> list[dict[str, Any]]:
    """What Spark has reported of the last batches; all of them only where one may have been missed."""
    last = query.lastProgress
    if last is None:
        return []
    missed = last.batchId - (-1 if state.batch_id is None else state.batch_id) > 1
    reports = query.recentProgress if missed or has_ended else [last]
    return [json.loads(report.json) for report in reports]
