"""Start-up time, and memory when idle and under load. Every system runs with its defaults."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Event

from bench.peers.lab import Lab, by_default, load_processes
from bench.peers.results import Row, Samples

# Work that a server still does after its first acknowledgement is finished by then.
_SETTLE_S = 1.0
_MESSAGE_BYTES = 1_000


def measure_startup(lab: Lab) -> Iterator[Row]:
    """Measure the time from start to the first acknowledged message, with one topic of an earlier run, and the RSS."""
    samples = Samples("startup")
    with ExitStack() as stack:
        servers = []
        for system in lab.systems:
            running = stack.enter_context(lab.idle(system, by_default(system)))
            running.server.launch()
            servers.append((running, lab.first_ack(running)))
            running.server.stop()
        for _ in lab.rounds("start to the first acknowledged message, and memory at rest", samples):
            for running, job in servers:
                running.call("ready", job)
                started = time.monotonic()
                running.server.launch()
                running.call("wait_for_ack", job)
                start_s = time.monotonic() - started
                Event().wait(_SETTLE_S)
                samples.add(running.of, "start to first acknowledged message", "time", "s", start_s)
                samples.add(running.of, "at rest", "RSS", "MiB", running.server.rss_mib())
                running.server.stop()
    yield from samples.rows()


def measure_memory(lab: Lab) -> Iterator[Row]:
    """Measure the peak RSS while messages are produced and consumed. Redis keeps all messages in memory."""
    samples = Samples("memory")
    count = lab.amounts.memory_bytes // _MESSAGE_BYTES
    # The row's name omits the amount, so that a quick run updates the same row.
    what = "1 KB messages produced, then consumed"
    for _ in lab.rounds(f"memory under load: {lab.amounts.memory_bytes / 1e6:,.0f} MB", samples):
        for system in lab.systems:
            with lab.idle(system, by_default(system)) as running:
                running.server.launch()
                lab.first_ack(running)
                job = running.job(lab.topic(), size=_MESSAGE_BYTES, count=count)
                with lab.created(running, job):
                    running.spend("produce", job, load_processes(system))
                    running.spend("consume", job)
                    samples.add(running.of, what, "largest RSS", "MiB", running.server.peak_rss_mib())
    yield from samples.rows()
