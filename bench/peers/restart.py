"""Time from the start after a SIGKILL under load to the first acknowledged message, with gigabytes of log.

The log has 10 KB messages, which favours systems that read every message at start-up. Systems run one after the other,
because the disk has no room for all logs at once.
"""

import time
from collections.abc import Iterator
from threading import Event

from bench.peers.lab import Lab, Running, load_processes
from bench.peers.load import LoadError
from bench.peers.machine import memory_available_bytes
from bench.peers.results import Row
from bench.peers.system import Promise, System, Variant

_SIZE = 10_000
_FILL_BYTES = 500_000_000
# Maximum share of memory for a system that keeps all data in memory: it needs as much again to rewrite its log.
_MEMORY_SHARE = 0.25
_UNDER_LOAD_S = 0.7


def run(lab: Lab) -> Iterator[Row]:
    if lab.is_measured_by_all("restart"):
        return
    for system in lab.systems:
        lab.check_time()
        samples = lab.samples("restart")
        with lab.idle(system, _variant(system)) as running:
            running.server.launch()
            job = lab.first_ack(running)
            log_bytes = lab.amounts.log_gb * 1e9
            if system.load == "redis":
                log_bytes = min(log_bytes, _MEMORY_SHARE * memory_available_bytes())
            lab.say(f"restart: filling {system.name} with {log_bytes / 1e9:.2g} GB")
            topic = lab.topic()
            running.call("create", running.job(topic))
            remaining_bytes = log_bytes
            while remaining_bytes > 0:
                fill_bytes = min(_FILL_BYTES, remaining_bytes)
                fill = running.job(topic, size=_SIZE, count=max(1, int(fill_bytes) // _SIZE))
                running.spend("produce", fill, load_processes(system))
                remaining_bytes -= fill_bytes
            for _ in lab.rounds(f"restart: killing {system.name}"):
                _kill_under_load(lab, running, topic)
                running.call("ready", job)
                started = time.monotonic()
                running.server.launch()
                running.call("wait_for_ack", job)
                took_s = time.monotonic() - started
                note = f"{log_bytes / 1e9:.2g} GB" if log_bytes < lab.amounts.log_gb * 1e9 else ""
                what = f"SIGKILL under load, {lab.amounts.log_gb:g} GB of log"
                samples.add(running.of, what, "start to first acknowledged message", "s", took_s, note=note)
        yield from samples.rows()


def _variant(system: System) -> Variant:
    """Return the default variant, or the synced one if the default loses its data with the process."""
    default = system.default()
    return default if default.survives_kill else system.variants()[Promise.DISK]


def _kill_under_load(lab: Lab, running: Running, topic: str) -> None:
    """Kill the server while messages are in flight, and the load, which would retry for minutes."""
    job = running.job(topic, size=_SIZE, rate=1_000, count=100_000)
    sending = lab.workers.begin(running.system.load, "acknowledged", job)
    Event().wait(_UNDER_LOAD_S)
    if sending.done():
        sending.result()
        raise LoadError("the load ended before the server was killed")
    running.server.kill()
    lab.workers.cancel(sending)
