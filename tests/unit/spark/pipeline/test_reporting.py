"""Reports of a run, and the warning if they cannot be sent."""

from collections.abc import Sequence

from logbrook.pipelines.report import RunState, SinkReport, SourceReport
from logbrook.pipelines.reporter import PipelineReporter
from logbrook.spark.pipeline.display import QueryProgress
from logbrook.spark.pipeline.running import ReportedRun, ReportingDisplay


class RecordingReporter(PipelineReporter):
    """A reporter that records reports."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1", "t", "p")
        self.reports: list[tuple[RunState, tuple[SinkReport, ...], tuple[SourceReport, ...], str | None]] = []

    def report(
        self,
        state: RunState,
        *,
        sinks: Sequence[SinkReport] = (),
        sources: Sequence[SourceReport] = (),
        error: str | None = None,
    ) -> None:
        self.reports.append((state, tuple(sinks), tuple(sources), error))


class Screen:
    """A display that records messages."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.updates = 0

    def print(self, message: str) -> None:
        self.sentences.append(message)

    def update(self, states: Sequence[QueryProgress]) -> None:
        self.updates += 1

    def close(self, states: Sequence[QueryProgress]) -> None:
        self.updates += 1


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_report_has_each_query_and_of_each_topic_the_largest_lag() -> None:
    reporter, clock = RecordingReporter(), Clock()
    run = ReportedRun(reporter, clock)
    run.send(RunState.STARTING)
    display = ReportingDisplay(Screen(), run)
    clock.now_s += 10
    first = QueryProgress("p-a", 3, 50, batch_s=0.5, batch_at_ms=7, lag=5, lags={"x": 5, "y": 0})
    display.update([first, QueryProgress("p-b", lags={"x": 2})])
    display.close([first])
    run.send(RunState.FAILED, "it broke")
    sink = SinkReport("p-a", 50, 5.0, 3, 0.5, 7)
    sources = (SourceReport("x", 5), SourceReport("y", 0))
    assert reporter.reports == [
        (RunState.STARTING, (), (), None),
        (RunState.RUNNING, (sink, SinkReport("p-b")), sources, None),
        (RunState.FAILED, (sink,), sources, "it broke"),
    ]


def test_a_failure_is_reported_until_a_batch_succeeds() -> None:
    reporter = RecordingReporter()
    run = ReportedRun(reporter)
    state = QueryProgress("p-a", restarts=2, error="it broke")
    run.update([QueryProgress("p-b"), state])
    run.send(RunState.RUNNING)
    state.error = None
    run.update([state])
    run.send(RunState.RUNNING)
    assert [error for _, _, _, error in reporter.reports] == ["query 'p-a': it broke", None]
    assert reporter.reports[1][1] == (SinkReport("p-a", restarts=2),)


def rates(
    run: ReportedRun, reporter: RecordingReporter, clock: Clock, rows: Sequence[int], batch_s: float = 0.5
) -> list[float]:
    """Return the rates for the given row counts, each ten seconds after the one before."""
    state, rates_seen = QueryProgress("q", 0, batch_s=batch_s), []
    for state.rows in rows:
        clock.now_s += 10
        run.update([state])
        run.send(RunState.RUNNING)
        rates_seen.append(reporter.reports[-1][1][0].rows_per_s)
    return rates_seen


def test_rows_per_second_are_of_the_last_half_minute_and_end_when_nothing_comes() -> None:
    reporter, clock = RecordingReporter(), Clock()
    per_report = rates(ReportedRun(reporter, clock), reporter, clock, [100, 300, 300, 300, 300, 300])
    assert per_report == [10.0, 15.0, 10.0, 6.7, 0.0, 0.0]


def test_batches_that_take_long_have_a_rate_all_the_time() -> None:
    reporter, clock = RecordingReporter(), Clock()
    per_report = rates(ReportedRun(reporter, clock), reporter, clock, [0, 0, 0, 0, 800, 800, 800, 800], batch_s=40)
    assert all(per_report[4:])


def test_a_problem_is_reported_once() -> None:
    reporter, screen = RecordingReporter(), Screen()
    display = ReportingDisplay(screen, ReportedRun(reporter))
    display.update([])
    assert screen.sentences == []
    reporter.problem = "nobody answers"
    for _ in range(3):
        display.update([])
    assert screen.sentences == ["warning: the progress of this pipeline cannot be reported: nobody answers"]
    assert screen.updates == 4


def test_without_a_reporter_nothing_happens() -> None:
    run = ReportedRun(None)
    run.update([QueryProgress("q")])
    run.send(RunState.RUNNING)
    run.close()
    assert run.problem is None
