"""How a pipeline is, told to the cluster while it runs: what a display shows to a person, as reports.

Rows per second are over the last half minute, or over three batches if these take longer: Spark's own number is of the
last batch, and would stay what it was when nothing comes any more.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence

from logbrook.pipelines.report import RunState, SinkReport, SourceReport
from logbrook.pipelines.reporter import Reporter
from logbrook.spark.pipeline.display import Display
from logbrook.spark.pipeline.watching import QueryState

_PACE_S = 30.0
_PACE_BATCHES = 3


class ReportedRun:
    """A run that may be reported, from its start to its end; without a reporter nobody is told."""

    def __init__(self, reporter: Reporter | None, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._reporter = reporter
        self._clock_s = clock_s
        self._begun_s = clock_s()
        self._paces: dict[str, _Pace] = {}
        self.has_begun = False
        self._sinks: tuple[SinkReport, ...] = ()
        self._sources: tuple[SourceReport, ...] = ()

    @property
    def problem(self) -> str | None:
        """Why nobody could be told the last time."""
        return None if self._reporter is None else self._reporter.problem

    def tell(self, state: RunState, error: str | None = None) -> None:
        self.has_begun = True
        if self._reporter is not None:
            self._reporter.tell(state, sinks=self._sinks, sources=self._sources, error=error)

    def begin(self) -> None:
        """Rows are counted from now on."""
        self._begun_s = self._clock_s()

    def progress(self, states: Sequence[QueryState]) -> None:
        """How far its queries are."""
        self._sinks = tuple(self._sink_of(state) for state in states)
        lags: dict[str, int] = {}
        for state in states:
            for topic, lag in state.lags.items():
                lags[topic] = max(lag, lags.get(topic, 0))
        self._sources = tuple(SourceReport(topic, lag) for topic, lag in sorted(lags.items()))

    def close(self) -> None:
        if self._reporter is not None:
            self._reporter.close()

    def _sink_of(self, state: QueryState) -> SinkReport:
        pace = self._paces.setdefault(state.name, _Pace(self._begun_s))
        has_batch = state.batch_id is not None
        return SinkReport(
            name=state.name,
            rows=state.rows,
            rows_per_s=round(pace.rows_per_s(self._clock_s(), state.rows, state.batch_s), 1),
            batch_id=state.batch_id,
            batch_s=state.batch_s if has_batch else None,
            batch_at_ms=state.batch_at_ms,
        )


class ReportingDisplay:
    """A display that also has the cluster told, and says once if that does not work."""

    def __init__(self, display: Display, run: ReportedRun) -> None:
        self._display = display
        self._run = run
        self._has_warned = False
        run.begin()

    def say(self, sentence: str) -> None:
        self._display.say(sentence)

    def update(self, states: Sequence[QueryState]) -> None:
        self._display.update(states)
        self._run.progress(states)
        self._run.tell(RunState.RUNNING)
        self.warn()

    def close(self, states: Sequence[QueryState]) -> None:
        self._run.progress(states)
        self._display.close(states)

    def warn(self) -> None:
        if self._run.problem is not None and not self._has_warned:
            self._has_warned = True
            self.say(f"warning: the console cannot be told how this pipeline is: {self._run.problem}")


class _Pace:
    """Rows over time, of which the last are kept."""

    def __init__(self, begun_s: float) -> None:
        self._points: deque[tuple[float, int]] = deque([(begun_s, 0)])

    def rows_per_s(self, now_s: float, rows: int, batch_s: float) -> float:
        window_s = max(_PACE_S, _PACE_BATCHES * batch_s)
        self._points.append((now_s, rows))
        while len(self._points) > 1 and now_s - self._points[0][0] > window_s:
            self._points.popleft()
        since_s, before = self._points[0]
        return (rows - before) / (now_s - since_s) if now_s > since_s else 0.0
