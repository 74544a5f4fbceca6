"""Throughput and CPU of a broker in its own process with 1 KB messages, with librdkafka as the load.

The goal is broker CPU time per GB: the load uses the other core, so the throughput depends more on the machine.
"""

import os
import time

from bench import librdkafka
from bench.broker_process import TOPIC, BrokerProcess, serving, warm_page_cache
from bench.rows import Row, seconds

_MESSAGE = os.urandom(1000)
_MESSAGES = 1_000_000
_POOL = librdkafka.Pool([_MESSAGE] * 1_000, partitions=1)
_QUEUED_MAX = 500_000
_WAIT_S_MAX = 10.0
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
    settings = {"bootstrap.servers": broker.address, "queue.buffering.max.messages": _QUEUED_MAX}
    with librdkafka.producing(settings, TOPIC) as load:
        before = broker.cpu_s()
        produce_s = seconds(lambda: _produce(load))
        produce_cpu_s = broker.cpu_s() - before
    with librdkafka.consuming(broker.address, TOPIC, partitions=1) as consumer:
        before = broker.cpu_s()
        fetch_s = seconds(lambda: consumer.consume(_MESSAGES, _WAIT_S_MAX))
        fetch_cpu_s = broker.cpu_s() - before
    name = f"1 KB messages, durability {durability}"
    goal = _CPU_S_PER_GB_MAX
    return [
        Row(f"produce, {name}: broker CPU", produce_cpu_s / _GB, "s/GB", goal, higher_is_better=False),
        Row(f"produce, {name}: throughput", 1000 * _GB / produce_s, "MB/s"),
        Row(f"fetch, {name}: broker CPU", fetch_cpu_s / _GB, "s/GB", goal, higher_is_better=False),
        Row(f"fetch, {name}: throughput", 1000 * _GB / fetch_s, "MB/s"),
        Row(f"after both, {name}: RSS", broker.rss_mib(), "MiB"),
    ]


def _produce(load: librdkafka.Producer) -> None:
    for _ in range(_MESSAGES // len(_POOL)):
        load.produce(_POOL, len(_POOL))
    load.flush()


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
