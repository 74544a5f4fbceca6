"""Rebalances of consumer groups, and transactions, for the systems that have them: Logbrook and Kafka."""

from collections.abc import Iterator
from functools import partial

from bench.peers.lab import Lab, by_default, promised
from bench.peers.results import Row, Samples
from bench.peers.system import Promise, System, Variant
from bench.transactions import RECORDS, TRANSACTIONS

_GROUP_PARTITIONS = 20
_REBALANCES = {
    "together": "ten members start together",
    "left": "one of ten leaves",
    "joined": "a tenth joins nine",
}
_PRODUCERS = (1, 8)


def measure_rebalances(lab: Lab) -> Iterator[Row]:
    """Measure how long a group of ten members takes until every partition is assigned."""
    samples = Samples("rebalance")
    with lab.serving(_with_rebalances) as servers:
        for _ in lab.rounds("consumer groups of ten members", samples):
            for running in servers:
                job = running.job(lab.topic(), partitions=_GROUP_PARTITIONS)
                with lab.created(running, job):
                    took_s = running.call("rebalance", job)
                for rebalance, what in _REBALANCES.items():
                    samples.add(running.of, what, "until all is shared", "s", took_s[rebalance])
    yield from samples.rows()


def measure_transactions(lab: Lab) -> Iterator[Row]:
    """Measure transactions of 1,000 records as a share of plain produce, see `bench/transactions.py`."""
    for promise in lab.promises:
        samples = Samples("transactions")
        with lab.serving(partial(_with_transactions, promise)) as servers:
            for _ in lab.rounds(f"transactions, {promise}", samples, warm_ups=1):
                for running in servers:
                    for producers in _PRODUCERS:
                        job = running.job(lab.topic(), partitions=producers)
                        with lab.created(running, job):
                            times = running.call("transactions", job)
                        what = f"{producers} producer{'s' if producers > 1 else ''}, {RECORDS:,} records of 1 KB each"
                        ratio = times["plain_s"] / times["transactional_s"]
                        per_s = producers * TRANSACTIONS / times["transactional_s"]
                        samples.add(
                            running.of, what, "throughput, of plain produce", "times", ratio, higher_is_better=True
                        )
                        samples.add(running.of, what, "transactions", "/s", per_s, higher_is_better=True)
        yield from samples.rows()


def _with_rebalances(system: System) -> Variant | None:
    """Groups of Redis and NATS share messages, not partitions, so they do not rebalance."""
    return by_default(system) if system.has_rebalances else None


def _with_transactions(promise: Promise, system: System) -> Variant | None:
    return promised(promise)(system) if system.has_transactions else None
