"""`python -m logbrook.testing.kill`: kill a loaded broker N times, in runs of a few dozen, and check what clients saw.

Ends with 1 if something was found, with 2 if there is no client library to make the load with.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from logbrook.testing.kill.errors import ClientMissingError
from logbrook.testing.kill.moments import Kill
from logbrook.testing.kill.plan import FLAGS, SMALL_FILES, Outcome, Plan, summary

_LINE_EVERY_S = 5.0


def main() -> int:
    arguments = _parse()
    console = Console(highlight=False, soft_wrap=True)
    outcomes: list[Outcome] = []
    try:
        with _shown(console, arguments.kills) as killed:
            _run(arguments, console, killed, outcomes)
    except ClientMissingError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        console.print("interrupted; the run that was under way does not count")
    if outcomes:
        console.print(summary(outcomes), markup=False)
    return 0 if outcomes and all(outcome.is_good for outcome in outcomes) else 1


def _run(arguments: argparse.Namespace, console: Console, killed: "_Shown", outcomes: list[Outcome]) -> None:
    from logbrook.testing.kill.campaign import Campaign  # noqa: PLC0415 - it needs a client library

    left, seed = arguments.kills, arguments.seed
    while left > 0:
        # Every third run has files of the usual sizes.
        flags = FLAGS if seed % 3 == 0 else (*FLAGS, *SMALL_FILES)
        plan = Plan(min(left, arguments.per_run), seed, flags=flags, keep=arguments.keep)
        outcome = Campaign(plan, killed).run()
        outcomes.append(outcome)
        if not outcome.is_good:
            console.print(str(outcome), markup=False)
        left -= plan.kills
        seed += 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m logbrook.testing.kill", description="Kill a loaded broker again and again."
    )
    parser.add_argument("--kills", type=_positive, default=100, help="how often, in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; others follow it (%(default)s)")
    parser.add_argument("--per-run", type=_positive, default=25, help="kills of one broker and history (%(default)s)")
    parser.add_argument("--keep", metavar="DIR", help="put history, log and data of runs with findings there")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


@contextmanager
def _shown(console: Console, kills: int) -> Iterator["_Shown"]:
    """A bar on a terminal, a line every few seconds elsewhere."""
    columns = (TextColumn("kills"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console, disable=not console.is_terminal) as bar:
        yield _Shown(console, bar, kills)


class _Shown:
    def __init__(self, console: Console, bar: Progress, kills: int) -> None:
        self._console = console
        self._bar = bar
        self._kills = kills
        self._done = 0
        self._task = bar.add_task("", total=kills)
        self._next_line_at = monotonic() + _LINE_EVERY_S

    def __call__(self, kill: Kill) -> None:
        self._done += 1
        self._bar.update(self._task, advance=1, description=kill.moment)
        if not self._console.is_terminal and monotonic() >= self._next_line_at:
            self._console.print(f"{self._done:,} of {self._kills:,} kills")
            self._next_line_at = monotonic() + _LINE_EVERY_S


if __name__ == "__main__":
    sys.exit(main())
