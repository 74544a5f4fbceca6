"""Two thousand connections: opening them one after another, what each costs, and whether others notice."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench.peers.lab import Lab, Running, by_default
from bench.peers.results import Row, Samples
from bench.peers.worker import load_named

_CONNECTIONS = 2_000
_RATE = 1_000


def run(lab: Lab) -> Iterator[Row]:
    samples = Samples("connections")
    with lab.serving(by_default) as everyone:
        # What a server took for the connections of one round it may keep for those of the next.
        at_first = {running.of: running.server.rss_mib() for running in everyone}
        for _ in lab.rounds(f"{_CONNECTIONS:,} connections", samples):
            for running in everyone:
                _measure(lab, running, at_first[running.of], samples)
    yield from samples.rows()


def _measure(lab: Lab, running: Running, at_first_mib: float, samples: Samples) -> None:
    load = load_named(running.system.load)
    job = running.job(lab.topic(), rate=_RATE, count=int(_RATE * lab.amounts.latency_s))
    what = f"{_CONNECTIONS:,} connections"
    with ExitStack() as stack, lab.created(running, job):
        started = time.monotonic()
        for _ in range(_CONNECTIONS):
            stack.callback(load.greet(job).close)
        opened_s = time.monotonic() - started
        grown_mib = running.server.rss_mib() - at_first_mib
        found = running.call("acknowledged", job)
        samples.add(running.of, what, "opened and answered in", "s", opened_s)
        samples.add(running.of, what, "RSS for each", "KiB", max(0.0, 1024 * grown_mib / _CONNECTIONS))
        samples.add(running.of, f"beside {what}, {_RATE:,} messages/s", "ack, p99", "ms", found["p99"])
