"""`python -m logbrook.testing.copy`: copy a topic again and again while everybody is killed. Ends with 1 if it differs.

Ends with 2 if there is no client library for the copiers.
"""

import argparse
import sys
from collections.abc import Callable

from logbrook.testing.copy.harms import Harm
from logbrook.testing.copy.plan import Outcome, Plan
from logbrook.testing.kill.errors import ClientMissingError


def main() -> int:
    arguments = _parse()
    harms = {
        Harm.BROKER_KILLED: arguments.broker_kills,
        Harm.COPIER_KILLED: arguments.copier_kills,
        Harm.COPIER_HELD_UP: arguments.copier_stops,
    }
    failed = kills = 0
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        plan = Plan(records=arguments.records, copiers=arguments.copiers, seed=seed, harms=harms)
        try:
            outcome = _campaign()(plan)
        except ClientMissingError as error:
            sys.stderr.write(f"{error}\n")
            return 2
        sys.stdout.write(f"{outcome}\n")
        sys.stdout.flush()
        failed += not outcome.is_good
        kills += outcome.harms.total()
    sys.stdout.write(f"{arguments.runs} runs, {kills:,} times somebody was harmed, {failed} runs with differences\n")
    return 1 if failed else 0


def _campaign() -> Callable[[Plan], Outcome]:
    from logbrook.testing.copy.campaign import Campaign  # noqa: PLC0415 - it needs a client library

    return lambda plan: Campaign(plan).run()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m logbrook.testing.copy", description="Copy a topic while everybody is killed."
    )
    parser.add_argument("--runs", type=int, default=1, help="how often (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; others follow it (%(default)s)")
    parser.add_argument("--records", type=int, default=100_000, help="how many are copied (%(default)s)")
    parser.add_argument("--copiers", type=int, default=2, help="by how many (%(default)s)")
    parser.add_argument("--broker-kills", type=int, default=5, help="in each run (%(default)s)")
    parser.add_argument("--copier-kills", type=int, default=5, help="in each run (%(default)s)")
    parser.add_argument(
        "--copier-stops", type=int, default=2, help="times a copier is held up, in each run (%(default)s)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
