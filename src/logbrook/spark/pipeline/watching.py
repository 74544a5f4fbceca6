"""How far a query is, from the reports that Spark makes of its batches."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(slots=True)
class QueryState:
    """`rows` counts since the start; the rest is of the last batch. `lag` is None where no source tells it, and `lags`
    are its parts, by topic."""

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
    _reported_at: str = ""

    def take(self, reports: Iterable[Mapping[str, Any]]) -> bool:
        """Take in those of the reports that are new, which come in order. Whether there was any."""
        is_new = False
        for report in reports:
            # A batch without data is reported under the number of the next, so the number does not tell.
            if report["timestamp"] <= self._reported_at:
                continue
            is_new = True
            self._reported_at = report["timestamp"]
            self.batch_id = report["batchId"]
            self.batch_rows = report["numInputRows"]
            self.rows += self.batch_rows
            self.rows_per_s = report.get("processedRowsPerSecond") or 0.0
            self.batch_s = report.get("batchDuration", 0) / 1000
            self.batch_at_ms = round(datetime.fromisoformat(self._reported_at).timestamp() * 1000)
            self.lag, self.lags = lag_of(report), lags_of(report)
        return is_new


def lag_of(report: Mapping[str, Any]) -> int | None:
    """The offsets that are there and not yet read, over all sources that tell them."""
    lags = lags_of(report)
    return sum(lags.values()) if lags else None


def lags_of(report: Mapping[str, Any]) -> dict[str, int]:
    """The same by topic."""
    lags: dict[str, int] = {}
    for source in report.get("sources", ()):
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if not end:
            continue
        for topic, partition in {**end, **latest}:
            place = topic, partition
            behind = max(0, latest.get(place, 0) - end.get(place, 0))
            lags[topic] = lags.get(topic, 0) + behind
    return lags


def _offsets(document: Any) -> dict[tuple[str, str], int]:
    """Offsets by topic and partition, none where a source has another way of counting."""
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except ValueError:
            return {}
    if not isinstance(document, Mapping):
        return {}
    return {
        (topic, partition): offset
        for topic, one in document.items()
        if isinstance(one, Mapping) and isinstance(one.get("offsets"), Mapping)
        for partition, offset in one["offsets"].items()
    }
