"""Carries out plans of `logbrook cluster move`, `balance` and `drain`: limits the rate, waits, and reports progress."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event
from time import monotonic
from typing import Annotated, Any

import typer

from logbrook.cli.failures import describe_error, fail, interrupts_blocked, refuse, termination_as_interrupt
from logbrook.cli.terminal import Column, plural
from logbrook.client.admin import Admin
from logbrook.client.client import Client
from logbrook.client.cluster_overview import ClusterOverview, PartitionOverview, read_partitions
from logbrook.client.errors import ClientError
from logbrook.client.move_throttle import MoveThrottle
from logbrook.client.replica_plans import Plan
from logbrook.config.values import read_quantity
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.model.text import size_text

Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle",
        metavar="RATE",
        help="Bytes per second that each broker sends and receives for the move, such as 50MB; default: no limit.",
    ),
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Return when the move has begun; `logbrook cluster status` shows it.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")]

MOVE_COLUMNS: tuple[Column, ...] = (
    ("partition", lambda row: f"{row['topic']}-{row['partition']}"),
    "from",
    "to",
    ("copies", "size_bytes"),
)
CTRL_C = (
    "Ctrl-C ends the waiting, not the move: it goes on, without the limit of --throttle. `logbrook cluster move "
    "--cancel` cancels it."
)

# The interval of polls doubles between these, after answers and failures alike: a fixed schedule, not a retry policy.
_POLL_S_MIN = 0.05
_POLL_S_MAX = 1.0
# A cluster that does not answer for this long ends the waiting.
_SILENCE_S_MAX = 60.0
# The brokers may need this long until all of them know of an ended move.
_SETTLING_S = 3.0
# Between two lines where there is no terminal.
_LOG_INTERVAL_S = 10.0


def parse_rate(text: str | None, *, waits: bool) -> int | None:
    """Return the bytes per second of --throttle; end the command if it is invalid, or would stay."""
    if text is None:
        return None
    try:
        rate = read_quantity(text.strip().removesuffix("/s"), "bytes")
    except (ValueError, KeyError):
        rate = 0
    if rate < 1:
        refuse("--throttle", f"{text!r} is not a number of bytes per second such as 50MB or 10MiB")
    if not waits:
        refuse("--throttle", "the limit is removed at the end of the move, for which --no-wait does not wait")
    return rate


def plan_rows(overview: ClusterOverview, plan: Plan) -> list[dict[str, Any]]:
    """Return the moves of a plan for JSON and tables; `size_bytes` are the bytes to copy."""
    before = overview.assignment
    sizes = overview.sizes
    return [
        partition._asdict()
        | {
            "from": list(before[partition]),
            "to": list(target),
            "size_bytes": _copied_bytes(before[partition], target, sizes.get(partition)),
        }
        for partition, target in sorted(plan.items())
    ]


def plan_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the number and size of the copies, and of changes without a copy."""
    copies = sum(len(set(row["to"]) - set(row["from"])) for row in rows)
    others = sum(set(row["to"]) <= set(row["from"]) for row in rows)
    size_bytes = sum(row["size_bytes"] or 0 for row in rows)
    parts = (
        [f"{copies:,} {'copy' if copies == 1 else 'copies'} ({size_text(size_bytes)})"] if copies or not others else []
    )
    if others:
        parts.append(f"{plural(others, 'change')} without a copy")
    return ", ".join(parts)


def carry_out(
    admin: Admin,
    overview: ClusterOverview,
    plan: Plan,
    *,
    rate: int | None = None,
    waits: bool = True,
    also_wait_for: Plan | None = None,
) -> None:
    """Begin the moves and wait for their end, and for that of moves under way; end the command if some do not arrive.

    The limit is removed in any case, also after Ctrl-C.
    """
    before = {partition.partition: partition.before_move for partition in overview.partitions}
    targets = {**(also_wait_for or {}), **plan}
    throttle = MoveThrottle(admin.configs, before, targets)
    with termination_as_interrupt():
        try:
            if rate is not None:
                throttle.begin(rate, overview.racks)
            admin.replicas.move(plan)
            if not waits:
                return
            with _progress_line() as show:
                missed = _Waiting(admin.client, overview, targets, show).run()
        except KeyboardInterrupt:
            how = "" if rate is None else ", without its limit"
            commands = "`logbrook cluster status` shows it, `logbrook cluster move --cancel` cancels it"
            typer.echo(f"the move goes on{how}: {commands}", err=True)
            raise
        finally:
            if rate is not None:
                with interrupts_blocked():
                    _end_throttle(admin, throttle, targets)
    if missed:
        names = ", ".join(map(str, missed))
        fail(f"{names} did not arrive: the move was cancelled, or replaced by another one")


