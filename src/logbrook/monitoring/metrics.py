"""Scraping of a Logbrook broker's metrics page: traffic by topic, request latencies, and process gauges.

Kafka's protocol reports neither. The page is the Prometheus text format; topic names need no escapes in it.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPException
from urllib.parse import urlsplit

from logbrook.client.errors import ClientError
from logbrook.client.http import http_connection, http_headers
from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.model import TopicPartition

DEFAULT_PORT = 9644
# Key of the write-ahead log's sync latencies in `BrokerMetrics.histograms`; the others are API names.
SYNC = "sync"

_TIMEOUT_S = 2.0
_OK = 200
_PAGE_BYTES_MAX = 64 << 20
# The broker's own metadata log, which is in its metrics but which clients do not see.
_METADATA = TopicPartition("__cluster_metadata", 0)
_GAUGES = ("logbrook_connections", "logbrook_uptime_seconds", "process_resident_memory_bytes")
_GAUGE = re.compile(rf"^({'|'.join(_GAUGES)})(?:\{{[^}}]*\}})? (\S+)", re.MULTILINE)
_TOPIC_COUNTER = re.compile(r'^logbrook_topic_(\w+)_total\{topic="([^"]*)"\} (\S+)', re.MULTILINE)
_HIGH_WATERMARK = re.compile(r'^logbrook_partition_high_watermark\{topic="([^"]*)",partition="(\d+)"\}', re.MULTILINE)
_BUCKET = re.compile(
    r"^logbrook_(?:request_duration|wal_sync_duration)_seconds_bucket\{([^}]*)\} (\S+)",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

# Cumulative counts by the upper bound of the bucket, in seconds.
Buckets = dict[float, float]


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """The parsed page.

    `topics` has the counters of each topic by the middle of their metric names: messages_in, in_bytes, messages_out,
    out_bytes. `gauges` are sums over all labels. `histograms` are request durations by API name, and `SYNC`.
    """

    topics: dict[str, dict[str, float]] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, Buckets] = field(default_factory=dict)
    partitions: frozenset[TopicPartition] = frozenset()

    def has_exactly(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return True if the broker has these partitions and no others.

        A broker at a guessed address may belong to another cluster.
        """
        return self.partitions - {_METADATA} == frozenset(partitions) - {_METADATA}


def scrape(
    url: str, security: ClientSecurity = PLAINTEXT_SECURITY, timeout_s: float = _TIMEOUT_S
) -> BrokerMetrics | None:
    """Read the metrics page at `url`, with or without its path /metrics. Blocks for up to `timeout_s`.

    Returns None if there is no response, or one without the metrics of a Logbrook broker.
    """
    path = f"{urlsplit(url).path.removesuffix('/').removesuffix('/metrics')}/metrics"
    try:
        with closing(http_connection(url, timeout_s, security)) as connection:
            connection.request("GET", path, headers=http_headers(url, security))
            response = connection.getresponse()
            if response.status != _OK:
                return None
            metrics = parse_metrics(response.read(_PAGE_BYTES_MAX).decode("utf-8", "replace"))
    except (OSError, HTTPException, ValueError, ClientError):
        return None
    return metrics if metrics.gauges or metrics.topics else None


def parse_metrics(text: str) -> BrokerMetrics:
    """Parse a page; other metrics are ignored. Raises ValueError for a value that is not a number."""
    topics: dict[str, dict[str, float]] = {}
    for counter, topic, value in _TOPIC_COUNTER.findall(text):
        topics.setdefault(topic, {})[counter] = float(value)
    gauges: dict[str, float] = {}
    for name, value in _GAUGE.findall(text):
        gauges[name] = gauges.get(name, 0.0) + float(value)
    histograms: dict[str, Buckets] = {}
    for labels, value in _BUCKET.findall(text):
        label_values = dict(_LABEL.findall(labels))
        histograms.setdefault(label_values.get("api", SYNC), {})[float(label_values["le"])] = float(value)
    partitions = frozenset(TopicPartition(topic, int(number)) for topic, number in _HIGH_WATERMARK.findall(text))
    return BrokerMetrics(topics, gauges, histograms, partitions)


def quantile(share: float, before: Mapping[float, float], after: Mapping[float, float]) -> float | None:
    """Return the quantile of the events counted between two readings, by linear interpolation within its bucket.

    Returns None if there were none, or if the broker was restarted in between.
    """
    counts = {bound: after[bound] - before.get(bound, 0.0) for bound in sorted(after)}
    total = max(counts.values(), default=0.0)
    if total <= 0 or min(counts.values()) < 0:
        return None
    rank, lower, below = share * total, 0.0, 0.0
    for bound, count in counts.items():
        if count >= rank and count > below:
            return lower if bound == float("inf") else lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = (lower if bound == float("inf") else bound), count
    return lower
