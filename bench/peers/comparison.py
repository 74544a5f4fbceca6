"""Logbrook beside the best of the others, row by row. Where the spreads overlap nobody is ahead."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from bench.peers.results import Row

OURS = "Logbrook"
# These are measured under both promises, and compared under the same one; the others as each system is by default.
PAIRED = frozenset({"throughput", "java", "latency", "end_to_end", "transactions"})
# Of the client, not of the system.
_NOT_COMPARED = "CPU of the load"


class Verdict(StrEnum):
    AHEAD = "ahead"
    EVEN = "even"
    BEHIND = "behind"


@dataclass(frozen=True)
class Comparison:
    """`times` is how many times better Logbrook is than the best other: below 1 it is worse."""

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
    """Rows that stand on one line of a table."""
    return (row.measurement, row.promise if row.measurement in PAIRED else "", row.metric, row.what)


def compared(rows: Iterable[Row]) -> dict[tuple[str, str, str, str], Comparison]:
    """Of every line that has Logbrook and somebody else on it."""
    lines: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        if _NOT_COMPARED not in row.metric:
            lines.setdefault(group_of(row), []).append(row)
    found = {}
    for group, on_line in lines.items():
        ours = [row for row in on_line if row.system == OURS]
        others = [row for row in on_line if row.system != OURS]
        if ours and others:
            pick = max if others[0].higher_is_better else min
            found[group] = Comparison(ours[0], pick(others, key=lambda row: row.median))
    return found
