"""Run random schedules of the replication model, and print the first that breaks a promise to clients."""

import argparse
import sys
import time

from logbrook.testing.replication.campaign import STEPS, run_seeds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m logbrook.testing.replication", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, metavar="N", help="number of schedules (10,000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed (0)")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N", help=f"steps of each schedule ({STEPS})")
    options = parser.parse_args(arguments)
    started_s = time.monotonic()
    failure = run_seeds(options.seed, options.seeds, steps=options.steps)
    if failure is not None:
        sys.stderr.write("\n".join([*failure.schedule, str(failure), ""]))
        return 1
    seconds = max(time.monotonic() - started_s, 1e-3)
    sys.stdout.write(
        f"{options.seeds:,} schedules without a failure in {seconds:.0f} s ({options.seeds / seconds:.0f} a second); "
        f"fewer than {3 / options.seeds:.1e} of such schedules fail (95 %)\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
