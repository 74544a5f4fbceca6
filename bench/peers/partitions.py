"""A thousand partitions in one topic: making them, the first messages to them, and writing to them after that.

Kafka answers that a topic is made before it has made it, so it counts as made once each partition took a message. The
first messages have a row of their own, and are no part of the throughput: `Lab.prime` says why.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

from bench.peers.lab import Lab, Running, by_default, load_processes
from bench.peers.results import Row, Samples

_PARTITIONS = 1_000
_MESSAGES = 50_000
_SIZE = 100


def run(lab: Lab) -> Iterator[Row]:
    samples = Samples("partitions")
    with lab.serving(by_default) as everyone:
        for _ in lab.rounds(f"{_PARTITIONS:,} partitions", samples):
            for running in everyone:
                _measure(lab, running, samples)
    yield from samples.rows()


def _measure(lab: Lab, running: Running, samples: Samples) -> None:
    what = f"{_PARTITIONS:,} partitions"
    job = running.job(lab.topic(), size=_SIZE, partitions=_PARTITIONS, count=_MESSAGES)
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
