"""`python -m logbrook.testing.copy`: copy a topic repeatedly while broker and copiers are killed.

Exits with 1 if a copy differs, with 2 if the client library is missing.
"""

import argparse
import sys
from collections.abc import Callable

from logbrook.testing.copy.plan import CopyOutcome, CopyPlan, Fault
from logbrook.testing.kill.plan import ClientMissingError


def main() -> int:
    arguments = _parse()
    faults = {
        Fault.BROKER_KILLED: arguments.broker_kills,
        Fault.COPIER_KILLED: arguments.copier_kills,
        Fault.COPIER_PAUSED: arguments.copier_stops,
    }
    failed = injected = 0
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        plan = CopyPlan(records=arguments.records, copiers=arguments.copiers, seed=seed, faults=faults)
        try:
            outcome = _campaign()(plan)
        except ClientMissingError as error:
            sys.stderr.write(f"{error}\n")
            return 2
        sys.stdout.write(f"{outcome}\n")
        sys.stdout.flush()
        failed += not outcome.is_good
        injected += outcome.faults.total()
    sys.stdout.write(f"{arguments.runs} runs, {injected:,} faults, {failed} failed runs\n")
    return 1 if failed else 0


def _campaign() -> Callable[[CopyPlan], CopyOutcome]:
    from logbrook.testing.copy.campaign import CopyCampaign  # noqa: PLC0415 - it needs a client library

    return lambda plan: CopyCampaign(plan).run()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m logbrook.testing.copy",
        description="Copy a topic exactly once while broker and copiers are killed.",
    )
    parser.add_argument("--runs", type=int, default=1, help="number of runs (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run; later runs count up (%(default)s)")
    parser.add_argument("--records", type=int, default=100_000, help="records per run (%(default)s)")
    parser.add_argument("--copiers", type=int, default=2, help="copier processes (%(default)s)")
    parser.add_argument("--broker-kills", type=int, default=5, help="per run (%(default)s)")
    parser.add_argument("--copier-kills", type=int, default=5, help="per run (%(default)s)")
    parser.add_argument("--copier-stops", type=int, default=2, help="times a copier is paused, per run (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
