"""1,000 partitions and 2,000 connections.

Kafka answers CreateTopics before the partitions exist, so a topic counts as created once every partition has
acknowledged a message. The first messages of the partitions have a row of their own and are excluded from the
throughput (see `Lab.prime`), which is measured in one topic until it is steady.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from bench.peers.cells import Cell, next_count
from bench.peers.lab import Lab, Running, load_processes
from bench.peers.latency import ack_run
from bench.peers.results import Row, Samples
from bench.peers.steady import Run
from bench.peers.throughput import values_of
from bench.peers.workers import load_named

_PARTITIONS = 1_000
_MESSAGES = 50_000
_MESSAGE_BYTES = 100
_CONNECTIONS = 2_000
_RATE = 1_000


def measure_partitions(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    """Measure the creation of 1,000 partitions and their first messages."""
    if lab.is_measured_by_all("partitions"):
        return
    lab.check_time()
    samples = lab.samples("partitions")
    for _ in lab.rounds(f"{_PARTITIONS:,} partitions"):
        for running in servers:
            _create(lab, running, samples)
    yield from samples.rows()


def measure_many_partitions(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    """Measure the throughput of 1,000 partitions in steady state."""
    with ExitStack() as stack:
        lines = {running.of: _ManyPartitions(lab, running, stack) for running in servers}
        cell = Cell(_MESSAGE_BYTES, _PARTITIONS, "none")
        yield from lab.steady("many_partitions", str(cell), {of: line.run_once for of, line in lines.items()})
    for running in servers:
        lab.settle(running)


def measure_connections(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    if not lab.is_measured("connections", f"{_CONNECTIONS:,} connections", [running.of for running in servers]):
        lab.check_time()
        samples = lab.samples("connections")
        # Measured once: a server may keep the memory of one round's connections for the next round's.
        idle_mib = {running.of: running.server.rss_mib() for running in servers}
        for _ in lab.rounds(f"{_CONNECTIONS:,} connections"):
            for running in servers:
                with ExitStack() as stack:
                    _open_connections(running, idle_mib[running.of], samples, stack)
        yield from samples.rows()
    with ExitStack() as stack:
        for running in servers:
            _open_connections(running, 0.0, lab.samples("connections"), stack)
        runs = {running.of: partial(ack_run, lab, running, _RATE) for running in servers}
        yield from lab.steady("connections", f"beside {_CONNECTIONS:,} connections, {_RATE:,} messages/s", runs)


class _ManyPartitions:
    """Runs of producing to one topic: to create it takes longer than a run."""

    def __init__(self, lab: Lab, running: Running, stack: ExitStack) -> None:
        self._lab = lab
        self._running = running
        self._stack = stack
        self._job = running.job(lab.topic(), size=_MESSAGE_BYTES, partitions=_PARTITIONS, count=_MESSAGES)
        self._is_created = False

    def run_once(self) -> Run:
        processes = load_processes(self._running.system)
        if not self._is_created:
            self._stack.enter_context(self._lab.created(self._running, self._job))
            self._is_created = True
            self._lab.prime(self._running, self._job)
            self._lab.settle(self._running)
            spent, _ = self._running.spend("produce", self._job, processes)
            self._adapt(next_count(spent, self._lab.amounts.rule.run_s, _MESSAGE_BYTES))
        spent, cpu_s = self._running.spend("produce", self._job, processes)
        self._adapt(next_count(spent, self._lab.amounts.rule.run_s, _MESSAGE_BYTES))
        return values_of("produce", _MESSAGE_BYTES, spent, cpu_s, processes)

    def _adapt(self, count: int) -> None:
        """Change the number of messages of the next run, to as many in each partition."""
        self._job = replace(self._job, count=max(1, count // _PARTITIONS) * _PARTITIONS)


def _create(lab: Lab, running: Running, samples: Samples) -> None:
    what = f"{_PARTITIONS:,} partitions"
    job = running.job(lab.topic(), size=_MESSAGE_BYTES, partitions=_PARTITIONS, count=_PARTITIONS)
    running.call("ready", job)
    started = time.monotonic()
    running.call("create", job)
    running.call("produce", job)
    created_s = time.monotonic() - started
    lab.settle(running)
    _, first_s = lab.prime(running, job)
    lab.settle(running)
    samples.add(running.of, f"{what} made, and a message in each", "time", "s", created_s)
    samples.add(running.of, f"the first 12 KB to each of {what}", "time", "s", first_s)
    samples.add(running.of, f"{what}, at the end", "RSS", "MiB", running.server.rss_mib())
    running.call("delete", job)
    lab.settle(running)


def _open_connections(running: Running, idle_mib: float, samples: Samples, stack: ExitStack) -> None:
    """Open the connections, which are closed by `stack`."""
    load = load_named(running.system.load)
    job = running.job("bench-first")
    what = f"{_CONNECTIONS:,} connections"
    started = time.monotonic()
    for _ in range(_CONNECTIONS):
        stack.callback(load.connect_and_ping(job).close)
    opened_s = time.monotonic() - started
    growth_mib = running.server.rss_mib() - idle_mib
    samples.add(running.of, what, "opened and answered in", "s", opened_s)
    samples.add(running.of, what, "RSS for each", "KiB", max(0.0, 1024 * growth_mib / _CONNECTIONS))
