"""Result rows of benchmarks, and timing helpers.

Machines are noisy, so a goal is a ratio where possible: both sides are measured in turns, in one process, and the
median of the paired ratios counts.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

# Returns the speed of the second argument (the subject) relative to the first (the reference).
Compare = Callable[[Callable[[], object], Callable[[], object]], float]


@dataclass(frozen=True)
class Row:
    """One line of the table; the goal is optional."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    higher_is_better: bool = True

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value >= self.goal if self.higher_is_better else self.value <= self.goal

    def as_json(self) -> dict[str, object]:
        return {"name": self.name, "value": self.value, "unit": self.unit, "goal": self.goal, "met": self.met}


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def paired_ratio(reference: Callable[[], object], subject: Callable[[], object], rounds: int) -> float:
    """Return the speed of `subject` relative to `reference`: the median of `rounds` pairs, measured in turns."""
    reference()
    subject()
    return statistics.median(seconds(reference) / seconds(subject) for _ in range(rounds))


def best_ratio(reference: Callable[[], object], subject: Callable[[], object], rounds: int) -> float:
    """Like `paired_ratio`, of the best round of each: other load on the machine only makes rounds slower."""
    reference()
    subject()
    times = [(seconds(reference), seconds(subject)) for _ in range(rounds)]
    return min(reference_s for reference_s, _ in times) / min(subject_s for _, subject_s in times)


def median_seconds(call: Callable[[], object], rounds: int) -> float:
    return statistics.median(seconds(call) for _ in range(rounds))
