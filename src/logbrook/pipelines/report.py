"""A report: how a run of a pipeline is, as the JSON value of a record whose key is the pipeline's name.

    {"pipeline": "orders", "state": "running", "since_ms": 1769860000000, "said_ms": 1769860042000,
     "interval_ms": 5000, "host": "spark-1", "pid": 4711, "version": "0.1.0", "error": null,
     "sinks": [{"name": "orders-totals", "rows": 1200, "rows_per_s": 40.0,
                "batch_id": 7, "batch_s": 0.8, "batch_at_ms": 1769860041000}],
     "sources": [{"topic": "orders", "lag": 12}]}

A run that has ended says so. One that was killed cannot, so a run that has been silent for several intervals is taken
for lost; that compares two clocks, which should not differ by more than a few seconds. Fields that are not known here
are of a later version, and left out.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import isfinite
from typing import Any

from logbrook.model import LogbrookError

REPORTS_TOPIC = "__logbrook_pipelines"
SILENT_INTERVALS = 6
# The year 10000, which no calendar here has.
_TIME_MS_MAX = 253_402_300_800_000


class ReportError(LogbrookError):
    """A record that is no report."""


class RunState(StrEnum):
    """LOST is never said: it is what silence means."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"


_ALIVE = frozenset({RunState.STARTING, RunState.RUNNING})


@dataclass(frozen=True, slots=True)
class SinkReport:
    """One query. `rows` counts since the start of the run; the batch is the last one, None before the first."""

    name: str
    rows: int = 0
    rows_per_s: float = 0.0
    batch_id: int | None = None
    batch_s: float | None = None
    batch_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SourceReport:
    """A topic, and how many of its records the query that is furthest behind has not read."""

    topic: str
    lag: int


@dataclass(frozen=True, slots=True)
class Report:
    """`since_ms` is when the state began, `said_ms` when this was said, and `version` Logbrook's."""

    pipeline: str
    state: RunState
    since_ms: int
    said_ms: int
    interval_ms: int
    host: str
    pid: int
    version: str
    error: str | None = None
    sinks: tuple[SinkReport, ...] = ()
    sources: tuple[SourceReport, ...] = ()

    def state_at(self, now_ms: int) -> RunState:
        """The state as somebody sees it who reads this at `now_ms`."""
        is_silent = now_ms - self.said_ms > SILENT_INTERVALS * self.interval_ms
        return RunState.LOST if is_silent and self.state in _ALIVE else self.state

    @property
    def rows_per_s(self) -> float:
        return sum(one.rows_per_s for one in self.sinks)

    @property
    def lag(self) -> int | None:
        """Over all sources; None where none has told it."""
        return sum(one.lag for one in self.sources) if self.sources else None

    @property
    def batch_s(self) -> float | None:
        """How long the last batch took of the sink that takes longest."""
        return max((one.batch_s for one in self.sinks if one.batch_s is not None), default=None)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False).encode()


def report_in(value: bytes) -> Report:
    """Raises ReportError."""
    try:
        fields = json.loads(value)
        return Report(
            pipeline=_text(fields["pipeline"]),
            state=RunState(fields["state"]),
            since_ms=_time_ms(fields["since_ms"]),
            said_ms=_time_ms(fields["said_ms"]),
            interval_ms=int(fields["interval_ms"]),
            host=_text(fields["host"]),
            pid=int(fields["pid"]),
            version=_text(fields["version"]),
            error=None if fields["error"] is None else _text(fields["error"]),
            sinks=tuple(_sink_in(one) for one in fields["sinks"]),
            sources=tuple(SourceReport(_text(one["topic"]), int(one["lag"])) for one in fields["sources"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ReportError(f"this is no report of a pipeline: {error!r}") from error


def _sink_in(fields: Any) -> SinkReport:
    batch_id, batch_s, batch_at_ms = fields["batch_id"], fields["batch_s"], fields["batch_at_ms"]
    return SinkReport(
        name=_text(fields["name"]),
        rows=int(fields["rows"]),
        rows_per_s=_number(fields["rows_per_s"]),
        batch_id=None if batch_id is None else int(batch_id),
        batch_s=None if batch_s is None else _number(batch_s),
        batch_at_ms=None if batch_at_ms is None else _time_ms(batch_at_ms),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _time_ms(value: Any) -> int:
    moment = int(value)
    if not 0 <= moment < _TIME_MS_MAX:
        raise ValueError(f"{value!r} is no time")
    return moment


def _number(value: Any) -> float:
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"{value!r} is no number")
    return number
