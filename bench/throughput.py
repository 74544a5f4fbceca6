"""Throughput: 1 KB messages through a broker in its own process, with librdkafka as the load.

What counts is the broker's processor time per GB: the load takes the other core, and how fast the two go together says
more about the machine.
"""

import os
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.broker_process import TOPIC, BrokerProcess, producer, serving, warm_page_cache
from bench.rows import Row, seconds

_MESSAGE = os.urandom(1000)
_MESSAGES = 1_000_000
_GB = _MESSAGES * len(_MESSAGE) / 1e9
_CPU_S_PER_GB_MAX = 1.2


def run() -> list[Row]:
    warm_page_cache(4 << 30)
    rows = [Row("pwrite of 1 GB in 1 MiB pieces, for comparison", _raw_cpu_s(), "CPU s/GB")]
    for durability in ("fsync", "interval"):
        with serving("--durability", durability) as broker:
            rows += _measure(broker, durability)
    return rows


def _measure(broker: BrokerProcess, durability: str) -> list[Row]:
    load = producer(
        broker,
        **{"linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.messages": 500_000},
    )
    load.produce(TOPIC, b"the topic is made by the first")
    load.flush()
    before = broker.cpu_s()
    produce_s = seconds(lambda: _produce(load))
    produce_cpu_s = broker.cpu_s() - before
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    before = broker.cpu_s()
    fetch_s = seconds(lambda: _consume(consumer))
    fetch_cpu_s = broker.cpu_s() - before
    consumer.close()
    name = f"1 KB messages, durability {durability}"
    goal = _CPU_S_PER_GB_MAX
    return [
        Row(f"produce, {name}: broker CPU", produce_cpu_s / _GB, "s/GB", goal, higher_is_better=False),
        Row(f"produce, {name}: throughput", 1000 * _GB / produce_s, "MB/s"),
        Row(f"fetch, {name}: broker CPU", fetch_cpu_s / _GB, "s/GB", goal, higher_is_better=False),
        Row(f"fetch, {name}: throughput", 1000 * _GB / fetch_s, "MB/s"),
        Row(f"after both, {name}: RSS", broker.rss_mib(), "MiB"),
    ]


def _produce(load: Producer) -> None:
    failed: list[object] = []

    def acknowledged(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    for number in range(_MESSAGES):
        while True:
            try:
                load.produce(TOPIC, _MESSAGE, on_delivery=acknowledged)
                break
            except BufferError:
                load.poll(0.01)
        if number % 1000 == 0:
            load.poll(0)
    load.flush()
    assert not failed, failed[0]


def _consume(consumer: Consumer) -> None:
    left = _MESSAGES + 1
    while left:
        messages = consumer.consume(10_000, timeout=10)
        assert messages, f"{left} messages did not come"
        left -= len(messages)


def _raw_cpu_s() -> float:
    block = os.urandom(1 << 20)
    path = f"/var/tmp/logbrook-bench-{os.getpid()}"
    started = time.process_time()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        for position in range(0, 1_000_000_000, len(block)):
            os.pwrite(descriptor, block, position)
        return time.process_time() - started
    finally:
        os.close(descriptor)
        os.unlink(path)
