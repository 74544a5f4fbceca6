"""What a run is to be, and what came of it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from logbrook.testing.history import Verdict
from logbrook.testing.kill.moments import Moment

MESSAGE_BYTES_MAX = 64 << 10
# A member of which a kill left only the name holds its group up for this long.
SESSION_TIMEOUT_MS = 1_500

FLAGS = (
    "--durability=fsync",
    "--metrics=",
    f"--log-max-message-bytes={MESSAGE_BYTES_MAX}",
    "--groups-initial-rebalance-delay-ms=50ms",
    f"--groups-session-timeout-ms-min={SESSION_TIMEOUT_MS}",
)
# So small that files are begun, synced and freed all the time, and a kill finds the broker at it.
SMALL_FILES = (
    "--log-segment-bytes=256KiB",
    "--storage-wal-file-bytes=1MiB",
    "--storage-wal-bytes-max=2MiB",
    "--storage-checkpoint-interval-ms=200ms",
    "--maintenance-interval-ms=500ms",
)


@dataclass(frozen=True)
class Plan:
    """What happens in a run. `damage` is done to the data directory after the first kill."""

    kills: int
    seed: int = 0
    moments: tuple[Moment, ...] | None = None
    """When the kills come, if that is not left to the seed."""
    partitions: int = 4
    flags: tuple[str, ...] = (*FLAGS, *SMALL_FILES)
    damage: Callable[[str], int] | None = None
    isolation: str = "read_committed"
    """How those read who are to be given committed records only. Anything else is a planted bug."""
    keep: str | None = None
    """Where to put the history, the broker's log and its data if something was found."""


@dataclass
class Outcome:
    """What came of a run. Problems are what stopped a client or the broker; findings are in the verdict."""

    plan: Plan
    verdict: Verdict
    problems: list[str]
    moments: Counter[Moment]
    starts_s: list[float]
    seconds: float

    @property
    def is_good(self) -> bool:
        return not self.problems and not self.verdict.findings

    def __str__(self) -> str:
        lines = [f"seed {self.plan.seed}: {self.verdict}"]
        lines += [f"PROBLEM: {problem}" for problem in self.problems]
        return "\n".join(lines)


def summary(outcomes: Sequence[Outcome]) -> str:
    """How much was tried, and what that proves: zero failures in N trials bound the rate at 3/N."""
    counts = [outcome.verdict.counts for outcome in outcomes]
    moments = sum((outcome.moments for outcome in outcomes), Counter[Moment]())
    kills = moments.total()
    seconds = sum(outcome.seconds for outcome in outcomes)
    starts_s = [start_s for outcome in outcomes for start_s in outcome.starts_s] or [0.0]
    lines = [
        f"{kills:,} kills in {len(outcomes):,} runs and {seconds:.0f} s: "
        + ", ".join(f"{count:,} {moment}" for moment, count in moments.most_common()),
        f"{sum(one.events for one in counts):,} events: {sum(one.sent for one in counts):,} sent, "
        f"{sum(one.acknowledged for one in counts):,} acknowledged, {sum(one.unknown for one in counts):,} unknown "
        f"({sum(one.unknown_found for one in counts):,} of them there), {sum(one.polled for one in counts):,} polled, "
        f"{sum(one.committed for one in counts):,} commits, {sum(one.latest_seen for one in counts):,} latest offsets",
        f"{sum(one.transactions for one in counts):,} transactions: "
        f"{sum(one.transactions_committed for one in counts):,} committed, "
        f"{sum(one.transactions_aborted for one in counts):,} aborted, "
        f"{sum(one.transactions_unknown for one in counts):,} unknown, "
        f"{sum(one.transactions_left for one in counts):,} left open",
        f"a start took {median(starts_s):.2f} s, at most {max(starts_s):.2f} s",
    ]
    bad = [str(outcome.plan.seed) for outcome in outcomes if not outcome.is_good]
    if bad:
        lines.append(f"FAILED: {len(bad)} of {len(outcomes)} runs, with the seeds {', '.join(bad)}")
    elif kills:
        lines.append(f"no failure in {kills:,} kills: fewer than {3 / kills:.1e} of such kills fail (95 %)")
    return "\n".join(lines)
