"""What is seen of a pipeline that runs: a table on a terminal that changes as it goes, and lines everywhere else."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from logbrook.spark.pipeline.watching import QueryState

_LINE_EVERY_S = 10.0


class Display(Protocol):
    def say(self, sentence: str) -> None:
        """Something happened."""

    def update(self, states: Sequence[QueryState]) -> None:
        """Queries may be further than they were."""

    def close(self, states: Sequence[QueryState]) -> None:
        """The last word."""


def display_for(console: Console) -> Display:
    return LiveDisplay(console) if console.is_terminal else LineDisplay(lambda line: _print(console, line))


class LineDisplay:
    """Log lines: of each query the first batch, then one every ten seconds if there is anything new, and the last."""

    def __init__(self, write: Callable[[str], None], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock_s = clock_s
        self._written_at_s: dict[str, float] = {}
        self._written: dict[str, str] = {}

    def say(self, sentence: str) -> None:
        self._write(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {sentence}")

    def update(self, states: Sequence[QueryState]) -> None:
        now_s = self._clock_s()
        for state in states:
            written_at_s = self._written_at_s.get(state.name)
            if state.batch_id is not None and (written_at_s is None or now_s - written_at_s >= _LINE_EVERY_S):
                self._report(state)

    def close(self, states: Sequence[QueryState]) -> None:
        for state in states:
            self._report(state)

    def _report(self, state: QueryState) -> None:
        line = line_of(state)
        if self._written.get(state.name) != line:
            self._written_at_s[state.name] = self._clock_s()
            self._written[state.name] = line
            self.say(line)


class LiveDisplay:
    """A table that stays in its place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def say(self, sentence: str) -> None:
        self._console.print(sentence, highlight=False, markup=False)

    def update(self, states: Sequence[QueryState]) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(table_of(states), refresh=True)

    def close(self, states: Sequence[QueryState]) -> None:
        if self._live is not None:
            self._live.update(table_of(states), refresh=True)
            self._live.stop()
            self._live = None


def line_of(state: QueryState) -> str:
    if state.batch_id is None:
        return f"{state.name}: no batch"
    lag = "" if state.lag is None else f", lag {state.lag:,}"
    return (
        f"{state.name}: batch {state.batch_id:,}, {state.batch_rows:,} rows in {state.batch_s:.1f} s, "
        f"{state.rows_per_s:,.0f} rows/s, {state.rows:,} in all{lag}"
    )


def table_of(states: Sequence[QueryState]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("query", no_wrap=True)
    for title in ("batch", "rows/s", "rows", "batch time", "lag"):
        table.add_column(title, justify="right")
    table.add_column("")
    for state in states:
        batch = "-" if state.batch_id is None else f"{state.batch_id:,}"
        lag = "-" if state.lag is None else f"{state.lag:,}"
        end = "done" if state.is_done else ""
        numbers = (f"{state.rows_per_s:,.0f}", f"{state.rows:,}", f"{state.batch_s:.1f} s")
        table.add_row(state.name, batch, *numbers, lag, end)
    return table


def _print(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
