"""What a benchmark reports, and how it is measured.

This machine and every other one is noisy, so a goal is a ratio wherever it can be: both sides are measured in turns,
in one process, and the median of the paired ratios is what counts.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

# Takes a reference and a subject, and says how fast the subject is as a share of the reference.
Compare = Callable[[Callable[[], object], Callable[[], object]], float]


@dataclass(frozen=True)
class Row:
    """One line of the table. Without a goal it is there for the record."""

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
    """How fast `subject` is as a share of `reference`, both measured `rounds` times in turns."""
    reference()
    subject()
    return statistics.median(seconds(reference) / seconds(subject) for _ in range(rounds))


def best_ratio(reference: Callable[[], object], subject: Callable[[], object], rounds: int) -> float:
    """As `paired_ratio`, of the best round of each: others on the machine can only make a round slower."""
    reference()
    subject()
    times = [(seconds(reference), seconds(subject)) for _ in range(rounds)]
    return min(one for one, _ in times) / min(other for _, other in times)


def median_seconds(call: Callable[[], object], rounds: int) -> float:
    return statistics.median(seconds(call) for _ in range(rounds))
