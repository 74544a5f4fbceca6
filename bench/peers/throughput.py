"""Produce and consume throughput and the server's CPU time per GB, until both are steady.

A run of producing has a new topic and as many messages as the server took in the run before. Consuming does not
depend on when messages were synced, so it is measured under one promise only: a consumer reads the topic of the last
run of producing, from the beginning again as often as a run needs. Beside it runs `sendfile` of the same files,
and its CPU time is the reference of every consume line.
"""

import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench.broker_process import warm_page_cache
from bench.peers.cells import CELLS, Cell, next_count, probe_count
from bench.peers.comparison import REFERENCE
from bench.peers.lab import Lab, Running, load_processes
from bench.peers.load import Job, Spent
from bench.peers.results import Row
from bench.peers.sendfile import measure_sendfile
from bench.peers.steady import Measured, Run
from bench.peers.system import Promise

# Above this share of its available cores, the load is the bottleneck, not the server.
LOAD_IS_LIMIT = 0.9
CONSUME_CPU = "consume, CPU of the server"
OF_REFERENCE = f"consume, CPU of the server, of {REFERENCE}'s"


def run(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    for cell in CELLS:
        supporting = [running for running in servers if cell.codec in running.system.codecs]
        if supporting:
            yield from _measure(lab, supporting, cell)


def _measure(lab: Lab, servers: list[Running], cell: Cell) -> Iterator[Row]:
    what = str(cell)
    with ExitStack() as stack:
        producing = {running.of: ProduceLine(lab, running, cell) for running in servers}
        for line in producing.values():
            stack.callback(line.close)
        yield from lab.steady("throughput", what, {of: line.run_once for of, line in producing.items()})
        if servers[0].variant.promise is not Promise.LESS:
            return
        run_of = {of: ConsumeLine(lab, line).run_once for of, line in producing.items()}
        if servers[0].system.load == "kafka":
            reference = SendfileLine(lab, producing[servers[0].of])
            run_of[reference.of] = reference.run_once
        rows = lab.steady("consume", what, run_of)
        yield from rows
        yield from of_reference(rows)


class ProduceLine:
    """Runs of producing. The topic of the last one is kept for consumers until `close`."""

    def __init__(self, lab: Lab, running: Running, cell: Cell) -> None:
        self.lab = lab
        self.running = running
        self.cell = cell
        self.stored = 0
        self.job: Job | None = None
        self._count = 0

    def run_once(self) -> Run:
        self.close()
        run_s = self.lab.amounts.rule.run_s
        count = self._count or probe_count(self.lab, self.running, self.cell, run_s)
        job = self.running.job(self.lab.topic(), **self.cell._asdict(), count=count)
        self.running.call("create", job)
        self.job = job
        primed, _ = self.lab.prime(self.running, job)
        # Twice the bytes: for the segments and for a write-ahead log.
        warm_page_cache(2 * count * self.cell.size)
        processes = load_processes(self.running.system)
        spent, cpu_s = self.running.spend("produce", job, processes)
        # The number of messages produced, which rounding to equal parts per process can make more than `count`.
        self.stored = primed + spent.messages
        self._count = next_count(spent, run_s, self.cell.size)
        return values_of("produce", self.cell.size, spent, cpu_s, processes)

    def close(self) -> None:
        """Delete the topic of the last run."""
        if self.job is not None:
            self.running.call("delete", self.job)
            self.job = None

    @property
    def files(self) -> list[Path]:
        """The segments of the topic. Logbrook and Kafka have the same layout."""
        assert self.job is not None
        return sorted((self.running.directory / "data").glob(f"{self.job.topic}-*/*.log"))

    @property
    def produced_bytes(self) -> int:
        return self.stored * self.cell.size


class ConsumeLine:
    """Runs of consuming what a `ProduceLine` has left."""

    def __init__(self, lab: Lab, produced: ProduceLine) -> None:
        self._lab = lab
        self._produced = produced
        self._count = 0

    def run_once(self) -> Run:
        line = self._produced
        if line.job is None:
            # The line of producing was measured in an earlier run.
            line.run_once()
        assert line.job is not None
        job = replace(line.job, count=self._count or line.stored, stored=line.stored)
        spent, cpu_s = line.running.spend("consume_passes", job)
        self._count = round(spent.messages / spent.took_s * self._lab.amounts.rule.run_s)
        return values_of("consume", line.cell.size, spent, cpu_s, 1)


class SendfileLine:
    """Runs of `sendfile` of the segments that a `ProduceLine` has left, per GB of messages before compression."""

    def __init__(self, lab: Lab, produced: ProduceLine) -> None:
        self.of = (REFERENCE, produced.running.variant.promise.value)
        self._lab = lab
        self._produced = produced

    def run_once(self) -> Run:
        files = self._produced.files
        per_message_byte = sum(path.stat().st_size for path in files) / self._produced.produced_bytes
        sent = measure_sendfile(files, self._lab.amounts.rule.run_s)
        gb = sent.bytes / per_message_byte / 1e9
        return [
            Measured("consume, throughput", "MB/s", 1e3 * gb / sent.took_s, higher_is_better=True),
            Measured(CONSUME_CPU, "s/GB", sent.cpu_s / gb, decides=True),
        ]


def of_reference(rows: list[Row]) -> Iterator[Row]:
    """Yield the CPU time of each system as a multiple of the reference's median."""
    references = [row.median for row in rows if row.system == REFERENCE and row.metric == CONSUME_CPU]
    for row in rows:
        if references and row.metric == CONSUME_CPU and row.system != REFERENCE:
            values = tuple(value / statistics.median(references) for value in row.values)
            yield replace(row, metric=OF_REFERENCE, unit="times", values=values, runs=())


def values_of(verb: str, size: int, spent: Spent, server_cpu_s: float, processes: int) -> Run:
    """Return the values of a run. It is steady when the throughput and the CPU time of the server are."""
    gb = spent.messages * size / 1e9
    load_cores = spent.cpu_s / spent.took_s
    note = "load" if load_cores > LOAD_IS_LIMIT * min(processes, os.cpu_count() or 1) else ""
    throughput = f"{verb}, throughput"
    return [
        Measured(throughput, "MB/s", 1e3 * gb / spent.took_s, higher_is_better=True, decides=True, note=note),
        Measured(f"{verb}, CPU of the server", "s/GB", server_cpu_s / gb, decides=True),
        Measured(f"{verb}, CPU of the load", "s/GB", spent.cpu_s / gb),
    ]
