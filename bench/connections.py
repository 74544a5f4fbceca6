"""One broker with 5,000 idle and 200 busy connections at the same time: memory and latency."""

import resource
import socket
import statistics
import time
from contextlib import ExitStack
from threading import Thread

from bench.broker_process import API_VERSIONS_REQUEST, TOPIC, BrokerProcess, producer, serving
from bench.rows import Row
from logbrook.client import Connection
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

_IDLE = 5_000
_BUSY = 200
_ROUNDS = 20
_THREADS = 4


def run() -> list[Row]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with serving("--network-connections-per-address-max", "10000") as broker:
            return _measure(broker)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _measure(broker: BrokerProcess) -> list[Row]:
    load = producer(broker)
    load.produce(TOPIC, b"creates the topic")
    load.flush()
    at_rest_mib = broker.rss_mib()
    with ExitStack() as stack:
        for _ in range(_IDLE):
            _ping(stack.enter_context(socket.create_connection(("127.0.0.1", broker.port))))
        idle_kib = 1024 * (broker.rss_mib() - at_rest_mib) / _IDLE
        busy = [stack.enter_context(Connection("127.0.0.1", broker.port)) for _ in range(_BUSY)]
        latencies = _produce(busy)
        busy_mib = broker.rss_mib()
    return [
        Row(f"memory per idle connection, {_IDLE:,} of them", idle_kib, "KiB"),
        Row(f"RSS with {_IDLE:,} idle and {_BUSY} busy connections", busy_mib, "MiB"),
        Row(
            f"produce of 1 KB with acks=all, {_BUSY} at a time beside {_IDLE:,} idle: p50",
            _quantile(latencies, 0.5),
            "ms",
        ),
        Row(
            f"produce of 1 KB with acks=all, {_BUSY} at a time beside {_IDLE:,} idle: p99",
            _quantile(latencies, 0.99),
            "ms",
        ),
    ]


def _ping(connection: socket.socket) -> None:
    """Send one request, as a client does before its connection becomes idle."""
    connection.sendall(API_VERSIONS_REQUEST)
    assert connection.recv(4)


def _produce(connections: list[Connection]) -> list[float]:
    """Return sorted latencies in ms. In each round every connection has one request in flight."""
    batch = bytes(build_batch([Record(value=bytes(1000), timestamp=0)]))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    latencies: list[float] = []

    def run_rounds(share: list[Connection]) -> None:
        for _ in range(_ROUNDS):
            in_flight = [
                (time.perf_counter(), connection, connection.send(request, ProduceResponse, 9)) for connection in share
            ]
            for started, connection, ticket in in_flight:
                connection.receive(ticket)
                latencies.append(1000 * (time.perf_counter() - started))

    threads = [Thread(target=run_rounds, args=(connections[number::_THREADS],)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(latencies) == _ROUNDS * len(connections)
    return sorted(latencies)


def _quantile(latencies: list[float], quantile: float) -> float:
    return statistics.quantiles(latencies, n=1000)[round(1000 * quantile) - 1]
