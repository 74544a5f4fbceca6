"""Many consumers: ten that read one topic at once, and 100 groups that have nothing to do.

The ten have no group, which costs nothing while records are fetched: each reads the whole topic with a connection and a
fetch session of its own, as ten groups do. The idle groups have one member each, with the defaults of librdkafka: a
heartbeat every 3 s, and a Fetch that waits for 500 ms. All servers hold their groups at the same time.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic

from bench.peers.cells import Cell
from bench.peers.lab import Lab, Running
from bench.peers.load import WAIT_S_MAX, LoadError
from bench.peers.results import Row
from bench.peers.steady import Measured, Run
from bench.peers.throughput import ProduceLine, values_of

CONSUMERS = 10
IDLE_GROUPS = 100
# Two heartbeats of every group.
IDLE_RUN_S = 6.0
_FAN_OUT_CELL = Cell(1_000, 1, "none")
_QUICK_GROUPS = 10


def measure_fan_out(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    with ExitStack() as stack:
        lines = {}
        for running in servers:
            if running.system.load == "kafka":
                lines[running.of] = line = _FanOut(lab, running)
                stack.callback(line.produced.close)
        what = f"{CONSUMERS} consumers of one topic, {_FAN_OUT_CELL}"
        yield from lab.steady("fan_out", what, {of: line.run_once for of, line in lines.items()})


def measure_idle_groups(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    groups = _QUICK_GROUPS if lab.amounts.is_quick else IDLE_GROUPS
    holding = [running for running in servers if running.system.load == "kafka"]
    what = f"{groups} idle groups of one member"
    if lab.is_measured("idle_groups", what, [running.of for running in holding]):
        return
    idle_mib = {running.of: running.server.rss_mib() for running in holding}
    yield from lab.steady("idle_groups", "no groups", _lines_of(lab, holding, {}), IDLE_RUN_S)
    with ExitStack() as stack:
        for running in holding:
            _hold(lab, running, groups, stack)
        yield from lab.steady("idle_groups", what, _lines_of(lab, holding, idle_mib), IDLE_RUN_S)


class _FanOut:
    def __init__(self, lab: Lab, running: Running) -> None:
        self.produced = ProduceLine(lab, running, _FAN_OUT_CELL)
        self._lab = lab
        self._running = running
        self._count = 0

    def run_once(self) -> Run:
        if self.produced.job is None:
            self.produced.run_once()
        assert self.produced.job is not None
        stored = self.produced.stored
        job = replace(self.produced.job, connections=CONSUMERS, stored=stored, count=self._count or stored)
        spent, cpu_s = self._running.spend("fan_out", job)
        per_consumer_s = spent.messages / CONSUMERS / spent.took_s
        self._count = round(per_consumer_s * self._lab.amounts.rule.run_s)
        return values_of("consume", _FAN_OUT_CELL.size, spent, cpu_s, CONSUMERS)


def _lines_of(
    lab: Lab, servers: list[Running], idle_mib: dict[tuple[str, str], float]
) -> dict[tuple[str, str], "_Idle"]:
    return {running.of: _Idle(lab, running, idle_mib.get(running.of)) for running in servers}


class _Idle:
    """Runs in which nothing is done. Where a server then uses next to no CPU time, the line is rarely steady."""

    def __init__(self, lab: Lab, running: Running, idle_mib: float | None) -> None:
        self._run_s = lab.amounts.rule.with_run(IDLE_RUN_S).run_s
        self._running = running
        self._idle_mib = idle_mib

    def __call__(self) -> Run:
        server = self._running.server
        before_s = server.cpu_s()
        Event().wait(self._run_s)
        share = 100 * (server.cpu_s() - before_s) / self._run_s
        values = [Measured("CPU of the server", "% of a core", share, decides=True)]
        if self._idle_mib is not None:
            growth_mib = max(0.0, server.rss_mib() - self._idle_mib)
            values.append(Measured("RSS of the server, more than without", "MiB", growth_mib))
        return values


def _hold(lab: Lab, running: Running, groups: int, stack: ExitStack) -> None:
    """Join the groups in a worker, and wait until all have their partitions. Raises LoadError."""
    directory = stack.enter_context(lab.directory())
    ready = Path(directory) / "ready"
    job = running.job(lab.topic(), connections=groups)
    running.call("create", job)
    job = replace(job, settings={"ready": str(ready)})
    holding = lab.workers.begin(running.system.load, "idle_groups", job)
    until_s = monotonic() + WAIT_S_MAX
    while not ready.exists():
        if holding.done():
            holding.result()
        if monotonic() > until_s:
            raise LoadError(f"{groups} groups are not ready within {WAIT_S_MAX:.0f} s")
        Event().wait(0.05)
    stack.callback(partial(running.call, "delete", job))
    stack.callback(partial(holding.result, WAIT_S_MAX))
    stack.callback(ready.unlink)
