"""What is made of queries for the cluster, and what a person hears of it."""

from collections.abc import Sequence

from logbrook.pipelines.report import RunState, SinkReport, SourceReport
from logbrook.pipelines.reporter import Reporter
from logbrook.spark.pipeline.reporting import ReportedRun, ReportingDisplay
from logbrook.spark.pipeline.watching import QueryState


class Told(Reporter):
    """A reporter that remembers instead."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1", "t", "p")
        self.told: list[tuple[RunState, tuple[SinkReport, ...], tuple[SourceReport, ...], str | None]] = []

    def tell(
        self,
        state: RunState,
        *,
        sinks: Sequence[SinkReport] = (),
        sources: Sequence[SourceReport] = (),
        error: str | None = None,
    ) -> None:
        self.told.append((state, tuple(sinks), tuple(sources), error))


class Screen:
    """A display that remembers."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.updates = 0

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def update(self, states: Sequence[QueryState]) -> None:
        self.updates += 1

    def close(self, states: Sequence[QueryState]) -> None:
        self.updates += 1


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_report_has_each_query_and_of_each_topic_the_largest_lag() -> None:
    told, clock = Told(), Clock()
    run = ReportedRun(told, clock)
    run.tell(RunState.STARTING)
    display = ReportingDisplay(Screen(), run)
    clock.now_s += 10
    first = QueryState("p-a", 3, 50, batch_s=0.5, batch_at_ms=7, lag=5, lags={"x": 5, "y": 0})
    display.update([first, QueryState("p-b", lags={"x": 2})])
    display.close([first])
    run.tell(RunState.FAILED, "it broke")
    sink = SinkReport("p-a", 50, 5.0, 3, 0.5, 7)
    sources = (SourceReport("x", 5), SourceReport("y", 0))
    assert told.told == [
        (RunState.STARTING, (), (), None),
        (RunState.RUNNING, (sink, SinkReport("p-b")), sources, None),
        (RunState.FAILED, (sink,), sources, "it broke"),
    ]


def rates(run: ReportedRun, told: Told, clock: Clock, rows: Sequence[int], batch_s: float = 0.5) -> list[float]:
    """With the given rows, each ten seconds after the one before."""
    state, found = QueryState("q", 0, batch_s=batch_s), []
    for state.rows in rows:
        clock.now_s += 10
        run.progress([state])
        run.tell(RunState.RUNNING)
        found.append(told.told[-1][1][0].rows_per_s)
    return found


def test_rows_per_second_are_of_the_last_half_minute_and_end_when_nothing_comes() -> None:
    told, clock = Told(), Clock()
    found = rates(ReportedRun(told, clock), told, clock, [100, 300, 300, 300, 300, 300])
    assert found == [10.0, 15.0, 10.0, 6.7, 0.0, 0.0]


def test_batches_that_take_long_have_a_rate_all_the_time() -> None:
    told, clock = Told(), Clock()
    found = rates(ReportedRun(told, clock), told, clock, [0, 0, 0, 0, 800, 800, 800, 800], batch_s=40)
    assert all(found[4:])


def test_a_problem_is_told_once() -> None:
    told, screen = Told(), Screen()
    display = ReportingDisplay(screen, ReportedRun(told))
    display.update([])
    assert screen.sentences == []
    told.problem = "nobody answers"
    for _ in range(3):
        display.update([])
    assert screen.sentences == ["warning: the console cannot be told how this pipeline is: nobody answers"]
    assert screen.updates == 4


def test_without_a_reporter_nothing_happens() -> None:
    run = ReportedRun(None)
    run.progress([QueryState("q")])
    run.tell(RunState.RUNNING)
    run.close()
    assert run.problem is None
