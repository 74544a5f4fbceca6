"""Compares Logbrook with the best other system, or with one, row by row. Rows whose spreads overlap are even.

Only rows of the same version of the tree are compared: those were measured in turns, in one run or in parts of it.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.peers.results import Row, State

OURS = "Logbrook"
REFERENCE = "sendfile"
# Measured under both promises and compared under the same one; other measurements use each system's defaults.
PAIRED = frozenset(
    {
        "throughput",
        "consume",
        "java",
        "latency",
        "end_to_end",
        "transactions",
        "small_requests",
        "disk_writes",
        "many_partitions",
        "fan_out",
        "beside",
        "idle_groups",
        "compaction",
        "warm_up",
        "cluster_load",
    }
)
# A property of the client, not of the system.
_NOT_COMPARED = "CPU of the load"


class Verdict(StrEnum):
    AHEAD = "ahead"
    EVEN = "even"
    BEHIND = "behind"


@dataclass(frozen=True)
class Comparison:
    """One row of Logbrook and the best other. `times` above 1 means that Logbrook is better by that factor."""

    ours: Row
    best: Row

    @property
    def times(self) -> float:
        better, worse = (self.ours, self.best) if self.ours.higher_is_better else (self.best, self.ours)
        return better.median / worse.median if worse.median else float("inf")

    @property
    def ratio(self) -> float:
        """Return the value of Logbrook divided by that of the other, whichever is better."""
        return self.ours.median / self.best.median if self.best.median else float("inf")

    @property
    def verdict(self) -> Verdict:
        if self.ours.low <= self.best.high and self.best.low <= self.ours.high:
            return Verdict.EVEN
        return Verdict.AHEAD if self.times > 1 else Verdict.BEHIND

    @property
    def state(self) -> State:
        """Return the weaker state of the two rows."""
        order = (State.OLDER, State.QUICK, State.NOT_STEADY, State.ROUNDS, State.STEADY)
        return min(self.ours.state, self.best.state, key=order.index)


@dataclass(frozen=True)
class Summary:
    """All comparisons of one metric."""

    comparisons: Sequence[Comparison]

    @property
    def ratio(self) -> float:
        return statistics.median(self._ratios)

    @property
    def least(self) -> float:
        return min(self._ratios)

    @property
    def most(self) -> float:
        return max(self._ratios)

    def count(self, verdict: Verdict) -> int:
        return sum(comparison.verdict is verdict for comparison in self.comparisons)

    def states(self) -> dict[State, int]:
        states = [comparison.state for comparison in self.comparisons]
        return {state: states.count(state) for state in State if state in states}

    @property
    def _ratios(self) -> list[float]:
        return [comparison.ratio for comparison in self.comparisons]


Group = tuple[str, str, str, str]


def group_of(row: Row) -> Group:
    """Return the key of the table line that the row is on: measurement, promise, metric and case."""
    return (row.measurement, row.promise if row.measurement in PAIRED else "", row.metric, row.what)


def compared(rows: Iterable[Row]) -> dict[Group, Comparison]:
    """Return a comparison for every line with Logbrook and at least one other system of the same version."""
    lines: dict[Group, list[Row]] = {}
    for row in rows:
        if _NOT_COMPARED not in row.metric and row.system != REFERENCE:
            lines.setdefault(group_of(row), []).append(row)
    comparisons = {}
    for group, on_line in lines.items():
        ours = [row for row in on_line if row.system == OURS]
        others = [row for row in on_line if row.system != OURS and ours and row.version == ours[0].version]
        if others:
            pick = max if others[0].higher_is_better else min
            comparisons[group] = Comparison(ours[0], pick(others, key=lambda row: row.median))
    return comparisons
