"""Clusters of three nodes of Logbrook (with an etcd) and Kafka: replication factor 3, acks=all, two in sync at least.

CPU and memory are those of all nodes; etcd counts for Logbrook, and has rows of its own. All processes share one
machine, so throughput is a measure of the CPU that replication takes.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

from bench.broker_process import warm_page_cache
from bench.clusters.failover import RATE, Fault, measure
from bench.clusters.kafka import kafka_cluster
from bench.clusters.logbrook import etcd_command, logbrook_cluster
from bench.clusters.network import ClusterNetwork
from bench.clusters.nodes import NODES, BenchCluster
from bench.peers.cells import Cell, next_count, probe_count
from bench.peers.lab import Lab, Running, by_default, promised
from bench.peers.latency import ack_run
from bench.peers.load import Job
from bench.peers.results import Row, Samples
from bench.peers.steady import Measured, Run
from bench.peers.system import Promise, Server, System, UnavailableError, Variant
from bench.peers.throughput import values_of
from bench.peers.warm_up import warm_up

_CELLS = (Cell(1_000, 1, "none"), Cell(1_000, 16, "none"))
_ACK_RATE = 1_000
_SETTLE_S = 5.0
# Three nodes of Kafka that have nothing to do use more of a core than one.
_IDLE_CORES = 0.4
_PARTITIONS = 1_000
_FAILOVER_PARTITIONS = 3
_MISSED_PARTITIONS = 16
_SETTINGS = {"min.insync.replicas": "2"}


class ClusterServer(Server):
    """All processes of a cluster, as one server."""

    def __init__(self, cluster: BenchCluster) -> None:
        self.cluster = cluster
        self.address = cluster.bootstrap_servers

    @property
    def pid(self) -> int:
        raise NotImplementedError("a cluster has several processes")

    def launch(self) -> None:
        self.cluster.__enter__()

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        self.cluster.__exit__(None, None, None)

    def cpu_s(self) -> float:
        return sum(server.cpu_s() for server in self.cluster.servers)

    def store_cpu_s(self) -> float:
        return 0.0 if self.cluster.store is None else self.cluster.store.cpu_s()


class ClusterRunning(Running):
    """A cluster and the workers that load it. Topics have a replica on each node."""

    server: ClusterServer

    @property
    def cluster(self) -> BenchCluster:
        return self.server.cluster

    def job(self, topic: str, **fields: Any) -> Job:
        job = super().job(topic, **fields)
        return replace(job, replicas=len(NODES), settings={**job.settings, **_SETTINGS})


def _logbrook(variant: Variant, directory: Path, network: ClusterNetwork | None) -> BenchCluster:
    durability = {Promise.DISK: "fsync", Promise.LESS: "interval"}[variant.promise]
    return logbrook_cluster(directory, durability, network=network)


def _kafka(_: Variant, directory: Path, network: ClusterNetwork | None) -> BenchCluster:
    # Its promise is a topic setting.
    return kafka_cluster(directory, network=network)


_CLUSTERS: dict[str, Callable[[Variant, Path, ClusterNetwork | None], BenchCluster]] = {
    "Logbrook": _logbrook,
    "Kafka": _kafka,
}


def measure_load(lab: Lab) -> Iterator[Row]:
    """Measure throughput, CPU and latency under each promise, and memory at rest and after the load."""
    for promise in lab.promises:
        if all(_is_measured(lab, promise, what) for what in _WHATS):
            continue
        with _serving(lab, promised(promise)) as clusters:
            if not clusters:
                continue
            memory = lab.samples("cluster_load")
            Event().wait(_SETTLE_S)
            for running in clusters:
                _add_memory(memory, running, "at rest")
            for row in warm_up(lab, clusters):
                yield replace(row, measurement="cluster_load")
            for cell in _CELLS:
                lines = {running.of: _ClusterLine(lab, running, cell) for running in clusters}
                yield from lab.steady("cluster_load", str(cell), {of: line.run_once for of, line in lines.items()})
            for cell in _CELLS:
                runs = {running.of: partial(ack_run, lab, running, _ACK_RATE, cell.partitions) for running in clusters}
                yield from lab.steady("cluster_load", _latency_of(cell), runs)
            Event().wait(_SETTLE_S)
            for running in clusters:
                _add_memory(memory, running, "after the load")
            yield from memory.rows()


def _latency_of(cell: Cell) -> str:
    return f"{cell}, {_ACK_RATE:,} messages/s"


_WHATS = (*map(str, _CELLS), *map(_latency_of, _CELLS))


def _is_measured(lab: Lab, promise: Promise, what: str) -> bool:
    return lab.is_measured("cluster_load", what, [(system, promise.value) for system in _CLUSTERS])


def measure_operations(lab: Lab) -> Iterator[Row]:
    """Measure the creation of many partitions, and the time a node needs for what it has missed."""
    if lab.is_measured_by_all("cluster_operations"):
        return
    lab.check_time()
    samples = lab.samples("cluster_operations")
    with _serving(lab, by_default) as clusters:
        warm_up(lab, clusters)
        for _ in lab.rounds(f"cluster: {_PARTITIONS:,} partitions"):
            for running in clusters:
                _create_partitions(lab, running, samples)
        # A warm-up comes first: a virtual disk takes twice as long for blocks that were never written.
        for number in range(-1, lab.amounts.long_rounds):
            for running in clusters:
                lab.say(f"cluster: catching up, {running.system.name}, round {number if number >= 0 else 'warm-up'}")
                took_s = _catch_up(lab, running)
                lab.say(f"  in sync after {took_s:.1f} s")
                if number >= 0:
                    what = f"a node starts after it has missed {lab.amounts.missed_bytes / 1e9:g} GB"
                    samples.add(running.of, what, "until it is in sync", "s", took_s)
    yield from samples.rows()


def measure_failover(lab: Lab) -> Iterator[Row]:
    """Measure how long writes stop after each fault of a leader."""
    if lab.is_measured_by_all("cluster_failover"):
        return
    lab.check_time()
    samples = lab.samples("cluster_failover")
    for faults, with_network in (((Fault.STOP, Fault.KILL, Fault.PAUSE), False), ((Fault.CUT,), True)):
        with _serving(lab, by_default, with_network=with_network) as clusters:
            topics = count()
            for fault in faults:
                for number in range(lab.amounts.failovers):
                    for running in clusters:
                        lab.say(f"cluster: {fault}, {running.system.name}, round {number}")
                        settings = dict(running.variant.topic_settings)
                        name = f"failover-{next(topics)}"
                        outage = measure(running.cluster, fault, name, _FAILOVER_PARTITIONS, settings)
                        what = f"{fault}, {RATE:,} messages/s"
                        for metric, value in (
                            ("longest gap between acknowledgements", outage.gap_s),
                            ("longest time from send to acknowledgement", outage.latency_s),
                            ("until a new client can write", outage.new_client_s),
                        ):
                            samples.add(running.of, what, metric, "s", value)
                        samples.add(running.of, what, "acknowledged messages lost", "messages", outage.lost)
    yield from samples.rows()


@contextmanager
def _serving(
    lab: Lab, pick: Callable[[System], Variant | None], *, with_network: bool = False
) -> Iterator[list[ClusterRunning]]:
    """Run a cluster of each system that has them, all at once; they take turns within a round."""
    with ExitStack() as stack:
        clusters = []
        for system in lab.systems:
            variant = pick(system)
            if variant is None or system.name not in _CLUSTERS:
                continue
            try:
                etcd_command()
            except UnavailableError as error:
                lab.say(f"skipping clusters: {error}")
                break
            lab.say(f"starting a cluster of {system.name} ({variant.settings.replace('`', '')})")
            directory = stack.enter_context(lab.directory())
            network = stack.enter_context(ClusterNetwork(NODES)) if with_network else None
            cluster = stack.enter_context(_CLUSTERS[system.name](variant, directory, network))
            clusters.append(ClusterRunning(system, variant, ClusterServer(cluster), lab.workers, directory))
        yield clusters


class _ClusterLine:
    """Runs of producing to a cluster, with one process, which is faster than the clusters."""

    def __init__(self, lab: Lab, running: ClusterRunning, cell: Cell) -> None:
        self._lab = lab
        self._running = running
        self._cell = cell
        self._count = 0

    def run_once(self) -> Run:
        run_s, size = self._lab.amounts.rule.run_s, self._cell.size
        count = self._count or probe_count(self._lab, self._running, self._cell, run_s)
        job = self._running.job(self._lab.topic(), **self._cell._asdict(), count=count)
        with self._lab.created(self._running, job):
            self._lab.prime(self._running, job)
            # Twice the bytes on each node: for the segments and for a write-ahead log.
            warm_page_cache(2 * len(NODES) * count * size)
            store_s = self._running.server.store_cpu_s()
            spent, cpu_s = self._running.spend("produce", job)
            store_s = self._running.server.store_cpu_s() - store_s
        self._count = next_count(spent, run_s, size)
        throughput, cpu, load = values_of("produce", size, spent, cpu_s, 1)
        values = [throughput, cpu._replace(metric="CPU of all nodes"), load._replace(metric="CPU of the load")]
        if self._running.cluster.store is not None:
            gb = spent.messages * size / 1e9
            values.append(Measured("CPU of etcd, which is part of it", "s/GB", store_s / gb))
        return values


def _add_memory(samples: Samples, running: ClusterRunning, when: str) -> None:
    nodes, store = running.cluster.nodes.values(), running.cluster.store
    for metric, size_of in (("RSS of three nodes", Server.rss_mib), ("PSS of three nodes", Server.pss_mib)):
        alone = sum(size_of(node) for node in nodes)
        samples.add(running.of, f"{when}, without etcd", metric, "MiB", alone)
        with_store = alone + (0.0 if store is None else size_of(store))
        samples.add(running.of, f"{when}, with etcd", metric, "MiB", with_store)


def _create_partitions(lab: Lab, running: ClusterRunning, samples: Samples) -> None:
    job = running.job(lab.topic(), size=100, partitions=_PARTITIONS, count=_PARTITIONS)
    running.call("ready", job)
    started = time.monotonic()
    running.call("create", job)
    running.call("produce", job)
    created_s = time.monotonic() - started
    samples.add(running.of, f"{_PARTITIONS:,} partitions made, and a message in each", "time", "s", created_s)
    lab.settle(running, _IDLE_CORES)
    running.call("delete", job)
    lab.settle(running, _IDLE_CORES)


def _catch_up(lab: Lab, running: ClusterRunning) -> float:
    """Stop a node, write to the others, start it, and wait until it is in sync. Return the seconds of that."""
    cluster, node = running.cluster, NODES[-1]
    size = lab.amounts.missed_bytes
    job = running.job(lab.topic(), size=10_000, partitions=_MISSED_PARTITIONS, count=size // 10_000)
    with lab.created(running, job):
        cluster.nodes[node].stop()
        running.call("produce", job)
        started = time.monotonic()
        cluster.nodes[node].launch()
        cluster.wait_until_in_sync(job.topic, job.partitions)
        took_s = time.monotonic() - started
    cluster.wait_for_nodes()
    return took_s
