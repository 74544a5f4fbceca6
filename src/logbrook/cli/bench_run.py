"""A benchmark run: starts the worker processes, merges their reports, and stops them."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from time import monotonic
from typing import NamedTuple

from logbrook.cli.bench_load import BenchCounters, BenchLoad, LatencyHistogram, consume, produce
from logbrook.cli.failures import describe_error, interrupt_exit_code, interrupts_blocked
from logbrook.model import LogbrookError
from logbrook.ports.parent_process import end_with_parent

_REPORT_INTERVAL_S = 0.2
# Once producing has ended, consumers without progress for this long are stopped.
_QUIET_S = 3.0
_DRAIN_S = 5.0


class WorkerExit(NamedTuple):
    """Last message of a worker, after its BenchCounters; `failure` is an error message."""

    failure: str | None


@dataclass
class SideResult:
    """Totals of all producers or of all consumers."""

    records: int = 0
    bytes: int = 0
    latencies: LatencyHistogram = field(default_factory=LatencyHistogram)
    first_s: float | None = None
    last_s: float | None = None

    @property
    def seconds(self) -> float:
        """Time from the start of the first worker to the last record."""
        return 0.0 if self.first_s is None or self.last_s is None else self.last_s - self.first_s

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    def add(self, counters: BenchCounters) -> None:
        self.first_s = counters.from_s if self.first_s is None else min(self.first_s, counters.from_s)
        if counters.records:
            self.last_s = max(self.last_s or 0.0, counters.last_s)
        self.records += counters.records
        self.bytes += counters.bytes
        self.latencies.merge(counters.latencies)


@dataclass
class BenchResult:
    """Results so far. `interrupt_code` is the exit code of a run that Ctrl-C or SIGTERM stopped."""

    produced: SideResult = field(default_factory=SideResult)
    consumed: SideResult = field(default_factory=SideResult)
    failure: str | None = None
    interrupt_code: int | None = None


class BenchRun:
    """Runs once: `start`, then `run`. Producers share rate and count, consumers share the partitions."""

    def __init__(
        self,
        load: BenchLoad,
        offsets: Mapping[int, int],
        producers: int,
        consumers: int,
        duration_s: float | None,
        existing_records: int,
    ) -> None:
        """Consumers start at `offsets`.

        Without producers, the run ends after `existing_records` or `load.count` records, or without progress.
        """
        self.result = BenchResult()
        self._load = load
        self._duration_s = duration_s
        self._existing_records = existing_records
        self._is_consume_only = not producers
        context = multiprocessing.get_context("fork")
        self._stop_producing: Event = context.Event()
        self._stop_consuming: Event = context.Event()
        self._workers: dict[Pipe, _Worker] = {}
        numbers = sorted(offsets)
        for index in range(consumers):
            share_of_offsets = {number: offsets[number] for number in numbers[index::consumers]}
            if share_of_offsets:
                is_timed = not self._is_consume_only
                work = partial(consume, load, share_of_offsets, is_timed, is_stopped=self._stop_consuming.is_set)
                self._add(context, work, False)
        for index in range(producers):
            share = replace(
                load,
                rate=None if load.rate is None else load.rate / producers,
                count=None if load.count is None else (load.count + index) // producers,
            )
            # Each producer starts with another partition.
            rotated = numbers[index % len(numbers) :] + numbers[: index % len(numbers)]
            self._add(context, partial(produce, share, rotated, is_stopped=self._stop_producing.is_set), True)

    def start(self) -> None:
        """Fork the workers; must be called before this process has threads."""
        sys.stdout.flush()
        sys.stderr.flush()
        # A worker must not run the signal handlers of this process before it has set its own.
        with interrupts_blocked():
            for worker in self._workers.values():
                worker.process.start()

    def run(self, on_progress: Callable[[BenchResult], None]) -> BenchResult:
        """Run until all work is done, the time is up, Ctrl-C or SIGTERM; calls `on_progress` repeatedly."""
        try:
            try:
                self._collect(on_progress)
            except KeyboardInterrupt as interrupt:
                self.result.interrupt_code = interrupt_exit_code(interrupt)
                self._drain()
        finally:
            for pipe, worker in self._workers.items():
                worker.process.terminate()
                worker.process.join()
                pipe.close()
        return self.result

    def _add(self, context: "multiprocessing.context.ForkContext", work: "_Work", is_producer: bool) -> None:
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_run_worker, args=(sending, work, os.getpid()), daemon=True)
        self._workers[receiving] = _Worker(process, is_producer)

    def _collect(self, on_progress: Callable[[BenchResult], None]) -> None:
        started_s = progress_s = monotonic()
        running = dict(self._workers)
        while running:
            consumed_before = self.result.consumed.records
            self._receive(running, _REPORT_INTERVAL_S)
            now_s = monotonic()
            if self.result.failure or (self._duration_s is not None and now_s - started_s >= self._duration_s):
                self._stop_producing.set()
                if self._is_consume_only or self.result.failure:
                    self._stop_consuming.set()
            is_producing = any(worker.is_producer for worker in running.values())
            if is_producing or self.result.consumed.records > consumed_before:
                progress_s = now_s
            if not is_producing and (self._has_consumed_all or now_s - progress_s > _QUIET_S):
                self._stop_consuming.set()
            on_progress(self.result)

    def _drain(self) -> None:
        """Stop the workers and collect the reports of their requests in flight."""
        self._stop_producing.set()
        self._stop_consuming.set()
        running = dict(self._workers)
        until_s = monotonic() + _DRAIN_S
        with suppress(KeyboardInterrupt):
            while running and monotonic() < until_s:
                self._receive(running, _REPORT_INTERVAL_S)

    @property
    def _has_consumed_all(self) -> bool:
        expected = self._existing_records if self._is_consume_only else self.result.produced.records
        if self._is_consume_only and self._load.count is not None:
            expected = min(expected, self._load.count)
        return self.result.consumed.records >= expected

    def _receive(self, running: "dict[Pipe, _Worker]", timeout_s: float) -> None:
        """Process messages of workers, and remove those that have exited from `running`."""
        # Liveness is checked first: messages sent before a worker died are then still read.
        dead = [pipe for pipe, worker in running.items() if not worker.process.is_alive()]
        for pipe in wait(list(running), timeout_s):
            assert isinstance(pipe, Pipe)
            message = pipe.recv()
            if isinstance(message, WorkerExit):
                self.result.failure = self.result.failure or message.failure
                del running[pipe]
            else:
                side = self.result.produced if running[pipe].is_producer else self.result.consumed
                side.add(message)
        for pipe in dead:
            if pipe in running and not pipe.poll():
                del running[pipe]
                self.result.failure = self.result.failure or "a process of the benchmark was killed"


class _Worker(NamedTuple):
    process: BaseProcess
    is_producer: bool


_Work = Callable[[Callable[[], BenchCounters]], None]


def _run_worker(pipe: Pipe, work: _Work, parent_pid: int) -> None:
    """Main function of a worker process. Ctrl-C is ignored: the parent handles it and sets the stop event."""
    end_with_parent(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    reporter = _Reporter(pipe)
    failure = None
    try:
        work(reporter.counters)
    except LogbrookError as error:
        failure = describe_error(error)
    except Exception as error:
        failure = f"a bug in the benchmark: {error!r}"
    reporter.report()
    pipe.send(WorkerExit(failure))


class _Reporter:
    """Sends the counters of a worker to the parent at an interval."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._current = BenchCounters()

    def counters(self) -> BenchCounters:
        """Return the current counters; call it for each update, because they are replaced after each report."""
        if monotonic() - self._current.from_s >= _REPORT_INTERVAL_S:
            self.report()
        return self._current

    def report(self) -> None:
        self._pipe.send(self._current)
        self._current = BenchCounters()
