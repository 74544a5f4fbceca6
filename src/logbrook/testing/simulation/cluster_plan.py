"""The plan of a simulated cluster, which a seed decides: times, clients and kinds of faults.

A schedule has some of the clients and some of the faults, not all. A fault that comes often, among few others, reaches
states that a mixture of all faults hardly ever does, and a schedule with few clients is short (swarm testing, Groce et
al., ISSTA 2012). Every kind is in about half of the schedules.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from random import Random

# Simulated time until the last fault, of most schedules and of a few longer ones. Periodic checkpoints of high
# watermarks come after 5 s.
SECONDS = 2.5
_LONGER = 3.0
# An idle follower fetches every half second. With less it would leave the ISR and join again all the time.
_LAG_MS_MIN = 600
_LONGER_SHARE = 0.05


class ClusterWorkload(Enum):
    """Clients that a schedule may have. Plain producers and a consumer are in all."""

    IDEMPOTENT = auto()
    TRANSACTIONAL = auto()
    FOLLOWER_CONSUMER = auto()
    GROUP = auto()
    ADMIN = auto()
    # Not with those that have to read every record.
    DELETE_RECORDS = auto()


_INDEPENDENT = tuple(workload for workload in ClusterWorkload if workload is not ClusterWorkload.DELETE_RECORDS)


class ClusterFault(Enum):
    """Faults that a schedule may have (`cluster_faults`)."""

    KILL = auto()
    KILL_ALL = auto()
    RESTART = auto()
    ISOLATE = auto()
    CUT_FROM_BROKER = auto()
    BREAK_CONNECTIONS = auto()
    CUT_FROM_STORE = auto()
    STOP_STORE = auto()
    LOSE_ANSWER = auto()
    COMPACT_STORE = auto()
    EXPIRE_LEASE = auto()
    DEPOSE_TWICE = auto()
    HAND_OVER_TWICE = auto()
    MOVE = auto()
    CANCEL_MOVE = auto()
    ELECT = auto()
    REPLACE_DISK = auto()
    FILL_DISK = auto()
    FAIL_DISK = auto()
    DAMAGE_LOG = auto()
    # Only with transactions of version 1: those of version 2 have an epoch of their own.
    DELAY_MARKERS = auto()


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The choices of one seed. Latencies are the upper limits of uniform distributions."""

    seconds: float
    network_s_max: float
    sync_s_max: float
    store_s_max: float
    lease_s: float
    replica_lag_ms_max: int
    min_insync: int
    # The longest pause of a client between two requests.
    pause_s_max: float
    # The longest pause between two faults of a sequence.
    quiet_s_max: float
    workloads: tuple[ClusterWorkload, ...]
    faults: tuple[ClusterFault, ...]
    # Of the transactional producer (KIP-890).
    transaction_version: int

    @classmethod
    def of(cls, seed: int, seconds: float = SECONDS) -> "ClusterPlan":
        random = Random(f"{seed}/plan")
        lease_s = random.choice((0.4, 0.8))
        plan = cls(
            seconds=seconds * (_LONGER if random.random() < _LONGER_SHARE else 1.0),
            network_s_max=random.choice((0.001, 0.005, 0.04)),
            sync_s_max=random.choice((0.0005, 0.01, 0.2)),
            store_s_max=random.choice((0.0, 0.002, 0.03)),
            lease_s=lease_s,
            replica_lag_ms_max=max(_LAG_MS_MIN, int(1000 * lease_s * random.choice((1.0, 2.0)))),
            min_insync=random.choice((1, 2)),
            pause_s_max=random.choice((0.15, 0.3)),
            quiet_s_max=random.choice((0.2, 0.7)),
            workloads=tuple(workload for workload in _INDEPENDENT if random.random() < 0.5),
            faults=_faults(random),
            transaction_version=random.choice((1, 2)),
        )
        if plan.has_late_markers and random.random() < 0.5:
            plan = replace(plan, faults=(*plan.faults, ClusterFault.DELAY_MARKERS))
        if not {ClusterWorkload.TRANSACTIONAL, ClusterWorkload.GROUP}.intersection(plan.workloads):
            plan = replace(plan, workloads=(*plan.workloads, ClusterWorkload.DELETE_RECORDS))
        return plan

    @property
    def has_late_markers(self) -> bool:
        """True if a transaction marker that arrives late could end another transaction."""
        return ClusterWorkload.TRANSACTIONAL in self.workloads and self.transaction_version == 1


def _faults(random: Random) -> tuple[ClusterFault, ...]:
    kinds = tuple(fault for fault in ClusterFault if fault is not ClusterFault.DELAY_MARKERS)
    return tuple(fault for fault in kinds if random.random() < 0.5) or kinds
