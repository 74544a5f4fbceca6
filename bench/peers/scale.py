"""A topic with 1,000 partitions, and 2,000 connections. Every system runs with its defaults.

Kafka answers CreateTopics before the partitions exist, so a topic counts as created once every partition has
acknowledged a message. The first messages of the partitions have a row of their own and are excluded from the
throughput (see `Lab.prime`).
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

from bench.peers.lab import Lab, Running, by_default, load_processes
from bench.peers.results import Row, Samples
from bench.peers.workers import load_named

_PARTITIONS = 1_000
_MESSAGES = 50_000
_MESSAGE_BYTES = 100
_CONNECTIONS = 2_000
_RATE = 1_000


def measure_partitions(lab: Lab) -> Iterator[Row]:
    samples = Samples("partitions")
    with lab.serving(by_default) as servers:
        for _ in lab.rounds(f"{_PARTITIONS:,} partitions", samples):
            for running in servers:
                _create_and_fill(lab, running, samples)
    yield from samples.rows()


def measure_connections(lab: Lab) -> Iterator[Row]:
    samples = Samples("connections")
    with lab.serving(by_default) as servers:
        # Measured once: a server may keep the memory of one round's connections for the next round's.
        idle_mib = {running.of: running.server.rss_mib() for running in servers}
        for _ in lab.rounds(f"{_CONNECTIONS:,} connections", samples):
            for running in servers:
                _open_connections(lab, running, idle_mib[running.of], samples)
    yield from samples.rows()


def _create_and_fill(lab: Lab, running: Running, samples: Samples) -> None:
    what = f"{_PARTITIONS:,} partitions"
    job = running.job(lab.topic(), size=_MESSAGE_BYTES, partitions=_PARTITIONS, count=_MESSAGES)
    running.call("ready", job)
    started = time.monotonic()
    running.call("create", job)
    running.call("produce", replace(job, count=_PARTITIONS))
    created_s = time.monotonic() - started
    lab.settle(running)
    _, first_s = lab.prime(running, job)
    lab.settle(running)
    spent, cpu_s = running.spend("produce", job, load_processes(running.system))
    per_s = spent.messages / (spent.ended_s - spent.started_s)
    samples.add(running.of, f"{what} made, and a message in each", "time", "s", created_s)
    samples.add(running.of, f"the first 12 KB to each of {what}", "time", "s", first_s)
    produced = f"100 B messages to {what}, after that"
    samples.add(running.of, produced, "throughput", "messages/s", per_s, higher_is_better=True)
    samples.add(running.of, produced, "CPU of the server", "µs/message", 1e6 * cpu_s / spent.messages)
    samples.add(running.of, f"{what}, at the end", "RSS", "MiB", running.server.rss_mib())
    running.call("delete", job)
    lab.settle(running)


def _open_connections(lab: Lab, running: Running, idle_mib: float, samples: Samples) -> None:
    load = load_named(running.system.load)
    job = running.job(lab.topic(), rate=_RATE, count=int(_RATE * lab.amounts.latency_s))
    what = f"{_CONNECTIONS:,} connections"
    with ExitStack() as stack, lab.created(running, job):
        started = time.monotonic()
        for _ in range(_CONNECTIONS):
            stack.callback(load.connect_and_ping(job).close)
        opened_s = time.monotonic() - started
        growth_mib = running.server.rss_mib() - idle_mib
        latencies_ms = running.call("acknowledged", job)
        samples.add(running.of, what, "opened and answered in", "s", opened_s)
        samples.add(running.of, what, "RSS for each", "KiB", max(0.0, 1024 * growth_mib / _CONNECTIONS))
        samples.add(running.of, f"beside {what}, {_RATE:,} messages/s", "ack, p99", "ms", latencies_ms["p99"])
