"""How many messages go in and come out, and what that costs the server.

Each cell is run for about the same time on each system, so each has its own number of messages, found by a run that
does not count. What comes out does not depend on when it was synced, so reading is measured under one promise only.
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
_BYTES_MAX = 400_000_000
_PROBE_BYTES = 2_000_000
_PROBE_MESSAGES_MIN = 1_000
# A load that uses this share of the cores that it can is what is measured, not the server.
_LOAD_IS_LIMIT = 0.9


class _Cell(NamedTuple):
    size: int
    partitions: int
    codec: str
    in_turn: bool = False

    def __str__(self) -> str:
        of_size = {100: "100 B", 1_000: "1 KB", 10_000: "10 KB"}[self.size]
        spread = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"{of_size}, {spread}" + " in turn" * self.in_turn + ", zstd" * (self.codec == "zstd")


_CELLS = (
    *(_Cell(*cell) for cell in product(_SIZES, _PARTITIONS, _CODECS)),
    *(_Cell(1_000, 16, codec, in_turn=True) for codec in _CODECS),
)


def run(lab: Lab) -> Iterator[Row]:
    for promise in (Promise.LESS, Promise.DISK):
        with lab.serving(promised(promise)) as everyone:
            for running in everyone:
                _warm_up(lab, running)
            for cell in _CELLS:
                able = [running for running in everyone if cell.codec in running.system.codecs]
                if able:
                    yield from _measure(lab, able, cell)


def _warm_up(lab: Lab, running: Running) -> None:
    lab.say(f"warming up {running.system.name}")
    samples = Samples("throughput")
    until = time.monotonic() + lab.amounts.warm_up_s
    while time.monotonic() < until:
        for cell in (_Cell(100, 1, "none"), _Cell(1_000, 16, running.system.codecs[-1])):
            _round(lab, running, cell, _probe(lab, running, cell), samples)


def _measure(lab: Lab, everyone: list[Running], cell: _Cell) -> list[Row]:
    samples = Samples("throughput")
    counts = {running.of: _probe(lab, running, cell) for running in everyone}
    promise = everyone[0].variant.promise
    for _ in lab.rounds(f"throughput, {promise}: {cell}", samples):
        for running in everyone:
            _round(lab, running, cell, counts[running.of], samples)
    return samples.rows()


def _probe(lab: Lab, running: Running, cell: _Cell) -> int:
    """How many messages keep it busy for as long as is wanted: a few are tried, and then as many as that says."""
    least = max(_PROBE_MESSAGES_MIN, _PROBE_BYTES // cell.size)
    count = least
    for share in (0.5, 1.0):
        job = running.job(lab.topic(), **cell._asdict(), count=count)
        with lab.created(running, job):
            lab.prime(running, job)
            spent, _ = running.spend("produce", job, load_processes(running.system))
        per_s = spent.messages / (spent.ended_s - spent.started_s)
        count = max(least // 2, min(_BYTES_MAX // cell.size, round(per_s * share * lab.amounts.throughput_s)))
    return count


def _round(lab: Lab, running: Running, cell: _Cell, count: int, samples: Samples) -> None:
    job = running.job(lab.topic(), **cell._asdict(), count=count)
    with lab.created(running, job):
        primed, _ = lab.prime(running, job)
        # For the segments and, where there is one, a log beside them.
        warm_page_cache(2 * count * cell.size)
        processes = load_processes(running.system)
        produced, produce_cpu_s = running.spend("produce", job, processes)
        _add(samples, running, "produce", cell, produced, produce_cpu_s, processes)
        if running.variant.promise is Promise.LESS:
            # Of what is there, not of what was asked for: the processes share it out in equal parts.
            consumed, consume_cpu_s = running.spend("consume", replace(job, count=primed + produced.messages))
            _add(samples, running, "consume", cell, consumed, consume_cpu_s, 1)


def _add(
    samples: Samples,
    running: Running,
    verb: str,
    cell: _Cell,
    spent: Spent,
    server_cpu_s: float,
    processes: int,
) -> None:
    what = str(cell)
    took_s = spent.ended_s - spent.started_s
    gb = spent.messages * cell.size / 1e9
    load_cores = spent.cpu_s / took_s
    note = "load" if load_cores > _LOAD_IS_LIMIT * min(processes, os.cpu_count() or 1) else ""
    samples.add(running.of, what, f"{verb}, throughput", "MB/s", 1e3 * gb / took_s, higher_is_better=True, note=note)
    samples.add(running.of, what, f"{verb}, CPU of the server", "s/GB", server_cpu_s / gb)
    samples.add(running.of, what, f"{verb}, CPU of the load", "s/GB", spent.cpu_s / gb)
