"""`python -m logbrook.testing.history FILE`: check a saved history again. Ends with 1 if something was found."""

import argparse
import sys

from logbrook.testing.history.checker import check
from logbrook.testing.history.saved import load


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m logbrook.testing.history", description="Check a saved history.")
    parser.add_argument("file", help="what `python -m logbrook.testing.kill --keep` saved")
    with open(parser.parse_args().file) as file:
        verdict = check(load(file))
    sys.stdout.write(f"{verdict}\n")
    return 1 if verdict.findings else 0


if __name__ == "__main__":
    sys.exit(main())
