"""Many small requests: single-record Produce requests from 8 and 200 connections, one in flight on each."""

from collections.abc import Iterator
from dataclasses import replace

from bench.peers.lab import Lab, Running
from bench.peers.load import Spent
from bench.peers.results import Row
from bench.peers.steady import Measured, Run

CONNECTIONS = (8, 200)
_SIZE = 100
_REQUESTS = 4_000


def run(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    for connections in CONNECTIONS:
        lines = {
            running.of: _SmallRequests(lab, running, connections)
            for running in servers
            if running.system.load == "kafka"
        }
        what = f"Produce of one 100 B record, {connections} connections"
        yield from lab.steady("small_requests", what, {of: line.run_once for of, line in lines.items()})


class _SmallRequests:
    def __init__(self, lab: Lab, running: Running, connections: int) -> None:
        self._lab = lab
        self._running = running
        self._connections = connections
        self._count = 0

    def run_once(self) -> Run:
        if not self._count:
            self._count = _REQUESTS
            self._run()
        spent = self._run()
        per_s = spent.messages / spent.took_s
        cpu_us = 1e6 * spent.server_cpu_s / spent.messages
        return [
            Measured("requests", "/s", per_s, higher_is_better=True, decides=True),
            Measured("CPU of the server per request", "µs", cpu_us, decides=True),
            Measured("CPU of the load per request", "µs", 1e6 * spent.cpu_s / spent.messages),
        ]

    def _run(self) -> Spent:
        job = self._running.job(self._lab.topic(), size=_SIZE, connections=self._connections)
        job = replace(job, pid=self._running.server.pid, count=self._count)
        self._running.call("ready", job)
        with self._lab.created(self._running, job):
            spent, _ = self._running.spend("small_requests", job)
        self._count = max(self._connections, round(spent.messages / spent.took_s * self._lab.amounts.rule.run_s))
        return spent
