"""Run random schedules of simulated brokers, and print the first that breaks a promise to clients."""

import argparse
import logging
import sys
import time

from logbrook.testing.simulation.campaign import SECONDS, run_seeds
from logbrook.testing.simulation.cluster_campaign import run_cluster_seeds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m logbrook.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="number of schedules (100)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed (0)")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help=f"simulated time of each schedule ({SECONDS:.0f})"
    )
    parser.add_argument("--cluster", action="store_true", help="three replicated brokers instead of one")
    options = parser.parse_args(arguments)
    started_s = time.monotonic()
    # Brokers that are killed again and again have much to warn of.
    logger = logging.getLogger("logbrook")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        run = run_cluster_seeds if options.cluster else run_seeds
        failure = run(options.seed, options.seeds, options.seconds)
    finally:
        logger.setLevel(level)
    if failure is not None:
        sys.stderr.write("\n".join([*failure.events, str(failure), ""]))
        return 1
    seconds = max(time.monotonic() - started_s, 1e-3)
    sys.stdout.write(
        f"{options.seeds:,} schedules of {options.seconds:.0f} s without a failure in {seconds:.0f} s; "
        f"fewer than {3 / options.seeds:.1e} of such schedules fail (95 %)\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
