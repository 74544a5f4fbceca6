"""Time and CPU time of a compaction that removes half of a log.

The topic is filled while a lag keeps its records from compaction. Then the lag is removed, and the CPU time of the
server is observed until the log is as small as it must be and the server is idle. Only the time in which the server is
busy counts, not the pauses between two checks of all logs: both look every 15 s. Each round has a new topic.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import NamedTuple

from bench.peers.lab import Lab, Running
from bench.peers.load import WAIT_S_MAX, LoadError
from bench.peers.results import Row, Samples

_SIZE = 100
_HELD = {
    "cleanup.policy": "compact",
    "segment.bytes": str(2 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": str(24 * 3600 * 1000),
    "file.delete.delay.ms": "0",
}
_RELEASED = {"min.compaction.lag.ms": "0"}
_TICK_S = 0.1
_BUSY_CORES = 0.2
_IDLE_S = 2.0
# Half of the records are superseded; the active segment is not compacted.
_COMPACTED_SHARE = 0.75


class Busy(NamedTuple):
    """The time in which a server was busy, its CPU time in it, and the end of it."""

    took_s: float
    cpu_s: float
    until_s: float


def run(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    if lab.is_measured_by_all("compaction"):
        return
    lab.check_time()
    samples = lab.samples("compaction")
    compacting = [running for running in servers if running.system.load == "kafka"]
    # One round that does not count, for every system: in it the JVM compiles its cleaner.
    for running in compacting:
        _round(lab, running, lab.samples("compaction"))
    for _ in lab.rounds("compaction"):
        for running in compacting:
            _round(lab, running, samples)
    yield from samples.rows()


def _round(lab: Lab, running: Running, samples: Samples) -> None:
    job = running.job(lab.topic(), size=_SIZE, count=lab.amounts.compacted_bytes // _SIZE)
    job = replace(job, settings={**job.settings, **_HELD})
    with lab.created(running, job):
        running.call("fill_keyed", job)
        lab.settle(running)
        directory = running.directory / "data" / f"{job.topic}-0"
        size = _size_of(directory)
        running.call("set_topic_config", replace(job, settings=_RELEASED))
        busy = _observe(running, directory, _COMPACTED_SHARE * size)
    what = "half of the records, 100 B values, 1 partition"
    samples.add(running.of, what, "throughput", "MB/s", size / busy.took_s / 1e6, higher_is_better=True)
    samples.add(running.of, what, "CPU of the server", "s/GB", 1e9 * busy.cpu_s / size)


def _observe(running: Running, directory: Path, size_max: float) -> Busy:
    """Return the busy time until the log is small enough and the server idle. Raises LoadError."""
    started_s = time.monotonic()
    observed = [(started_s, running.server.cpu_s())]
    while time.monotonic() < started_s + WAIT_S_MAX:
        Event().wait(_TICK_S)
        observed.append((time.monotonic(), running.server.cpu_s()))
        busy = busy_of(observed)
        is_idle = observed[-1][0] - busy.until_s > _IDLE_S
        if busy.took_s and is_idle and _size_of(directory) <= size_max:
            return busy
    raise LoadError(f"{running.system.name} has not compacted {directory.name} within {WAIT_S_MAX:.0f} s")


def busy_of(observed: list[tuple[float, float]]) -> Busy:
    """Return the sum of the intervals with much CPU time, of (time, CPU time) pairs."""
    took_s = used_s = until_s = 0.0
    for (before_s, before_cpu_s), (at_s, cpu_s) in pairwise(observed):
        if cpu_s - before_cpu_s >= _BUSY_CORES * (at_s - before_s):
            took_s += at_s - before_s
            used_s += cpu_s - before_cpu_s
            until_s = at_s
    return Busy(took_s, used_s, until_s)


def _size_of(directory: Path) -> int:
    sizes = []
    for path in directory.glob("*.log"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            # Replaced by the compaction.
            continue
    return sum(sizes)
