"""Progress of running queries, shown as a live table on a terminal and as log lines elsewhere."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

_LINE_EVERY_S = 10.0


@dataclass(slots=True)
class QueryProgress:
    """Progress of one query. `rows` counts since the start; the batch's numbers are of the last micro-batch that ran.

    A trigger that finds no new records runs no batch: it sets `rows_per_s` to 0 and updates the lags. `lags` is by
    topic, `lag` their sum; None if no source reports offsets. `error` is the failure after which the query was
    restarted, until a batch succeeds. `waiting` names the cluster that the query waits for, and `progressed_ms` is the
    time at which its last report was seen, in ms since the epoch.
    """

    name: str
    batch_id: int | None = None
    rows: int = 0
    batch_rows: int = 0
    rows_per_s: float = 0.0
    batch_s: float = 0.0
    batch_at_ms: int | None = None
    lag: int | None = None
    lags: Mapping[str, int] = field(default_factory=dict)
    is_done: bool = False
    restarts: int = 0
    error: str | None = None
    waiting: str | None = None
    progressed_ms: int = 0
    _reported_at: str = ""

    def update(self, reports: Iterable[Mapping[str, Any]]) -> bool:
        """Apply Spark's progress reports, in order; return True if one of them is new."""
        is_new = False
        for report in reports:
            # Compare timestamps: an idle trigger is reported with the id of the next batch.
            if report["timestamp"] <= self._reported_at:
                continue
            is_new = True
            self._reported_at = report["timestamp"]
            self.lag, self.lags = lag_of(report), lags_of(report)
            if "addBatch" in report["durationMs"]:
                self._update_batch(report)
            else:
                self.rows_per_s = 0.0
        return is_new

    def _update_batch(self, report: Mapping[str, Any]) -> None:
        self.error = None
        self.batch_id = report["batchId"]
        self.batch_rows = report["numInputRows"]
        self.rows += self.batch_rows
        self.rows_per_s = report.get("processedRowsPerSecond") or 0.0
        self.batch_s = report.get("batchDuration", 0) / 1000
        self.batch_at_ms = round(datetime.fromisoformat(self._reported_at).timestamp() * 1000)


def lag_of(report: Mapping[str, Any]) -> int | None:
    """Return the number of unread offsets over all sources that report them, or None."""
    lags = lags_of(report)
    return sum(lags.values()) if lags else None


def lags_of(report: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of unread offsets by topic.

    A batch that Spark repeats after a restart is reported without the latest offsets: its lag is not known.
    """
    lags: dict[str, int] = {}
    for source in report.get("sources", ()):
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if not end or not latest:
            continue
        for topic, partition in {**end, **latest}:
            key = topic, partition
            lags[topic] = lags.get(topic, 0) + max(0, latest.get(key, 0) - end.get(key, 0))
    return lags


def _offsets(document: Any) -> dict[tuple[str, str], int]:
    """Return offsets by topic and partition; empty for the offsets of another data source."""
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except ValueError:
            return {}
    if not isinstance(document, Mapping):
        return {}
    return {
        (topic, partition): offset
        for topic, entry in document.items()
        if isinstance(entry, Mapping) and isinstance(entry.get("offsets"), Mapping)
        for partition, offset in entry["offsets"].items()
    }


class Display(Protocol):
    """Output of a run. Called from the thread of the QueryRunner."""

    def print(self, message: str) -> None:
        """Show an event."""

    def update(self, states: Sequence[QueryProgress]) -> None:
        """Show the current progress."""

    def close(self, states: Sequence[QueryProgress]) -> None:
        """Show the final progress and release the terminal."""


def display_for(console: Console) -> Display:
    return LiveDisplay(console) if console.is_terminal else LineDisplay(lambda line: _print(console, line))


class LineDisplay:
    """Log lines: the first batch of each query, then progress every ten seconds if it changed, and the last."""

    def __init__(self, write: Callable[[str], None], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock_s = clock_s
        self._written_at_s: dict[str, float] = {}
        self._written: dict[str, str] = {}

    def print(self, message: str) -> None:
        self._write(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {message}")

    def update(self, states: Sequence[QueryProgress]) -> None:
        now_s = self._clock_s()
        for state in states:
            written_at_s = self._written_at_s.get(state.name)
            if state.batch_id is not None and (written_at_s is None or now_s - written_at_s >= _LINE_EVERY_S):
                self._print_progress(state)

    def close(self, states: Sequence[QueryProgress]) -> None:
        for state in states:
            self._print_progress(state)

    def _print_progress(self, state: QueryProgress) -> None:
        line = line_of(state)
        if self._written.get(state.name) != line:
            self._written_at_s[state.name] = self._clock_s()
            self._written[state.name] = line
            self.print(line)


class LiveDisplay:
    """A table on a terminal, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def print(self, message: str) -> None:
        self._console.print(message, highlight=False, markup=False)

    def update(self, states: Sequence[QueryProgress]) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(table_of(states), refresh=True)

    def close(self, states: Sequence[QueryProgress]) -> None:
        if self._live is not None:
            self._live.update(table_of(states), refresh=True)
            self._live.stop()
            self._live = None


def line_of(state: QueryProgress) -> str:
    restarts = f", restarts {state.restarts}" if state.restarts else ""
    if state.batch_id is None:
        return f"{state.name}: no batch{restarts}"
    lag = "" if state.lag is None else f", lag {state.lag:,}"
    return (
        f"{state.name}: batch {state.batch_id:,}, {state.batch_rows:,} rows in {state.batch_s:.1f} s, "
        f"{state.rows_per_s:,.0f} rows/s, {state.rows:,} in all{lag}{restarts}"
    )


def table_of(states: Sequence[QueryProgress]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("query", no_wrap=True)
    for title in ("batch", "rows/s", "rows", "batch time", "lag"):
        table.add_column(title, justify="right")
    table.add_column("")
    for state in states:
        batch = "-" if state.batch_id is None else f"{state.batch_id:,}"
        lag = "-" if state.lag is None else f"{state.lag:,}"
        restarts = f"restarts {state.restarts}" if state.restarts else ""
        end = "done" if state.is_done else state.waiting or restarts
        numbers = (f"{state.rows_per_s:,.0f}", f"{state.rows:,}", f"{state.batch_s:.1f} s")
        table.add_row(state.name, batch, *numbers, lag, end)
    return table


def _print(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
