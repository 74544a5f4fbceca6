"""Accuracy of quotas with librdkafka, which leaves the throttling to the broker, and the time to count a request."""

import asyncio
import time

from confluent_kafka import Consumer, TopicPartition

from bench.broker_process import TOPIC, BrokerProcess, producer, serving
from bench.rows import Row, median_seconds
from logbrook.client import Connection
from logbrook.config import NetworkConfig
from logbrook.core.client_quotas import ClientQuotas, QuotaAlteration
from logbrook.ports import SystemClock
from logbrook.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.server.api import RequestContext
from logbrook.server.probe import ServerProbe
from logbrook.server.security.quotas import QuotaEnforcement
from logbrook.server.session import ConnectionSession

_RATE = 10_000_000
_AHEAD_S = 0.5
_MEASURED_S = 3.0
_RECORD_BYTES = 10_000
_DEVIATION_MAX = 5.0
_COUNTED = 20_000


def run() -> list[Row]:
    with serving("--network-quota-windows", "2", "--network-quota-window-ms", str(int(_AHEAD_S * 1000))) as broker:
        producing = _deviation(_produce(broker))
        fetching = _deviation(_fetch(broker))
    return [
        Row("produce with a quota of 10 MB/s: deviation", producing, "%", _DEVIATION_MAX, higher_is_better=False),
        Row("fetch with a quota of 10 MB/s: deviation", fetching, "%", _DEVIATION_MAX, higher_is_better=False),
        Row("counting a produce request with quotas of bytes and time", _counting_us(), "µs"),
    ]


def _deviation(measured: tuple[int, float]) -> float:
    """Return by how many percent the rate was off, beyond what a client may be ahead."""
    size, elapsed_s = measured
    return 100 * abs((size - _RATE * _AHEAD_S) / elapsed_s / _RATE - 1)


def _produce(broker: BrokerProcess) -> tuple[int, float]:
    """Return the bytes that were sent, and the time that it took."""
    load = producer(broker, **{"linger.ms": 0, "batch.size": 100_000})
    load.produce(TOPIC, b"creates the topic")
    load.flush()
    _limit(broker, "producer_byte_rate", _RATE)
    count = int(_RATE * (_MEASURED_S + _AHEAD_S) / _RECORD_BYTES)
    started_s = time.perf_counter()
    for _ in range(count):
        load.produce(TOPIC, bytes(_RECORD_BYTES))
    load.flush()
    elapsed_s = time.perf_counter() - started_s
    _limit(broker, "producer_byte_rate", None)
    return count * _RECORD_BYTES, elapsed_s


def _fetch(broker: BrokerProcess) -> tuple[int, float]:
    _limit(broker, "consumer_byte_rate", _RATE)
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "bench", "fetch.message.max.bytes": 500_000})
    consumer.assign([TopicPartition(TOPIC, 0, 1)])
    size, total = 0, int(_RATE * (_MEASURED_S + _AHEAD_S))
    started_s = 0.0
    while size < total:
        for message in consumer.consume(100, 0.1):
            size += len(message.value() or b"")
            started_s = started_s or time.perf_counter()
    elapsed_s = time.perf_counter() - started_s
    consumer.close()
    return size, elapsed_s


def _limit(broker: BrokerProcess, key: str, rate: float | None) -> None:
    entity = EntityData(entity_type="client-id", entity_name=None)
    change = OpData(key=key, value=rate or 0.0, remove=rate is None)
    request = AlterClientQuotasRequest(entries=[EntryData(entity=[entity], ops=[change])])
    with Connection("127.0.0.1", broker.port) as connection:
        (result,) = connection.request(request, AlterClientQuotasResponse).entries
    if result.error_code:
        raise RuntimeError(f"the quota was not changed: {result.error_message}")


def _counting_us() -> float:
    """Return the time that the quotas of one client add to each of its requests."""
    quotas = ClientQuotas()
    changes = [("producer_byte_rate", 1e12), ("request_percentage", 1e6)]
    for key, value in quotas.alter([QuotaAlteration([("client-id", None)], changes)]).records:
        quotas.replay(key, value)
    loop = asyncio.new_event_loop()
    enforcement = QuotaEnforcement(quotas, NetworkConfig(), loop, SystemClock(), ServerProbe())
    context = RequestContext(9, "client", ConnectionSession("127.0.0.1"))
    response = ProduceResponse()

    def count() -> None:
        for _ in range(_COUNTED):
            usage = enforcement.begin(context, 1_000)
            usage.busy_s += 1e-6
            enforcement.finish(usage, response)
            enforcement.count_time(usage)

    seconds = median_seconds(count, 5)
    loop.close()
    return 1e6 * seconds / _COUNTED
