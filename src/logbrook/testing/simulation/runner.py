"""Runs many schedules in several processes, shows progress, and continues where an earlier run ended.

A campaign file has the totals of all runs and the next seed, so that a long campaign can be split over nights:

    {"first_seed": 0, "next_seed": 12000, "schedules": 12000, "failed_seeds": []}

It is written at every progress line, and counts the seeds below the first one that is not finished.
"""

import gc
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from logbrook.ports.parent_process import end_with_parent
from logbrook.testing.simulation.campaign import SimulationFailureError, SimulationRun

_SEEDS_PER_CHUNK = 20
_PROGRESS_S = 10.0

# Makes the run of a seed, not started.
NewRun = Callable[[int], SimulationRun]


@dataclass
class ScheduleTally:
    """Totals of some schedules."""

    schedules: int = 0
    cpu_s: float = 0.0
    faults: int = 0
    acknowledged: int = 0
    failures: list[tuple[int, list[str], str]] = field(default_factory=list)
    """Seed, events and reason of each failure."""

    def add(self, other: "ScheduleTally") -> None:
        self.schedules += other.schedules
        self.cpu_s += other.cpu_s
        self.faults += other.faults
        self.acknowledged += other.acknowledged
        self.failures += other.failures


@dataclass
class CampaignProgress:
    """All runs of a campaign so far."""

    first_seed: int
    next_seed: int
    schedules: int = 0
    failed_seeds: list[int] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> "CampaignProgress | None":
        """Return the content of a campaign file, None if there is none. Raises OSError or ValueError."""
        return cls(**json.loads(path.read_text())) if path.exists() else None

    def save(self, path: Path) -> None:
        """Raises OSError."""
        temporary = path.with_name(path.name + ".new")
        temporary.write_text(json.dumps(asdict(self)) + "\n")
        temporary.replace(path)


@contextmanager
def garbage_collected_rarely() -> Iterator[None]:
    """Leave what was imported out of garbage collections; the caller collects between schedules.

    Cycles of a schedule are garbage when it ends, so collections during it find little.
    """
    was_enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def run_schedules(new_run: NewRun, first: int, count: int, *, keep_going: bool = False) -> ScheduleTally:
    """Run seeds in this process, until one fails unless `keep_going`."""
    tally = ScheduleTally()
    started_s = time.process_time()
    with garbage_collected_rarely():
        for seed in range(first, first + count):
            run = new_run(seed)
            tally.schedules += 1
            try:
                run.run()
            except SimulationFailureError as failure:
                tally.failures.append((failure.seed, failure.events, failure.reason))
                if not keep_going:
                    break
            tally.faults += run.faults
            tally.acknowledged += len(run.history.acknowledged)
            # What is not collected here would be frozen with the next schedules, and stay forever.
            del run
            # While the objects of the schedule are in the processor's cache: after every 20th it took a tenth longer.
            gc.collect()
    tally.cpu_s = time.process_time() - started_s
    return tally


class SimulationCampaign:
    """Runs the seeds of one invocation, `jobs` at a time. Failures and lines of progress go to `show`."""

    def __init__(
        self,
        new_run: NewRun,
        first: int,
        count: int,
        jobs: int,
        show: Callable[[str], None],
        *,
        keep_going: bool = False,
        file: Path | None = None,
        earlier: CampaignProgress | None = None,
    ) -> None:
        self.tally = ScheduleTally()
        self._new_run = new_run
        self._first, self._end = first, first + count
        self._jobs = jobs
        self._show = show
        self._keep_going = keep_going
        self._file = file
        self._earlier = earlier or CampaignProgress(first, first)
        self._finished: set[int] = set()
        self._next = first
        self._started_s = time.monotonic()

    @property
    def progress(self) -> CampaignProgress:
        """The totals of the campaign with this run."""
        failed = sorted(seed for seed, _, _ in self.tally.failures)
        earlier = self._earlier
        return CampaignProgress(
            earlier.first_seed,
            self._next,
            earlier.schedules + self._next - self._first,
            [*earlier.failed_seeds, *failed],
        )

    def run(self) -> None:
        """Run until all seeds are finished, or one has failed, or KeyboardInterrupt."""
        shown_s = self._started_s
        try:
            for first, tally in self._results():
                self.tally.add(tally)
                self._on_finished(first)
                for seed, events, reason in tally.failures:
                    self._show("\n".join([*events, f"seed {seed}: {reason}"]))
                if time.monotonic() - shown_s >= _PROGRESS_S:
                    shown_s = time.monotonic()
                    self._show(self.summary())
                    self._save()
        finally:
            self._save()

    def summary(self) -> str:
        tally = self.tally
        seconds = max(time.monotonic() - self._started_s, 1e-3)
        return (
            f"{tally.schedules:,} schedules in {seconds:.0f} s ({tally.schedules / seconds:.1f}/s, "
            f"{tally.cpu_s / max(tally.schedules, 1):.2f} CPU s each): {tally.faults:,} faults, "
            f"{tally.acknowledged:,} acknowledged records, {len(tally.failures)} failures; "
            f"next seed {self._next}, {self.progress.schedules:,} schedules of the campaign"
        )

    def _save(self) -> None:
        if self._file is not None:
            self.progress.save(self._file)

    def _on_finished(self, first: int) -> None:
        self._finished.add(first)
        while self._next in self._finished:
            self._finished.discard(self._next)
            self._next = min(self._next + _SEEDS_PER_CHUNK, self._end)

    def _results(self) -> Iterator[tuple[int, ScheduleTally]]:
        """Yield the first seed and the tally of each chunk, as they complete."""
        chunks = iter(range(self._first, self._end, _SEEDS_PER_CHUNK))
        if self._jobs == 1:
            for first in chunks:
                yield first, self._chunk(first)()
                if self._is_over:
                    return
            return
        context = multiprocessing.get_context("fork")
        # A campaign that is killed must not leave processes behind that wait for work.
        pool = ProcessPoolExecutor(self._jobs, context, _begin_worker, (os.getpid(),))
        running: dict[Future[ScheduleTally], int] = {}
        try:
            while True:
                room = 0 if self._is_over else 2 * self._jobs - len(running)
                for first in islice(chunks, room):
                    running[pool.submit(self._chunk(first))] = first
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield running.pop(future), future.result()
        finally:
            # After Ctrl-C, wait only for the chunks that have begun.
            pool.shutdown(cancel_futures=True)

    @property
    def _is_over(self) -> bool:
        return bool(self.tally.failures) and not self._keep_going

    def _chunk(self, first: int) -> Callable[[], ScheduleTally]:
        count = min(_SEEDS_PER_CHUNK, self._end - first)
        return partial(run_schedules, self._new_run, first, count, keep_going=self._keep_going)


def _begin_worker(parent_pid: int) -> None:
    """Ctrl-C ends the campaign, which ends its processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent_pid)
