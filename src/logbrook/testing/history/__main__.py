"""`python -m logbrook.testing.history FILE`: check a saved history again. Exits with 1 if it has anomalies."""

import argparse
import sys

from logbrook.testing.history.checker import check
from logbrook.testing.history.events import load


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m logbrook.testing.history", description="Check a saved history.")
    parser.add_argument("file", help="a history saved by `python -m logbrook.testing.kill --keep`")
    with open(parser.parse_args().file) as file:
        verdict = check(load(file))
    sys.stdout.write(f"{verdict}\n")
    return 1 if verdict.anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
