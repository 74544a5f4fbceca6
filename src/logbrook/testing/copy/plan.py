"""The plan of a copy test: the faults injected into a run and its outcome.

The schedule is determined by a seed; only the timing of the machine varies between runs.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from logbrook.testing.kill.plan import FLAGS, SMALL_FILES


class Fault(StrEnum):
    BROKER_KILLED = "broker killed"
    """SIGKILL; it restarts at once."""
    COPIER_KILLED = "copier killed"
    """SIGKILL; it restarts later. Its transaction may stay open while another copier takes over its partitions."""
    COPIER_PAUSED = "copier paused"
    """SIGSTOP for longer than its session timeout: it resumes with records that another copier owns by then."""


_FIRST_SHARE = 0.03
_LAST_SHARE = 0.9
_DELAY_S_MAX = 0.15
_IN_TRANSACTION_CHANCE = 0.6
_AWAY_S_MAX = 2.0
_PAUSED_S = (1.7, 2.5)


@dataclass(frozen=True)
class ScheduledFault:
    """One fault, with the progress and the delay after which it is injected."""

    fault: Fault
    copied_share: float
    """The share of records to be copied first."""
    delay_s: float
    """Delay after that."""
    copier: int
    """Index of the copier, modulo their number."""
    is_in_transaction: bool
    """Wait until the copier has written the records of a transaction and not yet committed it."""
    away_s: float
    """How long the copier is down or paused."""


def schedule(rng: Random, faults: dict[Fault, int]) -> list[ScheduledFault]:
    """Spread the given number of each fault over the run, in random order."""
    kinds = [fault for fault, times in faults.items() for _ in range(times)]
    rng.shuffle(kinds)
    width = (_LAST_SHARE - _FIRST_SHARE) / max(1, len(kinds))
    return [
        ScheduledFault(
            fault,
            copied_share=_FIRST_SHARE + width * (number + rng.random()),
            delay_s=rng.uniform(0, _DELAY_S_MAX),
            copier=rng.randrange(1 << 16),
            is_in_transaction=rng.random() < _IN_TRANSACTION_CHANCE,
            away_s=rng.uniform(*_PAUSED_S) if fault is Fault.COPIER_PAUSED else rng.uniform(0, _AWAY_S_MAX),
        )
        for number, fault in enumerate(kinds)
    ]


@dataclass(frozen=True)
class CopyPlan:
    """The parameters of a run. `copier_flags` select planted bugs."""

    records: int = 100_000
    partitions: int = 4
    copiers: int = 2
    per_transaction: int = 750
    seed: int = 0
    faults: dict[Fault, int] = field(default_factory=dict)
    flags: tuple[str, ...] = (*FLAGS, *SMALL_FILES)
    copier_flags: tuple[str, ...] = ()
    timeout_s: float = 180.0


@dataclass
class CopyOutcome:
    """The result of a run: differences between copy and original, and problems that stopped a process."""

    plan: CopyPlan
    differences: list[str]
    problems: list[str]
    faults: Counter[Fault]
    copied: int
    """Records of committed transactions."""
    discarded: int
    """Records of aborted transactions, invisible to read_committed consumers."""
    seconds: float

    @property
    def is_good(self) -> bool:
        return not self.problems and not self.differences

    def __str__(self) -> str:
        faults = ", ".join(f"{fault} {times} times" for fault, times in self.faults.items()) or "no faults"
        lines = [
            f"seed {self.plan.seed}: {self.copied:,} copies of {self.plan.records:,} records and {self.discarded:,} "
            f"aborted ones in {self.seconds:.1f} s; {faults}"
        ]
        lines += [f"DIFFERENCE: {difference}" for difference in self.differences]
        lines += [f"PROBLEM: {problem}" for problem in self.problems]
        return "\n".join(lines)
