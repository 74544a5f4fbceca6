"""Scheduled maintenance: when it runs, and that it never ends a pipeline."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from logbrook.spark.errors import TableChangedError
from logbrook.spark.pipeline import maintaining
from logbrook.spark.pipeline.display import QueryProgress
from logbrook.spark.pipeline.maintaining import MaintainingDisplay, TableMaintenance
from logbrook.spark.pipeline.spec import MaintenanceSpec, SinkSpec
from logbrook.spark.tables.maintenance import CompactResult, VacuumResult

HOUR_MS = 3_600_000


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Operations:
    """Replaces the module `maintenance`: records the calls, and returns or raises what the test sets."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.options: dict[str, str] = {}
        self.errors: list[Exception] = []
        self.may_run = threading.Event()
        self.may_run.set()

    def compact(self, path: str, *, file_bytes: int, options: dict[str, str]) -> CompactResult:
        assert self.may_run.wait(30)
        self.options = options
        self.calls.append(f"compact {path} {file_bytes} {options['table.format']}")
        if self.errors:
            raise self.errors.pop()
        return CompactResult(files_removed=9, files_added=2)

    def vacuum(self, path: str, keep: timedelta, *, dry_run: bool, options: dict[str, str]) -> VacuumResult:
        self.calls.append(f"vacuum {path} {keep.days} days {dry_run} {options['table.format']}")
        return VacuumResult(("a", "b"), 2048, deleted=True)


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> Operations:
    fake = Operations()
    monkeypatch.setattr(maintaining, "maintenance", fake)
    tables = {"/tables/new": None}
    monkeypatch.setattr(
        maintaining, "open_format", lambda options: SimpleNamespace(load=lambda: tables.get(options.path, fake))
    )
    return fake


@pytest.fixture
def sink() -> SinkSpec:
    options = {"table.format": "delta", "file.bytes": "1000", "write.mode": "upsert", "upsert.keys": "id"}
    schedule = MaintenanceSpec(optimize_ms=HOUR_MS, vacuum_ms=None, keep_ms=7 * 24 * HOUR_MS)
    return SinkSpec("archive", 1, "orders", True, "/tables/archive", "append", None, options, None, schedule)


class Printed:
    """A display that records messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.updates = 0

    def print(self, message: str) -> None:
        self.messages.append(message)

    def update(self, states: Sequence[QueryProgress]) -> None:
        self.updates += 1

    def close(self, states: Sequence[QueryProgress]) -> None:
        pass


def poll_until(tables: TableMaintenance, messages: list[str], count: int) -> None:
    """Poll until there are `count` messages; the operation runs in another thread."""
    pause = threading.Event()
    for _ in range(3000):
        tables.poll(messages.append)
        if len(messages) >= count:
            return
        pause.wait(0.01)
    raise AssertionError(messages)


def test_an_operation_is_due_a_minute_after_the_start_and_then_at_its_interval(
    operations: Operations, sink: SinkSpec
) -> None:
    clock, printed = Clock(), Printed()
    tables = TableMaintenance([sink], clock_s=clock)
    with tables.until_closed(printed.print):
        display = MaintainingDisplay(printed, tables)
        display.update([])
        assert (operations.calls, printed.updates) == ([], 1)
        clock.now_s += 60
        poll_until(tables, printed.messages, 1)
        assert printed.messages == ["optimize archive: 9 files became 2"]
        assert operations.calls == ["compact /tables/archive 1000 delta"]
        clock.now_s += 3599
        display.update([])
        assert len(operations.calls) == 1
        clock.now_s += 1
        poll_until(tables, printed.messages, 2)
    assert len(operations.calls) == 2


def test_a_table_in_an_object_store_is_maintained_with_the_settings_of_the_session(
    operations: Operations, sink: SinkSpec
) -> None:
    options = {"table.format": "delta", "storage.aws_region": "eu-west-1"}
    in_store = replace(sink, target="s3://bucket/archive", options=options)
    settings = {"storage.aws_region": "us-east-1", "storage.aws_endpoint": "http://127.0.0.1:1"}
    messages: list[str] = []
    tables = TableMaintenance([in_store], settings)
    with tables.until_closed(messages.append):
        tables.run_all(messages.append)
    assert messages == ["optimize archive: 9 files became 2"]
    assert operations.options == {**settings, **options}


def test_an_error_is_reported_and_the_next_time_comes(operations: Operations, sink: SinkSpec) -> None:
    clock = Clock()
    messages: list[str] = []
    operations.errors = [OSError("disk full")]
    tables = TableMaintenance([sink], clock_s=clock)
    with tables.until_closed(messages.append):
        clock.now_s += 60
        poll_until(tables, messages, 1)
        assert messages == ["optimize archive failed: disk full"]
        clock.now_s += 3600
        poll_until(tables, messages, 2)
    assert messages[1] == "optimize archive: 9 files became 2"


def test_a_compaction_that_an_upsert_overtakes_starts_again(operations: Operations, sink: SinkSpec) -> None:
    messages: list[str] = []
    tables = TableMaintenance([sink])
    with tables.until_closed(messages.append):
        operations.errors = [TableChangedError("t", 1)] * 2
        tables.run_all(messages.append)
        operations.errors = [TableChangedError("t", 1)] * 3
        tables.run_all(messages.append)
    removed = "table 't': 1 files were removed by another writer during the compaction; try again"
    assert messages == ["optimize archive: 9 files became 2", f"optimize archive failed: {removed}"]


def test_a_scheduled_run_executes_timers_that_are_due_at_its_end(operations: Operations, sink: SinkSpec) -> None:
    clock = Clock()
    messages: list[str] = []
    tables = TableMaintenance([sink], clock_s=clock)
    with tables.until_closed(messages.append):
        tables.run_due(messages.append)
        assert operations.calls == []
        clock.now_s += 1800
        tables.run_due(messages.append)
        tables.run_due(messages.append)
    assert messages == ["optimize archive: 9 files became 2"]


def test_a_run_that_ends_does_all_of_it_at_the_end(operations: Operations, sink: SinkSpec) -> None:
    assert sink.maintenance is not None
    both = replace(sink, maintenance=replace(sink.maintenance, vacuum_ms=HOUR_MS))
    new = replace(both, name="new", target="/tables/new")
    messages: list[str] = []
    tables = TableMaintenance([both, new, replace(sink, maintenance=None)])
    with tables.until_closed(messages.append):
        tables.run_all(messages.append)
    assert messages == ["optimize archive: 9 files became 2", "vacuum archive: 2 files deleted, 2.0 KiB"]
    # A table without a committed batch is skipped.
    assert operations.calls[1:] == ["vacuum /tables/archive 7 days False delta"]


def test_the_queries_do_not_wait_and_the_end_does(operations: Operations, sink: SinkSpec) -> None:
    clock: Any = Clock()
    messages: list[str] = []
    operations.may_run.clear()
    tables = TableMaintenance([sink], clock_s=clock)
    with tables.until_closed(messages.append):
        clock.now_s += 60
        tables.poll(messages.append)
        tables.poll(messages.append)
        assert messages == []
        operations.may_run.set()
    assert messages == ["optimize archive: 9 files became 2"]
    assert len(operations.calls) == 1
