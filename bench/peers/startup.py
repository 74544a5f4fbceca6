"""How soon after its start a server acknowledges a message, and what it weighs then.

The server has one topic from an earlier run. It is started as each system's default.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Event

from bench.peers.lab import Lab, by_default
from bench.peers.results import Row, Samples

# What a server does once it has begun is over by then.
_REST_S = 1.0


def run(lab: Lab) -> Iterator[Row]:
    samples = Samples("startup")
    with ExitStack() as stack:
        everyone = []
        for system in lab.systems:
            running = stack.enter_context(lab.idle(system, by_default(system)))
            running.server.launch()
            everyone.append((running, lab.first_ack(running)))
            running.server.stop()
        for _ in lab.rounds("start to the first acknowledged message, and memory at rest", samples):
            for running, job in everyone:
                running.call("ready", job)
                started = time.monotonic()
                running.server.launch()
                running.call("wait_for_ack", job)
                took_s = time.monotonic() - started
                Event().wait(_REST_S)
                samples.add(running.of, "start to first acknowledged message", "time", "s", took_s)
                samples.add(running.of, "at rest", "RSS", "MiB", running.server.rss_mib())
                running.server.stop()
    yield from samples.rows()
