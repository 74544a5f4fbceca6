"""Throughput with transactions of 1,000 records, relative to plain produce.

With several producers, each writes to its own partition; a single producer waits for each commit, so it measures the
latency of a sync. Plain and transactional rounds take turns, and the median of the paired ratios counts.
"""

import os
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.broker_process import serving
from bench.rows import Row, seconds

RECORDS = 1_000
TRANSACTIONS = 40
_MESSAGE = os.urandom(1000)
_ROUNDS = 5
_WARM_UP_TRANSACTIONS = 10
_RATIO_MIN = 0.8
_TOPIC = "transactions"


def run() -> list[Row]:
    rows = []
    for durability in ("fsync", "interval"):
        for producers in (1, 8):
            with serving("--durability", durability) as broker:
                admin = AdminClient({"bootstrap.servers": broker.address})
                admin.create_topics([NewTopic(_TOPIC, producers)])[_TOPIC].result()
                name = f"{producers} producer{'s' if producers > 1 else ''}, durability {durability}"
                rows += _rows(paired_seconds(broker.address, _TOPIC, producers, _ROUNDS), name, producers)
    return rows


def paired_seconds(
    address: str, topic: str, producers: int, rounds: int, transactions: int = TRANSACTIONS
) -> list[tuple[float, float]]:
    """Return the seconds of each round for the same records: (plain, transactional)."""
    plain = [_producer(address) for _ in range(producers)]
    transactional = [_producer(address, **{"transactional.id": f"{topic}-{n}"}) for n in range(producers)]
    for producer in transactional:
        producer.init_transactions()
    with ThreadPoolExecutor(producers) as pool:

        def run_all(work: Callable[[Producer, str, int, int], None], loads: list[Producer], count: int) -> float:
            jobs = ([topic] * producers, range(producers), [count] * producers)
            return seconds(lambda: list(pool.map(work, loads, *jobs)))

        # The connections and producer ids are not part of a round.
        warm_up = min(transactions, _WARM_UP_TRANSACTIONS)
        counts = [warm_up, *[transactions] * rounds]
        times = [
            (run_all(_write_plainly, plain, count), run_all(_write_in_transactions, transactional, count))
            for count in counts
        ]
    return times[1:]


def _rows(times: list[tuple[float, float]], name: str, producers: int) -> list[Row]:
    count = producers * TRANSACTIONS
    ratio = statistics.median(plain_s / transactional_s for plain_s, transactional_s in times)
    best_s = min(transactional_s for _, transactional_s in times)
    return [
        Row(f"transactions of 1,000 records, {name}: of plain produce", ratio, "times", _RATIO_MIN),
        Row(f"transactions of 1,000 records, {name}: records", count * RECORDS / best_s, "/s"),
        Row(f"transactions of 1,000 records, {name}: transactions", count / best_s, "/s"),
    ]


def _producer(address: str, **settings: Any) -> Producer:
    """Return a producer whose batches hold a whole transaction, just below the maximum message size."""
    batches = {"linger.ms": 5, "batch.size": 1_040_000, "message.max.bytes": 1_040_000}
    return Producer({"bootstrap.servers": address, "acks": "all", "log_level": 2, **batches, **settings})


def _write_plainly(load: Producer, topic: str, partition: int, transactions: int) -> None:
    for _ in range(transactions):
        _write(load, topic, partition)
    assert load.flush() == 0


def _write_in_transactions(load: Producer, topic: str, partition: int, transactions: int) -> None:
    for _ in range(transactions):
        load.begin_transaction()
        _write(load, topic, partition)
        load.commit_transaction()


def _write(load: Producer, topic: str, partition: int) -> None:
    for _ in range(RECORDS):
        while True:
            try:
                load.produce(topic, _MESSAGE, partition=partition)
                break
            except BufferError:
                load.poll(0.01)
    load.poll(0)
