"""`python -m logbrook.testing.chaos`: inject N faults into clusters under load, and check the histories.

Exits with 1 if a run failed, with 2 if a client library or etcd is missing.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.table import Table

from logbrook.testing.arguments import positive
from logbrook.testing.chaos.cluster import why_no_small_disk
from logbrook.testing.chaos.outcome import ChaosOutcome, StepResult, summary, table
from logbrook.testing.chaos.plan import ChaosPlan, FaultKind, FaultStep, plans
from logbrook.testing.etcd import find_etcd
from logbrook.testing.kill.plan import ClientMissingError


def main() -> int:
    arguments = _parse()
    console = Console(highlight=False, soft_wrap=True)
    etcd = find_etcd()
    if etcd is None:
        console.print("the chaos test needs etcd: run `make etcd`")
        return 2
    with tempfile.TemporaryDirectory(prefix="logbrook-chaos-") as directory:
        reason = why_no_small_disk(Path(directory))
    if reason:
        console.print(f"NO FULL DISKS: a small disk cannot be mounted: {reason}", style="bold red")
    report = _ChaosReport(console, arguments.faults)
    outcomes: list[ChaosOutcome] = []
    try:
        _run(arguments, etcd, not reason, report, outcomes)
    except ClientMissingError as error:
        console.print(str(error), markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("interrupted; the unfinished run is not checked")
    report.summarise(outcomes)
    return 0 if outcomes and all(outcome.is_good for outcome in outcomes) else 1


def _run(
    arguments: argparse.Namespace,
    etcd: str,
    has_small_disk: bool,
    report: "_ChaosReport",
    outcomes: list[ChaosOutcome],
) -> None:
    from logbrook.testing.chaos.campaign import ChaosCampaign  # noqa: PLC0415 - it needs client libraries

    kinds = tuple(FaultKind[name] for name in arguments.kinds) or None

    def make(faults: int, seed: int) -> ChaosPlan:
        return ChaosPlan(
            faults,
            seed,
            has_small_disk=has_small_disk,
            kinds=kinds and kinds[:faults],
            java_classpath=arguments.java,
            has_spark=arguments.spark,
        )

    for plan in plans(arguments.faults, arguments.seed, arguments.per_run, make):
        outcome = ChaosCampaign(plan, etcd, report.on_step, report.on_begin, arguments.keep).run()
        # A campaign has millions of events.
        outcome.events.clear()
        outcomes.append(outcome)
        report.on_run(outcome)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m logbrook.testing.chaos",
        description="Inject faults into clusters under load and check that nothing acknowledged is lost.",
    )
    parser.add_argument("--faults", type=positive, default=200, help="total number of faults (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run; later runs count up (%(default)s)")
    parser.add_argument("--per-run", type=positive, default=20, help="faults of one cluster (%(default)s)")
    parser.add_argument(
        "--kinds", nargs="*", default=[], choices=[kind.name for kind in FaultKind], help="these, in this order"
    )
    parser.add_argument("--keep", action="store_true", help="keep the directory of every run, not only of failures")
    parser.add_argument("--java", default="", metavar="CLASSPATH", help="add a Java producer, with Kafka's clients")
    parser.add_argument("--spark", action="store_true", help="add a streaming query that copies the topic exactly once")
    return parser.parse_args()


class _ChaosReport:
    """Prints a line per step, and the summary."""

    def __init__(self, console: Console, faults: int) -> None:
        self._console = console
        self._faults = faults
        self._done = 0
        self._begun = monotonic()
        self._results: list[StepResult] = []

    def on_begin(self, step: FaultStep) -> None:
        if self._console.is_terminal:
            self._console.print(f"{self._progress(len(step.faults))} {step} ...", markup=False, end="\r", style="dim")

    def on_step(self, result: StepResult) -> None:
        self._done += len(result.step.faults)
        self._results.append(result)
        self._console.print(f"{self._progress()} {result}", markup=False)

    def on_run(self, outcome: ChaosOutcome) -> None:
        counts = outcome.verdict.counts
        text = f"seed {outcome.plan.seed}: {counts.acknowledged:,} acknowledged, {counts.polled:,} read"
        if outcome.is_good:
            self._console.print(f"{text}, {outcome.seconds:.0f} s {outcome.kept}", markup=False)
        else:
            self._console.print(str(outcome), markup=False)

    def summarise(self, outcomes: list[ChaosOutcome]) -> None:
        columns = ["fault", "number", "writes stood still: median s", "longest", "in sync after: median s", "longest"]
        rendered = Table(*columns, box=None, pad_edge=False)
        for row in table(self._results):
            rendered.add_row(*row)
        self._console.print(rendered)
        if outcomes:
            self._console.print(summary(outcomes), markup=False)

    def _progress(self, more: int = 0) -> str:
        minutes, seconds = divmod(int(monotonic() - self._begun), 60)
        return f"{self._done + more:4} of {self._faults} {minutes:3}:{seconds:02}"


if __name__ == "__main__":
    sys.exit(main())
