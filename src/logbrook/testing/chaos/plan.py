"""The plan of a chaos test: which faults happen in which order, drawn from a seed.

A step is one fault, or two that overlap. The timing of the machine varies between runs, the plan does not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

NODES = (1, 2, 3)
LEASE_S = 3.0
LAG_S_MAX = 3.0


class FaultKind(StrEnum):
    """A kind of fault. Its value is its name in reports."""

    KILL = "kill broker"
    KILL_ALL = "kill all brokers"
    PAUSE = "pause broker"
    ROLLING_RESTART = "rolling restart"
    REPLACE_DISK = "replace disk"
    FULL_DISK = "full disk"
    CUT_BROKERS = "cut broker-broker"
    CUT_BROKERS_ONE_WAY = "cut broker-broker one-way"
    CUT_ETCD = "cut broker-etcd"
    CUT_ETCD_ONE_WAY = "cut broker-etcd one-way"
    CUT_ETCD_MEMBER = "cut broker-one etcd"
    ISOLATE = "cut broker-everything"
    ISOLATE_ONE_WAY = "cut broker-everything one-way"
    KILL_ETCD_LEADER = "kill etcd leader"
    PAUSE_ETCD_LEADER = "pause etcd leader"
    MOVE_ETCD_LEADER = "move etcd leader"
    MOVE_PARTITIONS = "move partitions"
    ELECT = "preferred election"


ONE_WAY = frozenset({FaultKind.CUT_BROKERS_ONE_WAY, FaultKind.CUT_ETCD_ONE_WAY, FaultKind.ISOLATE_ONE_WAY})
# These stop a process, or need it to run: they do not overlap at the same broker.
_OF_PROCESS = frozenset({FaultKind.KILL, FaultKind.PAUSE, FaultKind.REPLACE_DISK, FaultKind.FULL_DISK})
_ALONE = frozenset({FaultKind.KILL_ALL, FaultKind.ROLLING_RESTART})
_WITHOUT_BROKER = frozenset(
    {
        FaultKind.KILL_ALL,
        FaultKind.ROLLING_RESTART,
        FaultKind.KILL_ETCD_LEADER,
        FaultKind.PAUSE_ETCD_LEADER,
        FaultKind.MOVE_ETCD_LEADER,
        FaultKind.ELECT,
    }
)
_TWO_BROKERS = frozenset({FaultKind.CUT_BROKERS, FaultKind.CUT_BROKERS_ONE_WAY})
_INSTANT = frozenset({FaultKind.ROLLING_RESTART, FaultKind.MOVE_ETCD_LEADER, FaultKind.ELECT})
_WEIGHTS = {FaultKind.KILL: 4, FaultKind.PAUSE: 3, FaultKind.MOVE_PARTITIONS: 2, FaultKind.REPLACE_DISK: 2}
_PAIR_CHANCE = 0.3
_SECONDS = (0.5, 8.0)
_LAG_OF_SECOND_S_MAX = 2.0


@dataclass(frozen=True)
class ChaosFault:
    """One fault, from its begin to its end `seconds` later."""

    kind: FaultKind
    broker: int
    """The broker it happens to; for one-way cuts the one whose bytes are held if `is_outgoing`."""
    other: int
    """Another broker, or the number of an etcd member."""
    seconds: float
    is_outgoing: bool
    is_reset: bool
    """At the end of a cut connections are broken; otherwise the bytes that were held arrive."""

    def __str__(self) -> str:
        text = self.kind.value
        if self.kind in (FaultKind.CUT_ETCD_MEMBER, FaultKind.CUT_BROKERS):
            text += f" {self.broker}-{self.other}"
        elif self.kind in _TWO_BROKERS:
            text += f" {self.broker}→{self.other}" if self.is_outgoing else f" {self.other}→{self.broker}"
        elif self.kind in ONE_WAY:
            text += f" {self.broker}→" if self.is_outgoing else f" →{self.broker}"
        elif self.kind not in _WITHOUT_BROKER:
            text += f" {self.broker}"
        return text if self.kind in _INSTANT else f"{text}, {self.seconds:.1f} s"


@dataclass(frozen=True)
class FaultStep:
    """Faults that overlap: one, or two of which the second begins `lag_s` after the first."""

    faults: tuple[ChaosFault, ...]
    lag_s: float = 0.0

    def __str__(self) -> str:
        return " + ".join(map(str, self.faults))


@dataclass(frozen=True)
class ChaosPlan:
    """The parameters of a run of one cluster."""

    faults: int
    seed: int = 0
    scale: float = 1.0
    """Factor of the durations of faults."""
    partitions: int = 3
    has_small_disk: bool = True
    """A broker has a small disk, so that it can be full."""
    kinds: tuple[FaultKind, ...] | None = None
    """The kinds in this order, one at a time, instead of those drawn from the seed."""
    java_classpath: str = ""
    """Kafka's clients: a Java producer takes part."""
    has_spark: bool = False
    """A streaming query of Spark copies the topic meanwhile."""

    @property
    def small_disk_broker(self) -> int:
        return NODES[self.seed % len(NODES)]

    def steps(self) -> list[FaultStep]:
        rng = Random(f"{self.seed}/faults")
        if self.kinds is not None:
            return [FaultStep((self._fault(rng, kind),)) for kind in self.kinds]
        drawn = self._kinds(rng)
        steps: list[FaultStep] = []
        while drawn:
            fault = self._fault(rng, drawn.pop(0))
            partner = None
            if rng.random() < _PAIR_CHANCE and drawn:
                candidate = self._fault(rng, drawn[0])
                partner = candidate if _may_overlap(fault, candidate) else None
            if partner is None:
                steps.append(FaultStep((fault,)))
            else:
                drawn.pop(0)
                steps.append(FaultStep((fault, partner), rng.uniform(0, _LAG_OF_SECOND_S_MAX) * self.scale))
        return steps

    def _kinds(self, rng: Random) -> list[FaultKind]:
        """Every kind once, in another order for each seed, then by weight."""
        kinds = [kind for kind in FaultKind if self.has_small_disk or kind is not FaultKind.FULL_DISK]
        weights = [_WEIGHTS.get(kind, 1) for kind in kinds]
        drawn = rng.sample(kinds, min(self.faults, len(kinds)))
        drawn += rng.choices(kinds, weights=weights, k=max(0, self.faults - len(kinds)))
        rng.shuffle(drawn)
        return drawn

    def _fault(self, rng: Random, kind: FaultKind) -> ChaosFault:
        broker, other = rng.sample(NODES, 2)
        seconds = rng.uniform(*_SECONDS) * self.scale
        fault = ChaosFault(kind, broker, other, seconds, rng.random() < 0.5, rng.random() < 0.5)
        if kind is FaultKind.FULL_DISK:
            return replace(fault, broker=self.small_disk_broker)
        if kind is FaultKind.CUT_ETCD_MEMBER:
            return replace(fault, other=rng.randrange(3))
        return replace(fault, seconds=0.0) if kind in _INSTANT else fault


def rack_of(broker: int) -> str:
    return f"rack-{broker}"


def _may_overlap(fault: ChaosFault, other: ChaosFault) -> bool:
    if {fault.kind, other.kind} & _ALONE or fault.kind == other.kind == FaultKind.REPLACE_DISK:
        return False
    if {fault.kind, other.kind} == {FaultKind.MOVE_PARTITIONS}:
        return False
    return not (fault.broker == other.broker and {fault.kind, other.kind} <= _OF_PROCESS)


def plans(faults: int, seed: int, per_run: int, make: Callable[[int, int], ChaosPlan]) -> Sequence[ChaosPlan]:
    """Divide faults among runs of consecutive seeds; `make` gets the faults and the seed of each."""
    counts = [min(per_run, faults - begun) for begun in range(0, faults, per_run)]
    return [make(count, seed + number) for number, count in enumerate(counts)]
