"""Unavailability of writes after a fault of a leader, in a cluster of three brokers (`clusters/failover.py`).

The client is librdkafka with acks=all and otherwise its defaults, at 1,000 messages per second. It waits a minute for
an answer of a leader that is paused or cut off, whatever the cluster does, so those faults have a goal only for a new
client.
"""

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from bench.clusters.failover import RATE, Fault, Outage, measure
from bench.clusters.logbrook import logbrook_cluster
from bench.clusters.network import ClusterNetwork
from bench.clusters.nodes import NODES, BenchCluster
from bench.rows import Row

_ROUNDS = 5
_PARTITIONS = (1, 3)
# Of writes as the client sees them, and until a new client can write. A lease ends after 3 s, and etcd notices that
# within half a second.
_GAP_S_MAX = {Fault.KILL: 4.0, Fault.STOP: 0.2}
_NEW_CLIENT_S_MAX = {Fault.KILL: 1.0, Fault.STOP: 0.2, Fault.PAUSE: 5.0, Fault.CUT: 5.0}


def run(rounds: int = _ROUNDS) -> list[Row]:
    """Return medians with the lowest and highest round. A pause and a cut take more than a minute each."""
    rows: list[Row] = []
    for faults, with_network in (((Fault.STOP, Fault.KILL, Fault.PAUSE), False), ((Fault.CUT,), True)):
        with _cluster(with_network=with_network) as cluster:
            numbers = count()
            for fault in faults:
                for partitions in _PARTITIONS:
                    outages = [measure(cluster, fault, f"topic-{next(numbers)}", partitions, {}) for _ in range(rounds)]
                    rows += _rows(fault, partitions, outages)
    return rows


def _rows(fault: Fault, partitions: int, outages: list[Outage]) -> list[Row]:
    spread = "1 partition" if partitions == 1 else f"{partitions} partitions"
    name = f"{fault}, {spread}, {RATE:,} messages/s"
    gaps, latencies = [outage.gap_s for outage in outages], [outage.latency_s for outage in outages]
    new_clients = [outage.new_client_s for outage in outages]
    lost = sum(outage.lost for outage in outages)
    return [
        Row(
            f"{name}: longest gap{_range(gaps)}",
            statistics.median(gaps),
            "s",
            _GAP_S_MAX.get(fault),
            higher_is_better=False,
        ),
        Row(f"{name}: longest latency{_range(latencies)}", statistics.median(latencies), "s"),
        Row(
            f"{name}: until a new client writes{_range(new_clients)}",
            statistics.median(new_clients),
            "s",
            _NEW_CLIENT_S_MAX[fault],
            higher_is_better=False,
        ),
        Row(f"{name}: lost", lost, "messages", 0, higher_is_better=False),
    ]


def _range(values: list[float]) -> str:
    return f" ({min(values):.3g} to {max(values):.3g})"


@contextmanager
def _cluster(*, with_network: bool) -> Iterator[BenchCluster]:
    directory = tempfile.mkdtemp(prefix="logbrook-bench-", dir="/var/tmp")
    try:
        with ExitStack() as stack:
            network = stack.enter_context(ClusterNetwork(NODES)) if with_network else None
            yield stack.enter_context(logbrook_cluster(Path(directory), network=network))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
