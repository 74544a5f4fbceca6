"""`python -m logbrook.testing.crash`: check power-loss states, seed after seed, until there were enough of them.

Ends with 1 if a state failed. It shows the first failure of each cause, and says how to look at one again:

    python -m logbrook.testing.crash --replay 17/230:TORN:0
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count

from logbrook.testing.crash.campaign import Campaign, Tally
from logbrook.testing.crash.places import Place

_PROGRESS_EVERY_S = 5.0


def main() -> int:
    arguments = _parse()
    if arguments.replay is not None:
        return _replay(arguments.replay)
    started = time.monotonic()
    shown_at = started
    total = Tally()
    causes: Counter[str] = Counter()
    for tally in _check_seeds(arguments.seed, arguments.states, arguments.jobs):
        for failure in tally.failures:
            causes[failure.cause] += 1
            if causes[failure.cause] == 1:
                _say(f"FAILED {failure}")
        total.add(tally)
        if time.monotonic() - shown_at >= _PROGRESS_EVERY_S:
            shown_at = time.monotonic()
            _say(_summary(total, shown_at - started))
    _say(_summary(total, time.monotonic() - started))
    if not total.failures:
        _say(f"no failure in {total.states:,} states: fewer than {3 / total.states:.1e} of such states fail (95 %)")
        return 0
    for cause, failures in causes.most_common():
        _say(f"{failures:8,} x {cause}")
    _say(f"look at one again: python -m logbrook.testing.crash --replay {total.failures[0].place}")
    return 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m logbrook.testing.crash", description="Check power-loss states.")
    parser.add_argument("--states", type=int, default=100_000, help="how many states to check, at least (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; others follow it (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    parser.add_argument("--replay", type=Place.parse, metavar="PLACE", help="check one state again and show its error")
    return parser.parse_args()


def _check_seeds(first: int, states: int, jobs: int) -> Iterator[Tally]:
    """Tallies of one seed each, in the order in which they are done, until `states` were checked."""
    seeds = count(first)
    if jobs == 1:
        while states > 0:
            tally = _check_seed(next(seeds))
            states -= tally.states
            yield tally
        return
    with ProcessPoolExecutor(jobs) as pool:
        running: set[Future[Tally]] = {pool.submit(_check_seed, next(seeds)) for _ in range(2 * jobs)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                states -= future.result().states
                yield future.result()
            while states > 0 and len(running) < 2 * jobs:
                running.add(pool.submit(_check_seed, next(seeds)))


def _check_seed(seed: int) -> Tally:
    return Campaign().check_seed(seed)


def _replay(place: Place) -> int:
    error = Campaign().replay(place)
    _say(f"{place}: {error or 'nothing is wrong'}")
    return 0 if error is None else 1


def _summary(total: Tally, seconds: float) -> str:
    rate = total.states / seconds
    return (
        f"{total.states:,} states of {total.seeds:,} seeds in {seconds:.0f} s ({rate:.0f}/s), "
        f"{total.second_states:,} of them after a second cut, {len(total.failures)} failures"
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
