"""`python -m logbrook.testing.crash`: check power-loss states, seed by seed.

Exits with 1 if a state failed. It prints the first failure of each cause and the command that reproduces it:

    python -m logbrook.testing.crash --replay 17/230:TORN:0
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count

from logbrook.ports.parent_process import end_with_parent
from logbrook.testing.crash.campaign import CrashCampaign, CrashTally, StateId

_PROGRESS_EVERY_S = 5.0


def main() -> int:
    arguments = _parse()
    if arguments.replay is not None:
        return _replay(arguments.replay)
    started = time.monotonic()
    shown_at = started
    total = CrashTally()
    causes: Counter[str] = Counter()
    for tally in _check_seeds(arguments.seed, arguments.states, arguments.jobs):
        for failure in tally.failures:
            causes[failure.cause] += 1
            if causes[failure.cause] == 1:
                _print(f"FAILED {failure}")
        total.add(tally)
        if time.monotonic() - shown_at >= _PROGRESS_EVERY_S:
            shown_at = time.monotonic()
            _print(_summary(total, shown_at - started))
    _print(_summary(total, time.monotonic() - started))
    if not total.failures:
        _print(f"no failure in {total.states:,} states: fewer than {3 / total.states:.1e} of such states fail (95 %)")
        return 0
    for cause, failures in causes.most_common():
        _print(f"{failures:8,} x {cause}")
    _print(f"reproduce one: python -m logbrook.testing.crash --replay {total.failures[0].state}")
    return 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m logbrook.testing.crash", description="Check power-loss states.")
    parser.add_argument("--states", type=int, default=100_000, help="minimum number of states to check (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="first seed; later ones count up (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    parser.add_argument(
        "--replay", type=StateId.parse, metavar="STATE", help="check one state again and print its error"
    )
    return parser.parse_args()


def _check_seeds(first: int, states: int, jobs: int) -> Iterator[CrashTally]:
    """Yield one tally per seed, as they complete, until `states` states were checked."""
    seeds = count(first)
    if jobs == 1:
        while states > 0:
            tally = _check_seed(next(seeds))
            states -= tally.states
            yield tally
        return
    context = multiprocessing.get_context("fork")
    # A campaign that is killed must not leave processes behind that wait for work.
    with ProcessPoolExecutor(jobs, context, end_with_parent, (os.getpid(),)) as pool:
        running: set[Future[CrashTally]] = {pool.submit(_check_seed, next(seeds)) for _ in range(2 * jobs)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                states -= future.result().states
                yield future.result()
            while states > 0 and len(running) < 2 * jobs:
                running.add(pool.submit(_check_seed, next(seeds)))


def _check_seed(seed: int) -> CrashTally:
    return CrashCampaign().check_seed(seed)


def _replay(state: StateId) -> int:
    try:
        error = CrashCampaign().replay(state)
    except ValueError as missing:
        # The workload of a seed changes with the engine, so a state of an earlier version may not exist any more.
        _print(f"{state}: there is no such state: {missing}")
        return 2
    _print(f"{state}: {error or 'no error'}")
    return 0 if error is None else 1


def _summary(total: CrashTally, seconds: float) -> str:
    rate = total.states / seconds
    return (
        f"{total.states:,} states of {total.seeds:,} seeds in {seconds:.0f} s ({rate:.0f}/s), "
        f"{total.second_states:,} of them after a second power loss, {len(total.failures)} failures"
    )


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
