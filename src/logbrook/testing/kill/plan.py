"""The plan of a kill test: when the broker is killed, with which flags, and the outcome of a run.

The schedule is determined by a seed; only the timing of the machine varies between runs.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from statistics import median

from logbrook.model.version import install_command
from logbrook.testing.history import Verdict

MESSAGE_BYTES_MAX = 64 << 10
# How long a member whose client was killed delays its group.
SESSION_TIMEOUT_MS = 1_500

FLAGS = (
    "--durability=fsync",
    "--metrics=",
    f"--log-max-message-bytes={MESSAGE_BYTES_MAX}",
    "--groups-initial-rebalance-delay-ms=50ms",
    f"--groups-session-timeout-ms-min={SESSION_TIMEOUT_MS}",
)
# Small files, so that segments and write-ahead log files are created, synced and freed all the time.
SMALL_FILES = (
    "--log-segment-bytes=256KiB",
    "--storage-wal-file-bytes=1MiB",
    "--storage-wal-bytes-max=2MiB",
    "--storage-checkpoint-interval-ms=200ms",
    "--maintenance-interval-ms=500ms",
)


class Moment(StrEnum):
    """The activity of the broker when it is killed."""

    LOADED = "loaded"
    """It has acknowledged writes since its start, and more are in flight."""
    ANSWERING = "answering"
    """It has just become ready: clients reconnect."""
    STARTING = "starting"
    """It is not ready yet: it may be recovering from the previous kill."""
    CREATING = "creating"
    """It has just received a CreateTopics request."""
    REBALANCING = "rebalancing"
    """A member of a group is leaving or joining."""
    COMMITTING = "committing"
    """Groups have rejoined and are committing offsets."""
    TRANSACTING = "transacting"
    """Transactions were committed since its start, and others are open or ending."""


# Relative frequency of each moment, and the longest delay of its kill in seconds.
_WEIGHT_AND_DELAY = {
    Moment.LOADED: (6, 0.03),
    Moment.ANSWERING: (2, 0.1),
    Moment.STARTING: (2, 0.0),
    Moment.CREATING: (2, 0.01),
    Moment.REBALANCING: (2, 0.06),
    Moment.COMMITTING: (4, 0.03),
    Moment.TRANSACTING: (4, 0.06),
}
_ACKNOWLEDGED_MAX = 2_000
_IDEMPOTENT_CHANCE = 0.6
_FIRST_ACKNOWLEDGED = 500
_COMMITTED_MAX = 30
_TRANSACTIONS_MAX = 10


@dataclass(frozen=True)
class Kill:
    """One kill: conditions to wait for after the start, then a delay."""

    moment: Moment
    acknowledged: int
    """Writes to be acknowledged first (0 for moments right after the start)."""
    are_idempotent: bool
    """Count only writes of idempotent producers, which take longer to recover."""
    committed: int
    """Offset commits to be acknowledged first (COMMITTING only)."""
    transactions: int
    """Transactions to be committed first (TRANSACTING only)."""
    delay_s: float
    """Delay after the conditions are met."""
    start_share: float
    """STARTING only: the delay as a share of the usual start time."""


def moments(rng: Random, kills: int) -> list[Moment]:
    """Draw moments: first LOADED, so that there are records to lose, then every kind once, then by weight, shuffled."""
    drawn = list(Moment)[1:kills]
    weights = [weight for weight, _ in _WEIGHT_AND_DELAY.values()]
    drawn += rng.choices(list(_WEIGHT_AND_DELAY), weights=weights, k=max(0, kills - 1 - len(drawn)))
    rng.shuffle(drawn)
    return [Moment.LOADED, *drawn]


def schedule(rng: Random, kill_moments: Sequence[Moment]) -> list[Kill]:
    """Draw a kill for each of the moments."""
    first, *others = [_kill(rng, moment) for moment in kill_moments]
    return [replace(first, acknowledged=_FIRST_ACKNOWLEDGED, are_idempotent=True), *others]


def _kill(rng: Random, moment: Moment) -> Kill:
    is_early = moment in (Moment.ANSWERING, Moment.STARTING)
    return Kill(
        moment,
        acknowledged=0 if is_early else int(_ACKNOWLEDGED_MAX ** rng.random()),
        are_idempotent=rng.random() < _IDEMPOTENT_CHANCE,
        committed=rng.randint(1, _COMMITTED_MAX) if moment is Moment.COMMITTING else 0,
        transactions=rng.randint(1, _TRANSACTIONS_MAX) if moment is Moment.TRANSACTING else 0,
        delay_s=rng.uniform(0, _WEIGHT_AND_DELAY[moment][1]),
        start_share=rng.uniform(0.3, 1.1),
    )


@dataclass(frozen=True)
class KillPlan:
    """The parameters of a run. `damage` is applied to the data directory after the first kill."""

    kills: int
    seed: int = 0
    moments: tuple[Moment, ...] | None = None
    """The moments of the kills, if not drawn from the seed."""
    partitions: int = 4
    flags: tuple[str, ...] = (*FLAGS, *SMALL_FILES)
    damage: Callable[[str], int] | None = None
    isolation: str = "read_committed"
    """The isolation level of the consumers. Anything but read_committed is a planted bug."""
    keep: str | None = None
    """Directory for the history, the broker's log and its data if the run fails."""


