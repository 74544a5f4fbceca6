"""Counters of the log engine, exported by `server/metrics`."""

from bisect import bisect_left
from dataclasses import dataclass, field

# Upper bounds of the latency buckets, shared by the engine and the server.
LATENCY_BOUNDS_S = (1e-4, 2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts per bucket and the sum of all values. The last bucket counts values above all bounds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value. One that equals a bound belongs to that bound's bucket."""
        self.counts[bisect_left(LATENCY_BOUNDS_S, value)] += 1
        self.sum += value


@dataclass(slots=True)
class StorageProbe:
    """Totals since the data directory was opened."""

    batches_appended: int = 0
    bytes_appended: int = 0
    segments_rolled: int = 0
    segments_removed: int = 0
    files_unlinked: int = 0
    indexes_rebuilt: int = 0
    corruptions_found: int = 0
    wal_commits: int = 0
    wal_entries: int = 0
    wal_bytes: int = 0
    wal_segment_syncs: int = 0
    # A commit lasts from its first write to its last sync.
    wal_commit_latency: Histogram = field(default_factory=Histogram)
    wal_sync_latency: Histogram = field(default_factory=Histogram)
    checkpoints: int = 0
    compactions: int = 0
    compacted_bytes_read: int = 0
    compacted_bytes_written: int = 0
    # Passes that were repeated in this process because the compaction worker failed.
    compaction_worker_failures: int = 0
