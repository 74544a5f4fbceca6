"""The warm-up of servers, the same for every system, and what it costs.

All servers of a comparison are loaded in turns with the same work, run by run, until the CPU time per GB of each
is steady by the rule of `steady.py`. No server stops before the last one is steady, so that all get the same load. The
warm-up takes the longest where code is compiled while it runs, as in Kafka's JVM. It is a line of its own, because a
broker that is started for a test suite pays it each time: the time under load, and the CPU time, before the first
run that is steady.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bench.broker_process import warm_page_cache
from bench.peers.cells import Cell, next_count, probe_count
from bench.peers.lab import Lab, Running, load_processes
from bench.peers.results import Row, State
from bench.peers.steady import SteadyRule

MEASUREMENT = "warm_up"
WHAT = "from the start, under produce and consume"


@dataclass
class WarmUp:
    """The runs of one server: time under load, CPU time and GB of each."""

    rule: SteadyRule
    # Of the first messages, by which the length of the runs is found.
    probe_s: float = 0.0
    probe_cpu_s: float = 0.0
    load_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    gb: list[float] = field(default_factory=list)

    def add(self, load_s: float, cpu_s: float, gb: float) -> None:
        self.load_s.append(load_s)
        self.cpu_s.append(cpu_s)
        self.gb.append(gb)

    @property
    def costs(self) -> list[float]:
        return [cpu_s / gb for cpu_s, gb in zip(self.cpu_s, self.gb, strict=True)]

    @property
    def runs_before(self) -> int | None:
        """Return the number of runs before the first ones that agree, None if none agree yet."""
        costs = self.costs
        ends = range(self.rule.runs_min, len(costs) + 1)
        return next((end - self.rule.runs_min for end in ends if self.rule.agree(costs[:end])), None)

    def rows(self, of: tuple[str, str]) -> list[Row]:
        """Return the time and CPU time before the steady runs, or of all runs if none are."""
        before = self.runs_before
        state = State.NOT_STEADY if before is None else State.STEADY
        state = State.QUICK if self.rule.is_quick else state
        count = len(self.costs) if before is None else before
        runs = tuple(self.costs) if state is State.NOT_STEADY else ()
        load_s = self.probe_s + sum(self.load_s[:count])
        cpu_s = self.probe_cpu_s + sum(self.cpu_s[:count])
        return [
            Row(MEASUREMENT, WHAT, metric, "s", *of, (value,), state=state, runs=runs)
            for metric, value in (("time under load until steady", load_s), ("CPU until steady", cpu_s))
        ]


def warm_up(lab: Lab, servers: Sequence[Running]) -> list[Row]:
    """Load all servers in turns until each is steady, or has been under load for `warm_up_s`."""
    lab.say(f"warming up {', '.join(running.system.name for running in servers)}")
    warming, loads = {}, {}
    for running in servers:
        started_s, before_s = time.monotonic(), running.server.cpu_s()
        loads[running.of] = _MixedLoad(lab, running)
        probe_s, probe_cpu_s = time.monotonic() - started_s, running.server.cpu_s() - before_s
        warming[running.of] = WarmUp(lab.amounts.rule, probe_s, probe_cpu_s)
    while any(warm.runs_before is None and sum(warm.load_s) < lab.amounts.warm_up_s for warm in warming.values()):
        for of, load in loads.items():
            warming[of].add(*load.run())
    rows = []
    for of, warm in warming.items():
        costs = ", ".join(f"{cost:.2f}" for cost in warm.costs)
        lab.say(f"  {of[0]}: CPU s/GB of each run: {costs}")
        rows += warm.rows(of)
    return rows


class _MixedLoad:
    """Small messages to one partition, and 1 KB to 16, compressed where it can be: produced, then consumed."""

    def __init__(self, lab: Lab, running: Running) -> None:
        self._lab = lab
        self._running = running
        cells = (Cell(100, 1, "none"), Cell(1_000, 16, running.system.codecs[-1]))
        self._run_s = lab.amounts.rule.run_s / len(cells)
        self._counts = {cell: probe_count(lab, running, cell, self._run_s) for cell in cells}

    def run(self) -> tuple[float, float, float]:
        """Return the time under load, the CPU time of the server, and the GB produced and consumed."""
        load_s = total_cpu_s = gb = 0.0
        for cell, count in list(self._counts.items()):
            job = self._running.job(self._lab.topic(), **cell._asdict(), count=count)
            with self._lab.created(self._running, job):
                primed, _ = self._lab.prime(self._running, job)
                warm_page_cache(2 * count * cell.size)
                produced, cpu_s = self._running.spend("produce", job, load_processes(self._running.system))
                self._counts[cell] = next_count(produced, self._run_s, cell.size)
                stored = primed + produced.messages
                consumed, consume_cpu_s = self._running.spend("consume", replace(job, count=stored))
                load_s += produced.took_s + consumed.took_s
                total_cpu_s += cpu_s + consume_cpu_s
                gb += (produced.messages + consumed.messages) * cell.size / 1e9
        return load_s, total_cpu_s, gb
