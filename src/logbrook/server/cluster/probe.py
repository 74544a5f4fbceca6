"""Counters of a broker in a cluster: plain integers, read by `server.metrics`."""

from collections import defaultdict
from dataclasses import dataclass, field

from logbrook.storage.probe import Histogram


@dataclass(slots=True)
class ClusterProbe:
    """Totals since the broker started. Requests to the metadata store are by operation."""

    isr_shrinks: int = 0
    isr_expansions: int = 0
    # Terms as the leader of a partition, by an election, a hand-over or a move.
    leader_terms: int = 0
    unclean_elections: int = 0
    registrations: int = 0
    bytes_fetched: int = 0
    store_latencies: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    store_errors: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
