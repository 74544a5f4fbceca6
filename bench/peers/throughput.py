"""Produce and consume throughput, and the server's CPU time per GB.

A cell runs for about the same time on each system, so the number of messages differs per system; probe runs that do not
count determine it. Consuming does not depend on when messages were synced, so it is measured under one promise only.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from bench.broker_process import warm_page_cache
from bench.peers.lab import Lab, Running, load_processes, promised
from bench.peers.load import Spent
from bench.peers.results import Row, Samples
from bench.peers.system import Promise

_SIZES = (100, 1_000, 10_000)
_PARTITIONS = (1, 16)
_CODECS = ("none", "zstd")
_BYTES_MAX = 4_000_000_000
_PROBE_BYTES = 2_000_000
_PROBE_MESSAGES_MIN = 1_000
_PROBE_RUN_S_MAX = 1.0
# A server is warm when this many warm-up windows in a row differ by no more than this share of their CPU time per GB.
_SETTLED_WINDOWS = 3
_SETTLED_SHARE = 0.1
_WARM_UP_RUN_S = 2.0
# Above this share of its available cores, the load is the bottleneck, not the server.
LOAD_IS_LIMIT = 0.9


class Cell(NamedTuple):
    """Messages of one size and codec, to a number of partitions."""

    size: int
    partitions: int
    codec: str
    in_turn: bool = False

    def __str__(self) -> str:
        size = {100: "100 B", 1_000: "1 KB", 10_000: "10 KB"}[self.size]
        spread = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"{size}, {spread}" + " in turn" * self.in_turn + ", zstd" * (self.codec == "zstd")


_CELLS = (
    *(Cell(*cell) for cell in product(_SIZES, _PARTITIONS, _CODECS)),
    *(Cell(1_000, 16, codec, in_turn=True) for codec in _CODECS),
)


def run(lab: Lab) -> Iterator[Row]:
    for promise in lab.promises:
        with lab.serving(promised(promise)) as servers:
            for running in servers:
                _warm_up(lab, running)
            for cell in _CELLS:
                supporting = [running for running in servers if cell.codec in running.system.codecs]
                if supporting:
                    yield from _measure(lab, supporting, cell)


def _warm_up(lab: Lab, running: Running) -> None:
    """Load the server until its CPU time per GB no longer changes, or `warm_up_s` have passed.

    All systems follow the same rule. It takes the longest where code is compiled while it runs, as in Kafka's JVM.
    """
    lab.say(f"warming up {running.system.name}")
    cells = (Cell(100, 1, "none"), Cell(1_000, 16, running.system.codecs[-1]))
    run_s = min(_WARM_UP_RUN_S, lab.amounts.throughput_s)
    counts = [probe_count(lab, running, cell, run_s) for cell in cells]
    costs: list[float] = []
    until = time.monotonic() + lab.amounts.warm_up_s
    while time.monotonic() < until and not is_settled(costs):
        samples = Samples("throughput")
        for cell, count in zip(cells, counts, strict=True):
            _round(lab, running, cell, count, samples)
        costs.append(sum(row.median for row in samples.rows() if "CPU of the server" in row.metric))
    state = "is warm" if is_settled(costs) else f"is not steady after {lab.amounts.warm_up_s:.0f} s"
    lab.say(f"{running.system.name} {state}; CPU s/GB per window: {', '.join(f'{cost:.2f}' for cost in costs)}")


def is_settled(costs: list[float]) -> bool:
    """True if a server is warm: the last windows had about the same cost."""
    last = costs[-_SETTLED_WINDOWS:]
    return len(last) == _SETTLED_WINDOWS and max(last) <= (1 + _SETTLED_SHARE) * min(last)


def _measure(lab: Lab, servers: list[Running], cell: Cell) -> list[Row]:
    samples = Samples("throughput")
    counts = {running.of: probe_count(lab, running, cell, lab.amounts.throughput_s) for running in servers}
    promise = servers[0].variant.promise
    for _ in lab.rounds(f"throughput, {promise}: {cell}", samples):
        for running in servers:
            _round(lab, running, cell, counts[running.of], samples)
    return samples.rows()


def probe_count(lab: Lab, running: Running, cell: Cell, run_s: float) -> int:
    """Return the number of messages for a run of `run_s` seconds, estimated by two runs of increasing length."""
    count_min = max(_PROBE_MESSAGES_MIN, _PROBE_BYTES // cell.size)
    count = count_min
    for share in (min(0.5, _PROBE_RUN_S_MAX / run_s), 1.0):
        job = running.job(lab.topic(), **cell._asdict(), count=count)
        with lab.created(running, job):
            lab.prime(running, job)
            spent, _ = running.spend("produce", job, load_processes(running.system))
        per_s = spent.messages / (spent.ended_s - spent.started_s)
        count = max(count_min // 2, min(_BYTES_MAX // cell.size, round(per_s * share * run_s)))
    return count


def _round(lab: Lab, running: Running, cell: Cell, count: int, samples: Samples) -> None:
    job = running.job(lab.topic(), **cell._asdict(), count=count)
    with lab.created(running, job):
        primed, _ = lab.prime(running, job)
        # Twice the bytes: for the segments and for a write-ahead log.
        warm_page_cache(2 * count * cell.size)
        processes = load_processes(running.system)
        produced, produce_cpu_s = running.spend("produce", job, processes)
        _add(samples, running, "produce", cell, produced, produce_cpu_s, processes)
        if running.variant.promise is Promise.LESS:
            # The number of messages produced, which rounding to equal parts per process can make more than `count`.
            consumed, consume_cpu_s = running.spend("consume", replace(job, count=primed + produced.messages))
            _add(samples, running, "consume", cell, consumed, consume_cpu_s, 1)


def _add(
    samples: Samples,
    running: Running,
    verb: str,
    cell: Cell,
    spent: Spent,
    server_cpu_s: float,
    processes: int,
) -> None:
    what = str(cell)
    took_s = spent.ended_s - spent.started_s
    gb = spent.messages * cell.size / 1e9
    load_cores = spent.cpu_s / took_s
    note = "load" if load_cores > LOAD_IS_LIMIT * min(processes, os.cpu_count() or 1) else ""
    samples.add(running.of, what, f"{verb}, throughput", "MB/s", 1e3 * gb / took_s, higher_is_better=True, note=note)
    samples.add(running.of, what, f"{verb}, CPU of the server", "s/GB", server_cpu_s / gb)
    samples.add(running.of, what, f"{verb}, CPU of the load", "s/GB", spent.cpu_s / gb)
