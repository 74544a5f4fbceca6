"""Latency of acknowledgements at a steady rate, with acks=all and an idempotent producer.

An idempotent producer has at most five requests in flight, the default of current Kafka clients. `linger.ms` is 0, so
that the broker is measured and not the client's delay.
"""

import os
import statistics
import tempfile
import time

from bench import librdkafka
from bench.broker_process import TOPIC, BrokerProcess, serving
from bench.rows import Row

_MESSAGE = os.urandom(1000)
_POOL = librdkafka.Pool([_MESSAGE] * 1_000, partitions=1)
_SECONDS = 4.0
_ROUNDS = 3
_RATES = (1_000, 10_000)
_P99_MS_MAX = 5.0
_QUANTILES = ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))


def run() -> list[Row]:
    rows = [Row("fdatasync after a 4 KiB pwrite, p99, for comparison", _raw_sync_ms(), "ms")]
    for durability in ("fsync", "interval"):
        with serving("--durability", durability) as broker:
            _latencies_ms(broker, _RATES[0], 1.0)
            for rate in _RATES:
                rows += _measure(broker, durability, rate)
    return rows


def _measure(broker: BrokerProcess, durability: str, rate: int) -> list[Row]:
    """Return the median over the rounds of each quantile, so that one disturbance of the machine does not count."""
    rounds = [_latencies_ms(broker, rate, _SECONDS) for _ in range(_ROUNDS)]
    rows = []
    for quantile, name in _QUANTILES:
        value = statistics.median(latencies[int(len(latencies) * quantile)] for latencies in rounds)
        goal = _P99_MS_MAX if name == "p99" else None
        title = f"acks=all, durability {durability}, {rate:,} messages/s: {name}"
        rows.append(Row(title, value, "ms", goal, higher_is_better=False))
    return rows


def _latencies_ms(broker: BrokerProcess, rate: int, duration_s: float) -> list[float]:
    latencies, _ = librdkafka.latencies_ms(broker.address, TOPIC, _POOL, int(rate * duration_s), rate)
    return sorted(latencies)


def _raw_sync_ms() -> float:
    latencies_ms = []
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        os.pwrite(file.fileno(), bytes(4 << 20), 0)
        os.fdatasync(file.fileno())
        for number in range(1000):
            started = time.perf_counter()
            os.pwrite(file.fileno(), _MESSAGE, 4096 * number)
            os.fdatasync(file.fileno())
            latencies_ms.append(1000 * (time.perf_counter() - started))
    return sorted(latencies_ms)[990]
