"""Start-up time, and memory when idle, under load and over an hour. Every system runs with its defaults."""

import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from threading import Event
from typing import Any, NamedTuple

from bench.peers.lab import Lab, Running, by_default, load_processes
from bench.peers.results import Row

# Work that a server still does after its first acknowledgement is finished by then.
_SETTLE_S = 1.0
_MESSAGE_BYTES = 1_000
# The load of the endurance measurement: light, so that it is the same for all, and more than the retention keeps.
_ENDURANCE_RATE = 1_000
_RETENTION = {"retention.bytes": str(256 << 20), "segment.bytes": str(64 << 20)}
_OBSERVATIONS = 60


def measure_startup(lab: Lab) -> Iterator[Row]:
    """Measure the time from start to the first acknowledged message, with one topic of an earlier run, and the RSS."""
    if lab.is_measured_by_all("startup"):
        return
    lab.check_time()
    samples = lab.samples("startup")
    with ExitStack() as stack:
        servers = []
        for system in lab.systems:
            running = stack.enter_context(lab.idle(system, by_default(system)))
            running.server.launch()
            servers.append((running, lab.first_ack(running)))
            running.server.stop()
        for _ in lab.rounds("start to the first acknowledged message, and memory at rest"):
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
    if lab.is_measured_by_all("memory"):
        return
    lab.check_time()
    samples = lab.samples("memory")
    count = lab.amounts.memory_bytes // _MESSAGE_BYTES
    # The row's name omits the amount, so that a quick run updates the same row.
    what = "1 KB messages produced, then consumed"
    for _ in lab.rounds(f"memory under load: {lab.amounts.memory_bytes / 1e6:,.0f} MB"):
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


def measure_endurance(lab: Lab) -> Iterator[Row]:
    """Observe the memory of all servers at once while they are produced to and consumed from at a steady rate."""
    if lab.is_measured_by_all("endurance"):
        return
    lab.check_time()
    seconds = lab.amounts.endurance_s
    lab.say(f"memory over {seconds / 60:g} minutes at {_ENDURANCE_RATE:,} messages/s")
    samples = lab.samples("endurance")
    with lab.serving(by_default) as servers:
        loads = [load for running in servers if running.system.load == "kafka" for load in _endless(lab, running)]
        observed: dict[tuple[str, str], list[_Memory]] = {running.of: [] for running in servers}
        for _ in range(_OBSERVATIONS):
            Event().wait(seconds / _OBSERVATIONS)
            for running in servers:
                server = running.server
                observed[running.of].append(_Memory(server.rss_mib(), server.anonymous_mib(), server.cpu_s()))
        for load in loads:
            load.result()
        what = f"1 KB, {_ENDURANCE_RATE:,} messages/s, produced and consumed"
        for running in servers:
            if running.system.load == "kafka":
                for metric, unit, value in _endurance(observed[running.of], seconds):
                    samples.add(running.of, what, metric, unit, value)
    yield from samples.rows()


class _Memory(NamedTuple):
    rss_mib: float
    anonymous_mib: float
    cpu_s: float


def _endurance(observed: list[_Memory], seconds: float) -> Iterator[tuple[str, str, float]]:
    """Yield the largest memory, its growth from the second quarter to the last, and the share of a core."""
    anonymous = [memory.anonymous_mib for memory in observed]
    quarter = len(observed) // 4
    growth_mib = max(anonymous[-quarter:]) - max(anonymous[quarter : 2 * quarter])
    yield "largest RSS", "MiB", max(memory.rss_mib for memory in observed)
    yield "largest memory without mapped files", "MiB", max(anonymous)
    yield "growth from the second quarter to the last", "MiB", growth_mib
    cores = (observed[-1].cpu_s - observed[0].cpu_s) / (seconds * (len(observed) - 1) / len(observed))
    yield "CPU of the server", "% of a core", 100 * cores


def _endless(lab: Lab, running: Running) -> Iterator[Future[Any]]:
    """Begin a producer and a consumer that run for the whole time."""
    count = int(_ENDURANCE_RATE * lab.amounts.endurance_s)
    job = running.job(lab.topic(), rate=_ENDURANCE_RATE, count=count)
    job = replace(job, settings={**job.settings, **_RETENTION})
    running.call("create", job)
    yield lab.workers.begin(running.system.load, "receive_stamped", job)
    yield lab.workers.begin(running.system.load, "send_stamped", job)
