"""What a run of the copy test is to be, and what came of it."""

from collections import Counter
from dataclasses import dataclass, field

from logbrook.testing.copy.harms import Harm
from logbrook.testing.kill.plan import FLAGS, SMALL_FILES


@dataclass(frozen=True)
class Plan:
    records: int = 100_000
    partitions: int = 4
    copiers: int = 2
    per_transaction: int = 750
    seed: int = 0
    harms: dict[Harm, int] = field(default_factory=dict)
    flags: tuple[str, ...] = (*FLAGS, *SMALL_FILES)
    copier_flags: tuple[str, ...] = ()
    timeout_s: float = 180.0


@dataclass
class Outcome:
    """`differences` are what is wrong with the copy, `problems` what kept somebody from making it."""

    plan: Plan
    differences: list[str]
    problems: list[str]
    harms: Counter[Harm]
    copied: int
    """How many records of committed transactions there are."""
    discarded: int
    """How many records of aborted transactions there are, which nobody may see."""
    seconds: float

    @property
    def is_good(self) -> bool:
        return not self.problems and not self.differences

    def __str__(self) -> str:
        harms = ", ".join(f"{harm} {times} times" for harm, times in self.harms.items()) or "nobody harmed"
        lines = [
            f"seed {self.plan.seed}: {self.copied:,} copies of {self.plan.records:,} records and {self.discarded:,} "
            f"discarded ones in {self.seconds:.1f} s; {harms}"
        ]
        lines += [f"DIFFERENCE: {difference}" for difference in self.differences]
        lines += [f"PROBLEM: {problem}" for problem in self.problems]
        return "\n".join(lines)
