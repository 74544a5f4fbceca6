"""The power-loss harness: a data directory at work, and every disk that a power loss could leave of it.

python -m logbrook.testing.crash --states 100000

workload    a seeded run over several lives, recorded: `life` has the operations, `batches` what is appended,
            `settings` the sizes that make everything happen soon
promises    what was promised, folded from the marks that the workload left in the journal
checker     is everything there that was promised, and nothing else; `agreement`: does everything that the engine
            keeps beside the log say what the log says, as the `oracle` reads it
campaign    seed after seed: run, cut the power everywhere, recover for real, check, go on and cut again
"""

from logbrook.testing.crash.broken_promise import BrokenPromiseError
from logbrook.testing.crash.campaign import Campaign, Failure, Tally
from logbrook.testing.crash.checker import check_directory, check_log
from logbrook.testing.crash.kinds import KINDS, Kind
from logbrook.testing.crash.places import Cut, Place
from logbrook.testing.crash.promises import Promises
from logbrook.testing.crash.state_check import check_state
from logbrook.testing.crash.workload import Workload

__all__ = [
    "KINDS",
    "BrokenPromiseError",
    "Campaign",
    "Cut",
    "Failure",
    "Kind",
    "Place",
    "Promises",
    "Tally",
    "Workload",
    "check_directory",
    "check_log",
    "check_state",
]
