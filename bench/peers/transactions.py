"""How much of plain produce is left when every 1,000 records are a transaction, see `bench/transactions.py`."""

from collections.abc import Iterator
from functools import partial

from bench.peers.lab import Lab, promised
from bench.peers.results import Row, Samples
from bench.peers.system import Promise, System, Variant
from bench.transactions import RECORDS, TRANSACTIONS

_PRODUCERS = (1, 8)


def run(lab: Lab) -> Iterator[Row]:
    for promise in (Promise.LESS, Promise.DISK):
        samples = Samples("transactions")
        with lab.serving(partial(_if_it_has_them, promise)) as everyone:
            for _ in lab.rounds(f"transactions, {promise}", samples, warm_ups=1):
                for running in everyone:
                    for producers in _PRODUCERS:
                        job = running.job(lab.topic(), partitions=producers)
                        with lab.created(running, job):
                            found = running.call("transactions", job)
                        what = f"{producers} producer{'s' if producers > 1 else ''}, {RECORDS:,} records of 1 KB each"
                        ratio = found["plain_s"] / found["transactional_s"]
                        per_s = producers * TRANSACTIONS / found["transactional_s"]
                        samples.add(
                            running.of, what, "throughput, of plain produce", "times", ratio, higher_is_better=True
                        )
                        samples.add(running.of, what, "transactions", "/s", per_s, higher_is_better=True)
        yield from samples.rows()


def _if_it_has_them(promise: Promise, system: System) -> Variant | None:
    return promised(promise)(system) if system.has_transactions else None
