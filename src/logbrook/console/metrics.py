"""What a Logbrook broker's metrics port tells that Kafka's protocol does not: traffic in bytes, and latencies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

_TIMEOUT_S = 2.0
_PAGE_BYTES_MAX = 32 << 20
_DURATIONS = "logbrook_request_duration_seconds"
_SYNCS = "logbrook_wal_sync_duration_seconds"
_COUNTERS = (
    "logbrook_topic_messages_in_total",
    "logbrook_topic_in_bytes_total",
    "logbrook_topic_messages_out_total",
    "logbrook_topic_out_bytes_total",
)
_GAUGES = ("logbrook_connections", "logbrook_uptime_seconds", "process_resident_memory_bytes")
_WANTED = (_DURATIONS, _SYNCS, *_COUNTERS, *_GAUGES)

# Upper ends of buckets to how many were in them or below.
Buckets = dict[float, float]


@dataclass(slots=True)
class Metrics:
    """`totals` are sums over all topics. A histogram is found by its API's name, that of the syncs by `sync`."""

    totals: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, Buckets] = field(default_factory=dict)


def read_metrics(url: str) -> Metrics | None:
    """None if nobody answers there, or nobody who knows them. It makes its thread wait."""
    try:
        # The address is what the operator has given, and always HTTP.
        with urlopen(url, timeout=_TIMEOUT_S) as answer:
            text = answer.read(_PAGE_BYTES_MAX).decode()
        found = parse_metrics(text)
    except (OSError, ValueError, HTTPException):
        return None
    return found if found.totals else None


def parse_metrics(text: str) -> Metrics:
    """Raises ValueError. There may be series for each partition, so what is not wanted is not parsed."""
    lines = [line for line in text.splitlines() if line.removeprefix("# TYPE ").startswith(_WANTED)]
    found = Metrics()
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            name, value = sample.name, sample.value
            if name in _COUNTERS or name in _GAUGES:
                found.totals[name] = found.totals.get(name, 0.0) + value
            elif name.endswith("_bucket"):
                kind = sample.labels.get("api", "sync")
                found.histograms.setdefault(kind, {})[float(sample.labels["le"])] = value
    return found


def quantile(share: float, before: Mapping[float, float], after: Mapping[float, float]) -> float | None:
    """Of what was counted in between, on a straight line within its bucket. None if nothing was."""
    counts = {end: after[end] - before.get(end, 0.0) for end in sorted(after)}
    total = max(counts.values(), default=0.0)
    if total <= 0 or min(counts.values()) < 0:
        return None
    rank, low, below = share * total, 0.0, 0.0
    for end, count in counts.items():
        if count >= rank and count > below:
            return low if end == float("inf") else low + (end - low) * (rank - below) / (count - below)
        low, below = (low if end == float("inf") else end), count
    return low
