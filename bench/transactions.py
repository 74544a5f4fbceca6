"""Transactions: how much of plain produce is left when every 1,000 records are a transaction.

Several producers write at a time, each to a partition of its own, as they do where it matters: one alone waits for each
commit and measures how long a sync takes. Both kinds take turns, and the median of the paired ratios counts.
"""

import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.broker_process import BrokerProcess, producer, serving
from bench.rows import Row, seconds

_MESSAGE = os.urandom(1000)
_RECORDS = 1_000
_TRANSACTIONS = 40
_ROUNDS = 5
_RATIO_MIN = 0.8
_TOPIC = "transactions"


def run() -> list[Row]:
    rows = []
    for durability in ("fsync", "interval"):
        for producers in (1, 8):
            with serving("--durability", durability) as broker:
                rows += _measure(broker, durability, producers)
    return rows


def _measure(broker: BrokerProcess, durability: str, producers: int) -> list[Row]:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(_TOPIC, producers)])[_TOPIC].result()
    # A transaction is one batch, as much as the broker takes.
    settings = {"linger.ms": 5, "batch.size": 1_040_000, "message.max.bytes": 1_040_000}
    plain = [producer(broker, **settings) for _ in range(producers)]
    transactional = [producer(broker, **settings, **{"transactional.id": f"bench-{n}"}) for n in range(producers)]
    for one in transactional:
        one.init_transactions()
    with ThreadPoolExecutor(producers) as pool:

        def all_of(work: "partial[None]", loads: list[Producer]) -> None:
            list(pool.map(work, loads, range(producers)))

        write_plainly, write_in_transactions = partial(_write_plainly), partial(_write_in_transactions)
        all_of(write_plainly, plain)
        all_of(write_in_transactions, transactional)
        times = [
            (
                seconds(partial(all_of, write_plainly, plain)),
                seconds(partial(all_of, write_in_transactions, transactional)),
            )
            for _ in range(_ROUNDS)
        ]
    count = producers * _TRANSACTIONS * _RECORDS
    name = f"{producers} producer{'s' if producers > 1 else ''}, durability {durability}"
    ratio = statistics.median(plain_s / transactional_s for plain_s, transactional_s in times)
    best_s = min(transactional_s for _, transactional_s in times)
    return [
        Row(f"transactions of 1,000 records, {name}: of plain produce", ratio, "times", _RATIO_MIN),
        Row(f"transactions of 1,000 records, {name}: records", count / best_s, "/s"),
        Row(f"transactions of 1,000 records, {name}: transactions", count / _RECORDS / best_s, "/s"),
    ]


def _write_plainly(load: Producer, partition: int) -> None:
    for _ in range(_TRANSACTIONS):
        _write(load, partition)
    assert load.flush() == 0


def _write_in_transactions(load: Producer, partition: int) -> None:
    for _ in range(_TRANSACTIONS):
        load.begin_transaction()
        _write(load, partition)
        load.commit_transaction()


def _write(load: Producer, partition: int) -> None:
    for _ in range(_RECORDS):
        while True:
            try:
                load.produce(_TOPIC, _MESSAGE, partition=partition)
                break
            except BufferError:
                load.poll(0.01)
    load.poll(0)
