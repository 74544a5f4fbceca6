"""Searches a history for what must never be.

Looks at no clock and no order but the events' own, so the same events give the same findings. The time it takes is
that of sorting: a million events take seconds.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from logbrook.testing.history.counts import Counts, count
from logbrook.testing.history.events import Event
from logbrook.testing.history.evidence import Evidence
from logbrook.testing.history.findings import Finding
from logbrook.testing.history.going_back import check_going_back
from logbrook.testing.history.reads import check_reads
from logbrook.testing.history.transactions import check_transactions
from logbrook.testing.history.writes import check_writes

_TOLD_PER_RULE_MAX = 5


@dataclass(frozen=True)
class Verdict:
    """What was found, and what was looked at."""

    findings: tuple[Finding, ...]
    counts: Counts

    def __str__(self) -> str:
        """How often each rule is broken, and the first cases of each."""
        lines = [f"{len(self.findings):,} findings in {self.counts}"]
        rules = Counter(finding.rule for finding in self.findings)
        for rule, cases in rules.items():
            lines.append(f"{rule}: {cases:,}")
            told = [finding for finding in self.findings if finding.rule == rule][:_TOLD_PER_RULE_MAX]
            lines += [f"    {finding}" for finding in told]
            if cases > len(told):
                lines.append(f"    and {cases - len(told):,} more")
        return "\n".join(lines)


def check(events: Iterable[Event]) -> Verdict:
    """Every rule, on the whole history."""
    evidence = Evidence(events)
    check_writes(evidence)
    check_transactions(evidence)
    check_reads(evidence)
    check_going_back(evidence)
    return Verdict(tuple(evidence.findings), count(evidence))
