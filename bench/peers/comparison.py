"""Compares Logbrook with the best other system, row by row. Rows whose spreads overlap are even."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from bench.peers.results import Row

OURS = "Logbrook"
# Measured under both promises and compared under the same one; other measurements use each system's defaults.
PAIRED = frozenset({"throughput", "java", "latency", "end_to_end", "transactions", "cluster_load"})
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
    def verdict(self) -> Verdict:
        if self.ours.low <= self.best.high and self.best.low <= self.ours.high:
            return Verdict.EVEN
        return Verdict.AHEAD if self.times > 1 else Verdict.BEHIND


def group_of(row: Row) -> tuple[str, str, str, str]:
    """Return the key of the table line that the row is on."""
    return (row.measurement, row.promise if row.measurement in PAIRED else "", row.metric, row.what)


def compared(rows: Iterable[Row]) -> dict[tuple[str, str, str, str], Comparison]:
    """Return a comparison for every line with Logbrook and at least one other system."""
    lines: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        if _NOT_COMPARED not in row.metric:
            lines.setdefault(group_of(row), []).append(row)
    comparisons = {}
    for group, on_line in lines.items():
        ours = [row for row in on_line if row.system == OURS]
        others = [row for row in on_line if row.system != OURS]
        if ours and others:
            pick = max if others[0].higher_is_better else min
            comparisons[group] = Comparison(ours[0], pick(others, key=lambda row: row.median))
    return comparisons