class _Waiting:
    """Waits until partitions have the replicas of a plan."""

    def __init__(self, client: Client, overview: ClusterOverview, targets: Plan, show: Callable[[str], None]) -> None:
        self._client = client
        self._targets = targets
        self._show = show
        assignment = {partition.partition: partition for partition in overview.partitions}
        self._bytes = {
            partition: _copied_bytes(assignment[partition].before_move, target, assignment[partition].size_bytes) or 0
            for partition, target in targets.items()
            if partition in assignment
        }
        self._begun_s = monotonic()

    def run(self) -> list[TopicPartition]:
        """Return the partitions that are not moving any more and have other replicas."""
        waiting, poll_s = Event(), _POLL_S_MIN
        answered_s = monotonic()
        idle_since_s: float | None = None
        while True:
            try:
                partitions = read_partitions(self._client, {partition.topic for partition in self._targets})
            except ClientError as error:
                # A broker may be restarting.
                if not error.is_retriable or monotonic() - answered_s > _SILENCE_S_MAX:
                    raise
                self._show(describe_error(error))
            else:
                answered_s = monotonic()
                missing = [partition for partition in self._targets if not self._has_arrived(partitions, partition)]
                if not missing:
                    return []
                is_idle = not any(partitions[partition].is_moving for partition in missing)
                idle_since_s = (idle_since_s or answered_s) if is_idle else None
                if idle_since_s is not None and answered_s - idle_since_s > _SETTLING_S:
                    return missing
                self._show(self._progress(partitions, missing))
            waiting.wait(poll_s)
            poll_s = min(2 * poll_s, _POLL_S_MAX)

    def _has_arrived(self, partitions: Mapping[TopicPartition, PartitionOverview], partition: TopicPartition) -> bool:
        """True also if the topic was deleted."""
        current = partitions.get(partition)
        return current is None or (not current.is_moving and current.replicas == self._targets[partition])

    def _progress(
        self, partitions: Mapping[TopicPartition, PartitionOverview], missing: Sequence[TopicPartition]
    ) -> str:
        total = sum(self._bytes.values())
        remaining = sum(
            max(0, self._bytes.get(partition, 0) - partitions[partition].copied_bytes) for partition in missing
        )
        copied = max(0, total - remaining)
        percent = 100 * copied // total if total else 0
        seconds = monotonic() - self._begun_s
        done = len(self._targets) - len(missing)
        size = f"{size_text(copied)} of {size_text(total)} ({percent} %)"
        return f"{done} of {plural(len(self._targets), 'partition')}, {size}, {seconds:.0f} s"


def _copied_bytes(before: Sequence[BrokerId], target: Sequence[BrokerId], size_bytes: int | None) -> int | None:
    added = len(set(target) - set(before))
    return size_bytes * added if size_bytes is not None else (None if added else 0)


def _end_throttle(admin: Admin, throttle: MoveThrottle, targets: Plan) -> None:
    """Remove the limit. Other moves may be limited, too: then the rates of the brokers stay."""
    try:
        has_others = bool(admin.replicas.ongoing().keys() - targets.keys())
    except LogbrookError:
        has_others = False
    for problem in throttle.end(keep_rates=has_others):
        typer.echo(
            f"warning: the limit of the move could not be removed: {describe_error(problem)}; `logbrook cluster "
            "config` and `logbrook topic config` with --unset remove it",
            err=True,
        )


@contextmanager
def _progress_line() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a line on standard error: in place on a terminal, else every 10 s."""
    is_terminal = sys.stderr.isatty()
    shown_s = monotonic()

    def show(line: str) -> None:
        nonlocal shown_s
        if is_terminal:
            typer.echo(f"\r\x1b[2K{line}", nl=False, err=True)
        elif monotonic() - shown_s >= _LOG_INTERVAL_S:
            shown_s = monotonic()
            typer.echo(line, err=True)

    try:
        yield show
    finally:
        if is_terminal:
            typer.echo("\r\x1b[2K", nl=False, err=True)
