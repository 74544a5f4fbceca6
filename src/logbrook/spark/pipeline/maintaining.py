"""Scheduled maintenance of a pipeline's tables: optimize and vacuum while the queries run.

It runs in a thread of the pipeline's process, one operation at a time, and needs no Spark. An operation that fails is
reported and repeated at its next time: maintenance never ends a pipeline. The first one is due a minute after the
start, or after its interval if that is shorter, so that a pipeline that often restarts is maintained too. A run that
processes the available records and ends (`once`) does all of it at its end; those of a `schedule` do what is due.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TypeAlias

from logbrook.model.text import size_text
from logbrook.spark.errors import TableChangedError, summarize_error
from logbrook.spark.pipeline.display import Display, QueryProgress
from logbrook.spark.pipeline.spec import SinkSpec
from logbrook.spark.tables import maintenance
from logbrook.spark.tables.format import TableOptions, open_format

Report: TypeAlias = Callable[[str], None]

FIRST_AFTER_S = 60.0
# An upsert that replaces files meanwhile makes a compaction start again.
COMPACTIONS_MAX = 3


@dataclass(slots=True)
class _Task:
    """One operation on one table, and when it is due."""

    name: str
    run: Callable[[], str | None]
    interval_s: float
    due_s: float


class TableMaintenance:
    """Runs the scheduled operations of all sinks. Called from the thread of the QueryRunner.

    `settings` are those of the session's object stores; the options of a sink override them.
    """

    def __init__(
        self,
        sinks: Sequence[SinkSpec],
        settings: Mapping[str, str] = MappingProxyType({}),
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock_s = clock_s
        self._tasks = [task for sink in sinks for task in _tasks(sink, {**settings, **sink.options}, clock_s())]
        self._pool = ThreadPoolExecutor(1, "maintenance") if self._tasks else None
        self._running: tuple[_Task, Future[str | None]] | None = None

    @contextmanager
    def until_closed(self, report: Report) -> Iterator[None]:
        """At the end of the block wait for the operation that runs, and end the thread."""
        try:
            yield
        finally:
            self._finish(report, wait=True)
            if self._pool is not None:
                self._pool.shutdown()

    def poll(self, report: Report) -> None:
        """Report the operation that has ended, and start the next if it is due."""
        self._finish(report, wait=False)
        due = self._due()
        if due and self._running is None:
            self._start(min(due, key=lambda task: task.due_s))

    def run_all(self, report: Report) -> None:
        """Run every operation now, and wait for it."""
        self._run(self._tasks, report)

    def run_due(self, report: Report) -> None:
        """Run the operations that are due, and wait for them."""
        self._run(self._due(), report)

    def _run(self, tasks: Sequence[_Task], report: Report) -> None:
        self._finish(report, wait=True)
        for task in tasks:
            self._start(task)
            self._finish(report, wait=True)

    def _due(self) -> list[_Task]:
        return [task for task in self._tasks if task.due_s <= self._clock_s()]

    def _start(self, task: _Task) -> None:
        assert self._pool is not None
        self._running = task, self._pool.submit(task.run)

    def _finish(self, report: Report, *, wait: bool) -> None:
        if self._running is None or not (wait or self._running[1].done()):
            return
        task, future = self._running
        self._running = None
        # Any error: a full disk, or a bug in a library, is no reason to stop the queries.
        error = future.exception()
        task.due_s = self._clock_s() + task.interval_s
        if error is not None:
            report(f"{task.name} failed: {summarize_error(error)}")
        elif text := future.result():
            report(f"{task.name}: {text}")


class MaintainingDisplay:
    """A display that also polls the maintenance and prints its messages."""

    def __init__(self, display: Display, tables: TableMaintenance) -> None:
        self._display = display
        self._tables = tables

    def print(self, message: str) -> None:
        self._display.print(message)

    def update(self, states: Sequence[QueryProgress]) -> None:
        self._tables.poll(self.print)
        self._display.update(states)

    def close(self, states: Sequence[QueryProgress]) -> None:
        self._display.close(states)


def _tasks(sink: SinkSpec, options: Mapping[str, str], now_s: float) -> list[_Task]:
    spec = sink.maintenance
    if spec is None:
        return []
    tasks = []
    keep = timedelta(milliseconds=spec.keep_ms)
    operations = (
        ("optimize", spec.optimize_ms, lambda: _optimize(sink.target, options)),
        ("vacuum", spec.vacuum_ms, lambda: _vacuum(sink.target, options, keep)),
    )
    for name, interval_ms, run in operations:
        if interval_ms is not None:
            interval_s = interval_ms / 1000
            tasks.append(_Task(f"{name} {sink.name}", run, interval_s, now_s + min(FIRST_AFTER_S, interval_s)))
    return tasks


def _optimize(path: str, options: Mapping[str, str]) -> str | None:
    """Return what was done, or None if there was nothing to do."""
    if not _exists(path, options):
        return None
    file_bytes = TableOptions.parse({**options, "path": path}).file_bytes
    for attempt in range(COMPACTIONS_MAX):
        try:
            result = maintenance.compact(path, file_bytes=file_bytes, options=options)
        except TableChangedError:
            if attempt == COMPACTIONS_MAX - 1:
                raise
            continue
        break
    return f"{result.files_removed} files became {result.files_added}" if result.files_removed else None


def _vacuum(path: str, options: Mapping[str, str], keep: timedelta) -> str | None:
    if not _exists(path, options):
        return None
    result = maintenance.vacuum(path, keep, dry_run=False, options=options)
    return f"{len(result.files)} files deleted, {size_text(result.size_bytes)}" if result.files else None


def _exists(path: str, options: Mapping[str, str]) -> bool:
    """Return False before the first batch."""
    return open_format(TableOptions.parse({**options, "path": path})).load() is not None