@dataclass
class KillOutcome:
    """The result of a run: the verdict on its history, and problems that stopped a client or the broker."""

    plan: KillPlan
    verdict: Verdict
    problems: list[str]
    moments: Counter[Moment]
    starts_s: list[float]
    seconds: float

    @property
    def is_good(self) -> bool:
        return not self.problems and not self.verdict.anomalies

    def __str__(self) -> str:
        lines = [f"seed {self.plan.seed}: {self.verdict}"]
        lines += [f"PROBLEM: {problem}" for problem in self.problems]
        return "\n".join(lines)


def summary(outcomes: Sequence[KillOutcome]) -> str:
    """Summarise the runs. Zero failures in N kills bound the failure rate at 3/N with 95 % confidence."""

    def total(name: str) -> str:
        return f"{sum(getattr(outcome.verdict.counts, name) for outcome in outcomes):,}"

    moments = sum((outcome.moments for outcome in outcomes), Counter[Moment]())
    kills = moments.total()
    seconds = sum(outcome.seconds for outcome in outcomes)
    starts_s = [start_s for outcome in outcomes for start_s in outcome.starts_s] or [0.0]
    lines = [
        f"{kills:,} kills in {len(outcomes):,} runs and {seconds:.0f} s: "
        + ", ".join(f"{count:,} {moment}" for moment, count in moments.most_common()),
        f"{total('events')} events: {total('sent')} sent, {total('acknowledged')} acknowledged, {total('unknown')} "
        f"unknown ({total('unknown_found')} of them written), {total('polled')} polled, {total('committed')} commits, "
        f"{total('latest_seen')} latest offsets",
        f"{total('transactions')} transactions: {total('transactions_committed')} committed, "
        f"{total('transactions_aborted')} aborted, {total('transactions_unknown')} unknown, "
        f"{total('transactions_left')} left open",
        f"median start {median(starts_s):.2f} s, at most {max(starts_s):.2f} s",
    ]
    bad = [str(outcome.plan.seed) for outcome in outcomes if not outcome.is_good]
    if bad:
        lines.append(f"FAILED: {len(bad)} of {len(outcomes)} runs, with the seeds {', '.join(bad)}")
    elif kills:
        lines.append(f"no failure in {kills:,} kills: fewer than {3 / kills:.1e} of such kills fail (95 %)")
    return "\n".join(lines)


class ClientMissingError(ImportError):
    """The client library of the load is not installed."""

    def __init__(self, library: str) -> None:
        super().__init__(f"the kill test needs {library}: {install_command('dev')}")
