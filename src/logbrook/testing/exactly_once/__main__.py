"""`python -m logbrook.testing.exactly_once`: kill a query N times and check that it delivers exactly once.

Ends with 1 if it does not, with 2 if something is missing that is needed to find out.
"""

import argparse
import sys

from logbrook.spark.java import JavaError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m logbrook.testing.exactly_once", description="Kill a query from topic to topic again and again."
    )
    parser.add_argument("--kills", type=int, default=40, help="of drivers and workers, in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of what is killed when (%(default)s)")
    arguments = parser.parse_args()
    try:
        from logbrook.testing.exactly_once.campaign import Campaign, Plan  # noqa: PLC0415 - it needs a client library
    except ImportError as error:
        sys.stderr.write(f"{error}; install logbrook[dev]\n")
        return 2
    done = 0

    def told(kind: str) -> None:
        nonlocal done
        done += 1
        sys.stdout.write(f"{done} of {arguments.kills} kills: {kind}\n")
        sys.stdout.flush()

    try:
        with Campaign(Plan(arguments.kills, arguments.seed), told) as campaign:
            campaign.kill_all()
            campaign.run_driver(is_killed=False)
            outcome = campaign.compare()
    except JavaError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{outcome}\n")
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
