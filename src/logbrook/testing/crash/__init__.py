"""The power-loss test: random workloads on the storage engine, and every disk state a power loss could leave.

python -m logbrook.testing.crash --states 100000

    workload      a seeded run over several processes, recorded; kinds has the mixes of operations, settings the sizes
    life          one simulated process; client_operations and owner_operations are the operations that run in it
    batches       random batches
    promises      the guarantees that recovery must keep, folded from the marks in the journal
    checker       checks a recovered directory against the promises; agreement compares derived state with the oracle
    oracle        the state of a log derived from a full scan
    state_check   recovers and checks one state
    campaign      runs seeds, simulates power loss at every point, and reports failures

It imports `storage` and below, and no server.
"""

from logbrook.testing.crash.campaign import CrashCampaign, CrashTally, Failure, PowerLoss, StateId
from logbrook.testing.crash.checker import check_directory, check_log
from logbrook.testing.crash.kinds import KINDS, WorkloadKind
from logbrook.testing.crash.promises import BrokenPromiseError, Promises
from logbrook.testing.crash.state_check import check_state
from logbrook.testing.crash.workload import Workload

__all__ = [
    "KINDS",
    "BrokenPromiseError",
    "CrashCampaign",
    "CrashTally",
    "Failure",
    "PowerLoss",
    "Promises",
    "StateId",
    "Workload",
    "WorkloadKind",
    "check_directory",
    "check_log",
    "check_state",
]
