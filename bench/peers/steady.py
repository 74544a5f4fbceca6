"""The rule by which a line of the comparison is steady, the same for every system.

A line (one case of one system) consists of runs of 2 s. Each run has a new topic and new connections, so that the state
of the disk, of the page cache and of the client is the same for every run and system, and the systems of a case take
turns, run by run. A window is five runs, 10 s. A line is steady when the medians of its last two windows agree within
5 %, for each value that decides: throughput and CPU time, or the median latency. The runs of a virtual machine vary by
more than 5 %, so that single runs could not tell a warm-up from noise. All systems of a case go on until each of its
lines has been steady, so that the windows which are compared are of the same time: a machine that gets slower would
otherwise count against the system that takes longer. A line that is not steady after 60 s says so in its row, with all
of its runs.

Reported are the median and the spread of the last window.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from bench.peers.results import Row, State

_STEADY_S_MIN = 10.0
_RUNS_MIN = 3


@dataclass(frozen=True)
class SteadyRule:
    """Two windows of `runs` runs each must differ by at most `share`; a line ends after `seconds_max` at the latest."""

    run_s: float = 2.0
    runs: int = 5
    share: float = 0.05
    seconds_max: float = 60.0

    @property
    def is_quick(self) -> bool:
        """True if a window is shorter than the rule asks for: then nothing is steady."""
        return self.runs * self.run_s < _STEADY_S_MIN

    @property
    def runs_min(self) -> int:
        return 2 * self.runs

    @property
    def seconds_min(self) -> float:
        return self.runs_min * self.run_s

    @property
    def runs_max(self) -> int:
        return max(self.runs_min, int(self.seconds_max / self.run_s))

    def with_run(self, run_s: float) -> Self:
        """Return the rule for a line whose runs cannot be as short: with fewer of them. A quick run keeps its own."""
        if self.is_quick:
            return self
        runs = max(_RUNS_MIN, math.ceil(_STEADY_S_MIN / run_s))
        return replace(self, run_s=run_s, runs=min(self.runs, runs))

    def agree(self, values: Sequence[float]) -> bool:
        """True if the medians of the last two windows differ by at most `share` of the smaller one."""
        if len(values) < self.runs_min:
            return False
        last = statistics.median(values[-self.runs :])
        before = statistics.median(values[-self.runs_min : -self.runs])
        return max(last, before) <= (1 + self.share) * min(last, before)


class Measured(NamedTuple):
    """A value of one run. The line is steady when every value with `decides` agrees."""

    metric: str
    unit: str
    value: float
    higher_is_better: bool = False
    decides: bool = False
    note: str = ""


Run = list[Measured]


class SteadyLine:
    """The runs of one system in one case."""

    def __init__(self, rule: SteadyRule, of: tuple[str, str]) -> None:
        self.of = of
        self._rule = rule
        self.runs: list[Run] = []
        # True from the first two windows that agree.
        self.is_steady = False

    def add(self, run: Run) -> None:
        self.runs.append(run)
        deciding = self.deciding
        self.is_steady |= bool(deciding) and all(self._rule.agree(self.values(metric)) for metric in deciding)

    @property
    def deciding(self) -> list[str]:
        return [item.metric for item in self.runs[-1] if item.decides] if self.runs else []

    @property
    def is_finished(self) -> bool:
        return self.is_steady or len(self.runs) >= self._rule.runs_max

    @property
    def state(self) -> State:
        if self._rule.is_quick:
            return State.QUICK
        return State.STEADY if self.is_steady else State.NOT_STEADY

    def values(self, metric: str) -> list[float]:
        return [item.value for run in self.runs for item in run if item.metric == metric]

    def rows(self, measurement: str, what: str) -> list[Row]:
        """Return a row per metric: its last window, and all runs if the line is not steady."""
        system, promise = self.of
        state = self.state
        window = self.runs[-self._rule.runs :]
        rows = []
        for item in self.runs[-1]:
            values = tuple(self.values(item.metric))
            # A note given by any of the runs that count is kept.
            notes = [other.note for run in window for other in run if other.metric == item.metric and other.note]
            rows.append(
                Row(
                    measurement,
                    what,
                    item.metric,
                    item.unit,
                    system,
                    promise,
                    values[-self._rule.runs :],
                    item.higher_is_better,
                    notes[0] if notes else "",
                    state=state,
                    runs=values if state is State.NOT_STEADY else (),
                )
            )
        return rows


def run_in_turns(
    rule: SteadyRule,
    run_of: Mapping[tuple[str, str], Callable[[], Run]],
    report: Callable[[SteadyLine], None] = lambda _: None,
) -> list[SteadyLine]:
    """Run the systems in turns until each has been steady or has used its time; `report` gets each line then."""
    lines = {of: SteadyLine(rule, of) for of in run_of}
    try:
        while not all(line.is_finished for line in lines.values()):
            for line in lines.values():
                line.add(run_of[line.of]())
    finally:
        # The runs of an interrupted line are reported, too.
        for line in lines.values():
            report(line)
    return list(lines.values())
