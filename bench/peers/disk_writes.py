"""Bytes written to the disk per byte produced, as the kernel counts them for the server's processes, after a sync."""

import os
from collections.abc import Iterator

from bench.peers.cells import Cell, probe_count
from bench.peers.lab import Lab, Running, load_processes
from bench.peers.results import Row
from bench.peers.steady import Measured, Run

CELLS = (Cell(1_000, 1, "none"), Cell(1_000, 16, "none", in_turn=True), Cell(10_000, 16, "none"))


def run(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    for cell in CELLS:
        lines = {running.of: _DiskWrites(lab, running, cell) for running in servers}
        yield from lab.steady("disk_writes", str(cell), {of: line.run_once for of, line in lines.items()})


class _DiskWrites:
    def __init__(self, lab: Lab, running: Running, cell: Cell) -> None:
        self._lab = lab
        self._running = running
        self._cell = cell
        self._count = 0

    def run_once(self) -> Run:
        # As many messages in each run, so that files of a fixed size weigh the same.
        if not self._count:
            self._count = probe_count(self._lab, self._running, self._cell, self._lab.amounts.rule.run_s)
        job = self._running.job(self._lab.topic(), **self._cell._asdict(), count=self._count)
        self._running.call("create", job)
        os.sync()
        before = self._running.server.written_bytes()
        spent, _ = self._running.spend("produce", job, load_processes(self._running.system))
        os.sync()
        written = self._running.server.written_bytes() - before
        self._running.call("delete", job)
        ratio = written / (spent.messages * self._cell.size)
        return [Measured("written to the disk per byte produced", "bytes", ratio, decides=True)]
