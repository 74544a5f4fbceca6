"""`python -m logbrook.testing.kill`: kill a loaded broker N times, in runs of a few dozen, and check what clients saw.

Ends with 1 if something was found, with 2 if there is no client library to make the load with.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from logbrook.testing.kill.errors import ClientMissingError
from logbrook.testing.kill.moments import Kill

if TYPE_CHECKING:
    from logbrook.testing.kill.campaign import Outcome

_LINE_EVERY_S = 5.0


def main() -> int:
    arguments = _parse()
    console = Console(highlight=False, soft_wrap=True)
    try:
        from logbrook.testing.kill.campaign import Campaign, Plan  # noqa: PLC0415 - needs a client library
    except ClientMissingError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    outcomes: list[Outcome] = []
    with _shown(console, arguments.kills) as killed:
        left, seed = arguments.kills, arguments.seed
        while left > 0:
            plan = Plan(min(left, arguments.per_run), seed, keep=arguments.keep)
            outcome = Campaign(plan, killed).run()
            outcomes.append(outcome)
            if not outcome.is_good:
                console.print(str(outcome), markup=False)
            left -= plan.kills
            seed += 1
    console.print(_summary(outcomes), markup=False)
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


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


def _summary(outcomes: "list[Outcome]") -> str:
    kills = sum(sum(outcome.moments.values()) for outcome in outcomes)
    moments: Counter[str] = Counter()
    for outcome in outcomes:
        moments.update(outcome.moments)
    counts = [outcome.verdict.counts for outcome in outcomes]
    seconds = sum(outcome.seconds for outcome in outcomes)
    starts = [start for outcome in outcomes for start in outcome.starts_s]
    lines = [
        f"{kills:,} kills in {len(outcomes):,} runs and {seconds:.0f} s: "
        + ", ".join(f"{count:,} {moment}" for moment, count in moments.most_common()),
        f"{sum(one.events for one in counts):,} events: {sum(one.sent for one in counts):,} sent, "
        f"{sum(one.acknowledged for one in counts):,} acknowledged, {sum(one.unknown for one in counts):,} unknown "
        f"({sum(one.unknown_found for one in counts):,} of them there), {sum(one.polled for one in counts):,} polled, "
        f"{sum(one.committed for one in counts):,} commits, {sum(one.latest_seen for one in counts):,} latest offsets",
    ]
    if starts:
        lines.append(f"a start took {median(starts):.2f} s, at most {max(starts):.2f} s")
    bad = [outcome for outcome in outcomes if not outcome.is_good]
    if bad:
        seeds = ", ".join(str(outcome.plan.seed) for outcome in bad)
        lines.append(f"FAILED: {len(bad)} of {len(outcomes)} runs, seeds {seeds}")
    else:
        lines.append(f"no failure in {kills:,} kills: fewer than {3 / kills:.1e} of such kills fail (95 %)")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
