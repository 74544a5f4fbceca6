"""Format of a pipeline report: the JSON value of a record whose key is the pipeline's name.

    {"pipeline": "orders", "state": "running", "since_ms": 1769860000000, "said_ms": 1769860042000,
     "interval_ms": 5000, "host": "spark-1", "pid": 4711, "version": "0.1.0", "error": null,
     "sinks": [{"name": "orders-totals", "rows": 1200, "rows_per_s": 40.0,
                "batch_id": 7, "batch_s": 0.8, "batch_at_ms": 1769860041000, "restarts": 0}],
     "sources": [{"topic": "orders", "lag": 12}]}

While a query that failed is being restarted, the state is still "running" and `error` is its failure.

A run that ends normally sends a final report. A killed run cannot, so a run without a report for `SILENT_INTERVALS`
intervals is considered lost; that compares the clocks of two machines, which should differ by a few seconds at most.
Unknown fields, of later versions, are ignored.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import isfinite
from typing import Any

from logbrook.model import LogbrookError

REPORTS_TOPIC = "__logbrook_pipelines"
SILENT_INTERVALS = 6
# The year 10000, which datetime cannot represent.
_TIME_MS_MAX = 253_402_300_800_000


class ReportError(LogbrookError):
    """A record's value is not a valid report."""


class RunState(StrEnum):
    """State of a run. LOST is never reported: `state_at` derives it from missing reports."""

    STARTING = "starting"
    RUNNING = "running"
    # Until the next time of its schedule.
    WAITING = "waiting"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"


_ALIVE = frozenset({RunState.STARTING, RunState.RUNNING, RunState.WAITING})


@dataclass(frozen=True, slots=True)
class SinkReport:
    """One query. `rows` counts since the start of the run; `batch_*` describe the last batch, None before the first.

    `restarts` counts how often the query failed in this run and was started again from its checkpoint.
    """

    name: str
    rows: int = 0
    rows_per_s: float = 0.0
    batch_id: int | None = None
    batch_s: float | None = None
    batch_at_ms: int | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Lag of a topic: unread offsets of the query that is furthest behind."""

    topic: str
    lag: int


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """One report. `since_ms` is the time of the last state change, `said_ms` that of this report."""

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
        """Return the state at `now_ms`: LOST if a running pipeline has not reported for too long."""
        is_silent = now_ms - self.said_ms > SILENT_INTERVALS * self.interval_ms
        return RunState.LOST if is_silent and self.state in _ALIVE else self.state

    @property
    def rows_per_s(self) -> float:
        return sum(sink.rows_per_s for sink in self.sinks)

    @property
    def lag(self) -> int | None:
        """Sum over all sources, None if none reports it."""
        return sum(source.lag for source in self.sources) if self.sources else None

    @property
    def batch_s(self) -> float | None:
        """Longest duration of a sink's last batch, in seconds."""
        return max((sink.batch_s for sink in self.sinks if sink.batch_s is not None), default=None)

    @property
    def restarts(self) -> int:
        return sum(sink.restarts for sink in self.sinks)

    def status_at(self, now_ms: int) -> dict[str, Any]:
        """Return the report for JSON, with its state at `now_ms` and its totals."""
        totals = {
            "rows_per_s": self.rows_per_s,
            "lag": self.lag,
            "batch_s": self.batch_s,
            "restarts": self.restarts,
        }
        return asdict(self) | {"state": str(self.state_at(now_ms))} | totals

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False).encode()


def parse_report(value: bytes) -> PipelineReport:
    """Parse a record's value. Raises ReportError."""
    try:
        fields = json.loads(value)
        return PipelineReport(
            pipeline=_text(fields["pipeline"]),
            state=RunState(fields["state"]),
            since_ms=_time_ms(fields["since_ms"]),
            said_ms=_time_ms(fields["said_ms"]),
            interval_ms=int(fields["interval_ms"]),
            host=_text(fields["host"]),
            pid=int(fields["pid"]),
            version=_text(fields["version"]),
            error=None if fields["error"] is None else _text(fields["error"]),
            sinks=tuple(_parse_sink(sink) for sink in fields["sinks"]),
            sources=tuple(SourceReport(_text(source["topic"]), int(source["lag"])) for source in fields["sources"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ReportError(f"this is not a pipeline report: {error!r}") from error


def _parse_sink(fields: Any) -> SinkReport:
    batch_id, batch_s, batch_at_ms = fields["batch_id"], fields["batch_s"], fields["batch_at_ms"]
    return SinkReport(
        name=_text(fields["name"]),
        rows=int(fields["rows"]),
        rows_per_s=_number(fields["rows_per_s"]),
        batch_id=None if batch_id is None else int(batch_id),
        batch_s=None if batch_s is None else _number(batch_s),
        batch_at_ms=None if batch_at_ms is None else _time_ms(batch_at_ms),
        # Reports of earlier versions do not have it.
        restarts=int(fields.get("restarts", 0)),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _time_ms(value: Any) -> int:
    time_ms = int(value)
    if not 0 <= time_ms < _TIME_MS_MAX:
        raise ValueError(f"{value!r} is not a time in ms")
    return time_ms


def _number(value: Any) -> float:
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number
