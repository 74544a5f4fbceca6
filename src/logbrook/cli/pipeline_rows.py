"""Pipelines as rows of a table, and as JSON."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from logbrook.pipelines.report import Report


def columns() -> tuple[str, ...]:
    return ("pipeline", "state", "rows/s", "lag", "batch time", "since", "host", "error")


def row_of(report: Report, now_ms: int) -> tuple[object, ...]:
    since = datetime.fromtimestamp(report.since_ms / 1000, UTC).astimezone()
    return (
        report.pipeline,
        str(report.state_at(now_ms)),
        round(report.rows_per_s),
        report.lag,
        None if report.batch_s is None else f"{report.batch_s:.1f} s",
        since.strftime("%Y-%m-%d %H:%M:%S"),
        f"{report.host}:{report.pid}",
        (report.error or "").partition("\n")[0],
    )


def document_of(report: Report, now_ms: int) -> dict[str, Any]:
    """The report with its state as it is seen now, and its sums."""
    return asdict(report) | {
        "state": str(report.state_at(now_ms)),
        "rows_per_s": report.rows_per_s,
        "lag": report.lag,
        "batch_s": report.batch_s,
    }
