"""`python -m logbrook.testing.kill`: kill a loaded broker N times, in runs of a few dozen, and check the histories.

Exits with 1 if a run failed, with 2 if the client library is missing.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from logbrook.testing.arguments import positive
from logbrook.testing.kill.plan import FLAGS, SMALL_FILES, ClientMissingError, Kill, KillOutcome, KillPlan, summary

_LINE_EVERY_S = 5.0


def main() -> int:
    arguments = _parse()
    console = Console(highlight=False, soft_wrap=True)
    outcomes: list[KillOutcome] = []
    try:
        with _progress(console, arguments.kills) as killed:
            _run(arguments, console, killed, outcomes)
    except ClientMissingError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        console.print("interrupted; the unfinished run is not counted")
    if outcomes:
        console.print(summary(outcomes), markup=False)
    return 0 if outcomes and all(outcome.is_good for outcome in outcomes) else 1


def _run(arguments: argparse.Namespace, console: Console, killed: "_KillProgress", outcomes: list[KillOutcome]) -> None:
    from logbrook.testing.kill.campaign import KillCampaign  # noqa: PLC0415 - it needs a client library

    remaining, seed = arguments.kills, arguments.seed
    while remaining > 0:
        # Every third run uses the default file sizes.
        flags = FLAGS if seed % 3 == 0 else (*FLAGS, *SMALL_FILES)
        plan = KillPlan(min(remaining, arguments.per_run), seed, flags=flags, keep=arguments.keep)
        outcome = KillCampaign(plan, killed).run()
        outcomes.append(outcome)
        if not outcome.is_good:
            console.print(str(outcome), markup=False)
        remaining -= plan.kills
        seed += 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m logbrook.testing.kill",
        description="Kill a loaded broker repeatedly and check that nothing acknowledged is lost.",
    )
    parser.add_argument("--kills", type=positive, default=100, help="total number of kills (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run; later runs count up (%(default)s)")
    parser.add_argument("--per-run", type=positive, default=25, help="kills of one broker and history (%(default)s)")
    parser.add_argument("--keep", metavar="DIR", help="keep history, log and data of failed runs there")
    return parser.parse_args()


@contextmanager
def _progress(console: Console, kills: int) -> Iterator["_KillProgress"]:
    """Show a progress bar on a terminal, a line every few seconds elsewhere."""
    columns = (TextColumn("kills"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console, disable=not console.is_terminal) as bar:
        yield _KillProgress(console, bar, kills)


class _KillProgress:
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
