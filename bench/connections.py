"""Connections: 5,000 that do nothing and 200 that work, at the same time, on one broker."""

import resource
import socket
import statistics
import struct
import time
from contextlib import ExitStack
from threading import Thread

from bench.broker_process import TOPIC, BrokerProcess, producer, serving
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
        with serving() as broker:
            return _measure(broker)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _measure(broker: BrokerProcess) -> list[Row]:
    load = producer(broker)
    load.produce(TOPIC, b"the topic is made by the first")
    load.flush()
    at_rest_mib = broker.rss_mib()
    with ExitStack() as stack:
        for _ in range(_IDLE):
            _ask(stack.enter_context(socket.create_connection(("127.0.0.1", broker.port))))
        idle_kib = 1024 * (broker.rss_mib() - at_rest_mib) / _IDLE
        busy = [stack.enter_context(Connection("127.0.0.1", broker.port)) for _ in range(_BUSY)]
        latencies = _work(busy)
        busy_mib = broker.rss_mib()
    return [
        Row(f"memory per idle connection, {_IDLE:,} of them", idle_kib, "KiB"),
        Row(f"RSS with {_IDLE:,} idle and {_BUSY} busy connections", busy_mib, "MiB"),
        Row(f"produce of 1 KB with acks=all, {_BUSY} at a time beside {_IDLE:,} idle: p50", _at(latencies, 0.5), "ms"),
        Row(f"produce of 1 KB with acks=all, {_BUSY} at a time beside {_IDLE:,} idle: p99", _at(latencies, 0.99), "ms"),
    ]


def _ask(connection: socket.socket) -> None:
    """A connection that asked once and is quiet since, as a client's are."""
    connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
    assert connection.recv(4)


def _work(connections: list[Connection]) -> list[float]:
    """Each round all connections have a request under way; their answers are taken in turn."""
    batch = bytes(build_batch([Record(value=bytes(1000), timestamp=0)]))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    latencies: list[float] = []

    def drive(mine: list[Connection]) -> None:
        for _ in range(_ROUNDS):
            sent = [(time.perf_counter(), one, one.send(request, ProduceResponse, 9)) for one in mine]
            for started, one, ticket in sent:
                one.receive(ticket)
                latencies.append(1000 * (time.perf_counter() - started))

    threads = [Thread(target=drive, args=(connections[number::_THREADS],)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(latencies) == _ROUNDS * len(connections)
    return sorted(latencies)


def _at(latencies: list[float], quantile: float) -> float:
    return statistics.quantiles(latencies, n=1000)[round(1000 * quantile) - 1]
