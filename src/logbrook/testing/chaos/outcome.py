"""The outcome of a chaos test: a line per step, the verdict on the history, and a table per kind of fault."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from logbrook.model import TopicPartition
from logbrook.testing.chaos.plan import ChaosPlan, FaultKind, FaultStep
from logbrook.testing.history import Event, Verdict
from logbrook.testing.history.events import Acknowledged

_NS = 1e9
_TWO = "two at once"


@dataclass(frozen=True)
class StepResult:
    """A step that is over: the cluster is healthy again, and every client has gone on."""

    step: FaultStep
    gap_s: float
    """The longest time, over all partitions, in which a partition acknowledged nothing."""
    healthy_s: float
    """From the end of the last fault until all replicas were in sync."""

    def __str__(self) -> str:
        return f"{self.step}: writes stood still for {self.gap_s:.1f} s, in sync after {self.healthy_s:.1f} s"


@dataclass
class ChaosOutcome:
    """The result of a run: its steps, the verdict on its history, and problems of clients and brokers."""

    plan: ChaosPlan
    results: list[StepResult]
    verdict: Verdict
    events: list[Event]
    problems: list[str]
    seconds: float
    kept: str = ""
    """The directory with the logs, data and history of a run that failed."""

    @property
    def is_good(self) -> bool:
        return not self.problems and not self.verdict.anomalies

    def __str__(self) -> str:
        lines = [f"seed {self.plan.seed}: {self.verdict}"]
        lines += [f"PROBLEM: {problem}" for problem in self.problems]
        if self.kept:
            lines += [
                f"kept in {self.kept}:",
                "    broker-N.log, etcd/member-N/log   the logs of all processes",
                "    data-N, small-disk                the data of the brokers; see logbrook log dump --data DIR",
                "    outcome.txt                       this text",
                "    history.jsonl                     check again: python -m logbrook.testing.history FILE",
            ]
        return "\n".join(lines)


def longest_gap_s(events: Sequence[Event], partitions: Sequence[TopicPartition], begun_ns: int, ended_ns: int) -> float:
    """Return the longest time within the interval in which a partition acknowledged nothing, in seconds."""
    longest = 0
    for partition in partitions:
        times = [event.at_ns for event in events if isinstance(event, Acknowledged) and event.partition == partition]
        within = [begun_ns, *sorted(at_ns for at_ns in times if begun_ns <= at_ns <= ended_ns), ended_ns]
        longest = max(longest, *(after - before for before, after in pairwise(within)))
    return longest / _NS


def table(results: Sequence[StepResult]) -> list[list[str]]:
    """Return a row per kind of fault: number, median and longest pause of writes, and the same until in sync.

    Faults that overlapped another one are in a row of their own.
    """
    rows: list[list[str]] = []
    for name in (*FaultKind, _TWO):
        of_kind = [result for result in results if _name(result.step) == name]
        if of_kind:
            gaps, times = [result.gap_s for result in of_kind], [result.healthy_s for result in of_kind]
            faults = sum(len(result.step.faults) for result in of_kind)
            figures = [median(gaps), max(gaps), median(times), max(times)]
            rows.append([str(name), str(faults), *(f"{figure:.1f}" for figure in figures)])
    return rows


def _name(step: FaultStep) -> str:
    return step.faults[0].kind if len(step.faults) == 1 else _TWO


def summary(outcomes: Sequence[ChaosOutcome]) -> str:
    """Summarise the runs in a few lines."""

    def total(name: str) -> str:
        return f"{sum(getattr(outcome.verdict.counts, name) for outcome in outcomes):,}"

    faults = sum(len(result.step.faults) for outcome in outcomes for result in outcome.results)
    lines = [
        f"{faults:,} faults in {len(outcomes):,} runs and {sum(outcome.seconds for outcome in outcomes):,.0f} s",
        f"{total('sent')} sent, {total('acknowledged')} acknowledged, {total('unknown')} unknown "
        f"({total('unknown_found')} of them written), {total('duplicates_allowed')} allowed duplicates, "
        f"{total('polled')} polled, {total('committed')} commits",
        f"{total('transactions')} transactions: {total('transactions_committed')} committed, "
        f"{total('transactions_aborted')} aborted, {total('transactions_unknown')} unknown, "
        f"{total('transactions_left')} left open",
    ]
    bad = [str(outcome.plan.seed) for outcome in outcomes if not outcome.is_good]
    if bad:
        lines.append(f"FAILED: {len(bad)} of {len(outcomes)} runs, with the seeds {', '.join(bad)}")
    elif faults:
        lines.append("no acknowledged record was lost, and no other promise was broken")
    return "\n".join(lines)
