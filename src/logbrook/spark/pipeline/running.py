"""Running of streaming queries: start, progress, restart, graceful stop; and the reports of it to the reports topic.

Stopping within a micro-batch is safe, because the checkpoint makes the query repeat it, but an at-least-once topic sink
then writes records twice. A requested stop therefore waits for the batches in flight, up to `STOP_S_MAX`.

Reported rows per second are averaged over the last 30 s, or over three batches if those take longer. Spark's own rate
is that of the last batch, and would not drop when no more records arrive.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from logbrook.pipelines.report import RunState, SinkReport, SourceReport
from logbrook.pipelines.reporter import PipelineReporter
from logbrook.spark.jvm import jvm_exit_code, raise_if_jvm_ended
from logbrook.spark.pipeline.compiling import PreparedQuery
from logbrook.spark.pipeline.display import Display, QueryProgress
from logbrook.spark.pipeline.outage_watch import OutageWatch
from logbrook.spark.pipeline.restarting import RestartableQuery
from logbrook.spark.pipeline.spec import NO_RESTARTS, RestartPolicy

STOP_S_MAX = 30.0
_POLL_S = 0.5
_STOP_POLL_S = 0.1
_INITIALIZATION_S_MAX = 30.0
_RATE_WINDOW_S = 30.0
_RATE_BATCHES_MIN = 3


class QueryRunner:
    """Runs queries until all have ended, one has failed for good, or `stop_requested` is set."""

    def __init__(
        self,
        display: Display,
        stop_requested: threading.Event,
        *,
        restart: RestartPolicy = NO_RESTARTS,
        stop_s_max: float = STOP_S_MAX,
        outages: OutageWatch | None = None,
    ) -> None:
        self._display = display
        self._stop_requested = stop_requested
        self._restart = restart
        self._stop_s_max = stop_s_max
        self._outages = outages or OutageWatch(None)
        self._queries: list[RestartableQuery] = []

    @property
    def states(self) -> list[QueryProgress]:
        return [query.state for query in self._queries]

    def run(self, queries: Sequence[PreparedQuery], *, once: bool = False) -> None:
        """Run the queries; with `once` they process the available records and end.

        Raises QueryFailedError, or JvmEndedError unless a stop was requested: a signal to all processes ends the JVM,
        too.
        """
        try:
            self._run(queries, once)
        # Py4J's errors have no common class. Whatever they are, the end of the JVM is their cause.
        except Exception:
            if jvm_exit_code() is None:
                raise
            if not self._stop_requested.is_set():
                raise_if_jvm_ended()
            self._display.print("Spark's JVM has ended; the next start repeats the batches in flight")
        finally:
            self._display.close(self.states)

    def _run(self, queries: Sequence[PreparedQuery], once: bool) -> None:
        try:
            for prepared in queries:
                if self._stop_requested.is_set():
                    break
                query = RestartableQuery(prepared, self._restart)
                self._queries.append(query)
                self._start(query, once)
            while not self._stop_requested.wait(_POLL_S):
                self._poll()
                self._restart_failed(once)
                for message in self._outages.update(self.states):
                    self._display.print(message)
                self._display.update(self.states)
                if all(state.is_done for state in self.states):
                    return
            self._display.print(f"stopping; the batches in flight have {self._stop_s_max:g} s to end")
        finally:
            self._stop()

    def _start(self, query: RestartableQuery, once: bool) -> None:
        if (message := query.start(once=once)) is not None:
            self._display.print(message)
        # Each query starts a Python process for its sources, with a timeout of ten seconds in Spark. Starting them one
        # after the other meets it on a busy machine, too.
        deadline_s = time.monotonic() + _INITIALIZATION_S_MAX
        while query.query is not None and _is_initializing(query.query) and time.monotonic() < deadline_s:
            if self._stop_requested.wait(_STOP_POLL_S):
                return

    def _poll(self) -> None:
        raise_if_jvm_ended()
        for query in self._queries:
            if query.query is not None:
                is_active = query.query.isActive
                if query.state.update(_new_reports(query.query, query.state, has_ended=not is_active)):
                    query.state.progressed_ms = round(time.time() * 1000)
                query.state.is_done = not is_active

    def _restart_failed(self, once: bool) -> None:
        for query in self._queries:
            if (message := query.handle_failure()) is not None:
                self._display.print(message)
            if query.is_due:
                self._start(query, once)

    def _stop(self) -> None:
        """Wait for the batches in flight, then stop the queries."""
        self._poll()
        batch_ids = [query.state.batch_id for query in self._queries]
        deadline_s = time.monotonic() + self._stop_s_max
        pause = threading.Event()
        while any(
            _is_busy(query.query) and batch_id == query.state.batch_id
            for query, batch_id in zip(self._queries, batch_ids, strict=True)
        ):
            if time.monotonic() > deadline_s:
                self._display.print("a batch takes too long and is interrupted; the next start repeats it")
                break
            pause.wait(_STOP_POLL_S)
            self._poll()
        for query in self._queries:
            if query.query is not None:
                query.query.stop()
        self._poll()


class ReportedRun:
    """Reports of one run from start to end; without a reporter nothing is sent."""

    def __init__(self, reporter: PipelineReporter | None, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._reporter = reporter
        self._clock_s = clock_s
        self._begun_s = clock_s()
        self._rates: dict[str, _RowRate] = {}
        self.has_begun = False
        self._sinks: tuple[SinkReport, ...] = ()
        self._sources: tuple[SourceReport, ...] = ()
        self._query_error: str | None = None

    @property
    def problem(self) -> str | None:
        """Return the reason why the last report could not be sent, or None."""
        return None if self._reporter is None else self._reporter.problem

    def send(self, state: RunState, error: str | None = None) -> None:
        self.has_begun = True
        if self._reporter is not None:
            self._reporter.report(state, sinks=self._sinks, sources=self._sources, error=error or self._query_error)

    def begin(self) -> None:
        """Start measuring row rates."""
        self._begun_s = self._clock_s()

    def update(self, states: Sequence[QueryProgress]) -> None:
        """Update what the next report says of the queries."""
        self._sinks = tuple(self._sink_of(state) for state in states)
        # A failure after which a query is restarted. One that ends the run is an argument of `send`.
        self._query_error = next((f"query {state.name!r}: {state.error}" for state in states if state.error), None)
        lags: dict[str, int] = {}
        for state in states:
            for topic, lag in state.lags.items():
                lags[topic] = max(lag, lags.get(topic, 0))
        self._sources = tuple(SourceReport(topic, lag) for topic, lag in sorted(lags.items()))

    def close(self) -> None:
        if self._reporter is not None:
            self._reporter.close()

    def _sink_of(self, state: QueryProgress) -> SinkReport:
        rate = self._rates.setdefault(state.name, _RowRate(self._begun_s))
        has_batch = state.batch_id is not None
        return SinkReport(
            name=state.name,
            rows=state.rows,
            rows_per_s=round(rate.rows_per_s(self._clock_s(), state.rows, state.batch_s), 1),
            batch_id=state.batch_id,
            batch_s=state.batch_s if has_batch else None,
            batch_at_ms=state.batch_at_ms,
            restarts=state.restarts,
        )


class ReportingDisplay:
    """A display that also sends reports, and warns once if that fails."""

    def __init__(self, display: Display, run: ReportedRun) -> None:
        self._display = display
        self._run = run
        self._has_warned = False
        run.begin()

    def print(self, message: str) -> None:
        self._display.print(message)

    def update(self, states: Sequence[QueryProgress]) -> None:
        self._display.update(states)
        self._run.update(states)
        self._run.send(RunState.RUNNING)
        self.warn_once()

    def close(self, states: Sequence[QueryProgress]) -> None:
        self._run.update(states)
        self._display.close(states)

    def warn_once(self) -> None:
        if self._run.problem is not None and not self._has_warned:
            self._has_warned = True
            self.print(f"warning: the progress of this pipeline cannot be reported: {self._run.problem}")


class _RowRate:
    """Row rate over a sliding window."""

    def __init__(self, begun_s: float) -> None:
        self._points: deque[tuple[float, int]] = deque([(begun_s, 0)])

    def rows_per_s(self, now_s: float, rows: int, batch_s: float) -> float:
        window_s = max(_RATE_WINDOW_S, _RATE_BATCHES_MIN * batch_s)
        self._points.append((now_s, rows))
        while len(self._points) > 1 and now_s - self._points[0][0] > window_s:
            self._points.popleft()
        since_s, rows_then = self._points[0]
        return (rows - rows_then) / (now_s - since_s) if now_s > since_s else 0.0


def _is_busy(query: StreamingQuery | None) -> bool:
    return query is not None and query.isActive and bool(query.status["isTriggerActive"])


def _is_initializing(query: StreamingQuery) -> bool:
    return query.isActive and "nitializing" in query.status["message"]


def _new_reports(query: StreamingQuery, state: QueryProgress, *, has_ended: bool) -> list[dict[str, Any]]:
    """Return Spark's latest progress report, or all recent ones if some may have been missed."""
    last = query.lastProgress
    if last is None:
        return []
    missed = last.batchId - (-1 if state.batch_id is None else state.batch_id) > 1
    reports = query.recentProgress if missed or has_ended else [last]
    return [json.loads(report.json) for report in reports]
