"""Start-up time and idle memory of a broker, and start-up time of the in-process broker for tests."""

import statistics
import tempfile
import time

from confluent_kafka import Producer

from bench.broker_process import BrokerProcess
from bench.rows import Row
from logbrook import Broker
from logbrook.client import Client

_ROUNDS = 7
_PARTITIONS = 1_000


def run() -> list[Row]:
    empty_s, rss_mib = _start_empty()
    return [
        Row("start to first answer, empty directory", empty_s, "s", 0.5, higher_is_better=False),
        Row("RSS at rest", rss_mib, "MiB", 60, higher_is_better=False),
        Row(f"start to first answer, {_PARTITIONS:,} partitions", _start_full(), "s", 1.0, higher_is_better=False),
        Row("in-process: start to first acknowledged produce", _in_process_ms(), "ms", 150, higher_is_better=False),
    ]


def _start_empty() -> tuple[float, float]:
    times, sizes = [], []
    for _ in range(_ROUNDS):
        with tempfile.TemporaryDirectory() as data:
            broker = BrokerProcess(data)
            times.append(broker.start_s)
            sizes.append(broker.rss_mib())
            broker.stop()
    return statistics.median(times), statistics.median(sizes)


def _start_full() -> float:
    with tempfile.TemporaryDirectory() as data:
        broker = BrokerProcess(data)
        with Client(broker.address) as client:
            client.create_topic("many", _PARTITIONS)
        broker.stop()
        times = []
        for _ in range(_ROUNDS):
            broker = BrokerProcess(data)
            times.append(broker.start_s)
            broker.stop()
    return statistics.median(times)


def _in_process_ms() -> float:
    times = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        with Broker(topics=["first"]) as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "log_level": 2})
            producer.produce("first", b"hello")
            assert producer.flush(10) == 0
            times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)
