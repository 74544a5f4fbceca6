"""Rebalances of consumer groups, and transactions, for the systems that have them: Logbrook and Kafka."""

from collections.abc import Iterator

from bench.peers.lab import Lab, Running
from bench.peers.results import Row
from bench.peers.steady import Measured, Run
from bench.transactions import RECORDS, TRANSACTIONS

_GROUP_PARTITIONS = 20
_REBALANCES = {
    "together": "ten members start together",
    "left": "one of ten leaves",
    "joined": "a tenth joins nine",
}
_PRODUCERS = (1, 8)


def measure_rebalances(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    """Measure how long a group of ten members takes until every partition is assigned.

    Groups of Redis and NATS share messages, not partitions, so they do not rebalance.
    """
    if lab.is_measured_by_all("rebalance"):
        return
    lab.check_time()
    samples = lab.samples("rebalance")
    for _ in lab.rounds("consumer groups of ten members"):
        for running in servers:
            if not running.system.has_rebalances:
                continue
            job = running.job(lab.topic(), partitions=_GROUP_PARTITIONS)
            with lab.created(running, job):
                took_s = running.call("rebalance", job)
            for rebalance, what in _REBALANCES.items():
                samples.add(running.of, what, "until all is shared", "s", took_s[rebalance])
    yield from samples.rows()


def measure_transactions(lab: Lab, servers: list[Running]) -> Iterator[Row]:
    """Measure transactions of 1,000 records as a share of plain produce, see `bench/transactions.py`."""
    for producers in _PRODUCERS:
        lines = {
            running.of: _TransactionLine(lab, running, producers)
            for running in servers
            if running.system.has_transactions
        }
        what = f"{producers} producer{'s' if producers > 1 else ''}, {RECORDS:,} records of 1 KB each"
        yield from lab.steady("transactions", what, {of: line.run_once for of, line in lines.items()})


class _TransactionLine:
    """Runs in which each producer commits as many transactions as fit, and sends the same records without."""

    def __init__(self, lab: Lab, running: Running, producers: int) -> None:
        self._lab = lab
        self._running = running
        self._producers = producers
        self._count = 0

    def run_once(self) -> Run:
        if not self._count:
            self._count = TRANSACTIONS
            self._run()
        return self._run()

    def _run(self) -> Run:
        job = self._running.job(self._lab.topic(), partitions=self._producers, count=self._count)
        with self._lab.created(self._running, job):
            times = self._running.call("transactions", job)
        per_s = self._producers * self._count / times["transactional_s"]
        self._count = max(1, round(per_s / self._producers * self._lab.amounts.rule.run_s))
        ratio = times["plain_s"] / times["transactional_s"]
        return [
            Measured("transactions", "/s", per_s, higher_is_better=True, decides=True),
            Measured("throughput, of plain produce", "times", ratio, higher_is_better=True),
        ]
