"""How far a query is, from the reports that Spark makes of its batches."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class QueryState:
    """`rows` counts since the start; the rest is of the last batch. `lag` is None where no source tells it."""

    name: str
    batch_id: int | None = None
    rows: int = 0
    batch_rows: int = 0
    rows_per_s: float = 0.0
    batch_s: float = 0.0
    lag: int | None = None
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
            self.lag = lag_of(report)
        return is_new


def lag_of(report: Mapping[str, Any]) -> int | None:
    """The offsets that are there and not yet read, over all sources that tell them."""
    lags = []
    for source in report.get("sources", ()):
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if end:
            lags.append(sum(max(0, offset - end.get(one, 0)) for one, offset in latest.items()))
    return sum(lags) if lags else None


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
