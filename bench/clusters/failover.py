"""Writes after a fault of a leader, as one client with default settings sees them.

A producer of librdkafka, with acks=all and otherwise its defaults, sends messages at a steady rate. Then the leader of
partition 0 is killed, paused, cut off or stopped. For each partition the longest time between two acknowledgements
counts, and of all messages the longest time from send to acknowledgement. Beside it a new client tries to write to
partition 0 of another leader, again and again, with connections of its own: the time until that is acknowledged
depends on the cluster alone, not on how long a client waits for an answer. In the end everything is read back: an
acknowledged message that is missing is lost.
"""

import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from threading import Event, Thread
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.clusters.nodes import BenchCluster, ClusterError, wait_until
from logbrook.client.connection import Connection
from logbrook.client.errors import ClientError
from logbrook.config.network import split_address
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

RATE = 1_000
_SIZE = 100
_TICK_S = 0.001
_BEFORE_S = 2.0
_AFTER_S = 1.0
# librdkafka gives a request up after a minute.
_RECOVERY_S_MAX = 180.0
_PROBE_S = 0.005
_PROBE_TIMEOUT_S = 5.0
_READ_S_MAX = 60.0
_PRODUCE_VERSION = 9
_METADATA_VERSION = 9
_MIN_INSYNC = {"min.insync.replicas": "2"}


class Fault(StrEnum):
    KILL = "SIGKILL of a leader"
    PAUSE = "SIGSTOP of a leader"
    CUT = "cut of a leader's network"
    STOP = "SIGTERM of a leader"


@dataclass(frozen=True)
class Outage:
    """A measured fault. Times are in seconds."""

    # The longest time between two acknowledgements of a partition.
    gap_s: float
    # The longest time from send to acknowledgement.
    latency_s: float
    # From the fault until a new client's write to another leader was acknowledged.
    new_client_s: float
    acknowledged: int
    lost: int
    repeated: int


def measure(cluster: BenchCluster, fault: Fault, topic: str, partitions: int, settings: dict[str, str]) -> Outage:
    """Create the topic, inject the fault, and end it. The cluster is complete again afterwards. Raises ClusterError."""
    cluster.create_topic(topic, partitions, {**_MIN_INSYNC, **settings})
    writer = Writer(cluster.bootstrap_servers, topic, partitions)
    victim = cluster.leader_of(topic, 0)
    Event().wait(_BEFORE_S)
    probe = Probe(cluster, topic, victim)
    fault_s = time.monotonic()
    probe.start(fault_s)
    _inject(cluster, fault, victim)
    try:
        writer.wait_until_recovered(fault_s)
        Event().wait(_AFTER_S)
        new_client_s = probe.result()
    finally:
        writer.stop()
        _end(cluster, fault, victim)
    cluster.wait_for_nodes()
    cluster.wait_until_in_sync(topic, partitions)
    stored = _read(cluster, topic, partitions)
    missing = [number for number in writer.acknowledged() if number not in stored]
    outage = Outage(
        gap_s=writer.longest_gap_s(fault_s),
        latency_s=writer.longest_latency_s(),
        new_client_s=new_client_s,
        acknowledged=len(writer.acknowledged()),
        lost=len(missing),
        repeated=sum(count - 1 for count in stored.values()),
    )
    cluster.delete_topic(topic)
    return outage


class Writer:
    """Sends numbered messages to the partitions in turn, from its construction to `stop`, in a thread of its own."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 2})
        self._topic = topic
        self._partitions = partitions
        self._sent_s: list[float] = []
        self._acknowledged_s: dict[int, float] = {}
        self._failed: list[KafkaError] = []
        self._is_stopped = Event()
        self._thread = Thread(target=self._run)
        # The connection and the metadata are not part of the measurement.
        self._send(0)
        self._producer.flush()
        self._thread.start()

    def wait_until_recovered(self, fault_s: float) -> None:
        """Wait until every partition has acknowledged a message that was sent after the fault. Raises ClusterError."""
        first = len(self._sent_s)

        def is_recovered() -> bool:
            written = {number % self._partitions for number in [*self._acknowledged_s] if number >= first}
            return len(written) == self._partitions or bool(self._failed)

        wait_until(is_recovered, f"every partition is written to after a fault at {fault_s}", _RECOVERY_S_MAX)

    def stop(self) -> None:
        """Send no more, and wait until everything is acknowledged. Raises ClusterError."""
        self._is_stopped.set()
        self._thread.join()
        remaining = self._producer.flush(_RECOVERY_S_MAX)
        if remaining or self._failed:
            error = self._failed[0] if self._failed else "no answer"
            raise ClusterError(f"{remaining + len(self._failed)} messages were not acknowledged: {error}")

    def acknowledged(self) -> list[int]:
        return sorted(self._acknowledged_s)

    def longest_gap_s(self, since_s: float) -> float:
        """Return the longest time between acknowledgements of a partition, of which the second is after `since_s`."""
        gaps = []
        for partition in range(self._partitions):
            times = sorted(
                at_s for number, at_s in self._acknowledged_s.items() if number % self._partitions == partition
            )
            gaps += [after - before for before, after in pairwise(times) if after >= since_s]
        return max(gaps)

    def longest_latency_s(self) -> float:
        return max(at_s - self._sent_s[number] for number, at_s in self._acknowledged_s.items() if number)

    def _run(self) -> None:
        started_s, first = time.monotonic(), len(self._sent_s)
        while not self._is_stopped.is_set():
            due = first + int((time.monotonic() - started_s) * RATE)
            for number in range(len(self._sent_s), due):
                self._send(number)
            self._producer.poll(_TICK_S)

    def _send(self, number: int) -> None:
        self._sent_s.append(time.monotonic())

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._failed.append(error)
            else:
                self._acknowledged_s[number] = time.monotonic()

        value = (b"%d" % number).ljust(_SIZE, b" ")
        while True:
            try:
                self._producer.produce(self._topic, value, partition=number % self._partitions, on_delivery=report)
                return
            except BufferError:
                # The queue of unacknowledged messages is full: like an application, wait until it has room.
                self._producer.poll(_TICK_S)


class Probe:
    """A new client that writes to partition 0, until a leader other than `victim` has acknowledged a record."""

    def __init__(self, cluster: BenchCluster, topic: str, victim: int) -> None:
        self._addresses = [address for node, address in cluster.address_of.items() if node != victim]
        self._topic = topic
        self._victim = victim
        self._took_s: float | None = None
        self._is_abandoned = Event()
        self._thread: Thread | None = None
        self._connections: dict[str, Connection] = {}

    def start(self, fault_s: float) -> None:
        self._thread = Thread(target=self._run, args=(fault_s,))
        self._thread.start()

    def result(self) -> float:
        """Raises ClusterError."""
        assert self._thread is not None
        self._thread.join(_RECOVERY_S_MAX)
        self._is_abandoned.set()
        self._thread.join()
        if self._took_s is None:
            raise ClusterError("no other leader has acknowledged a write of a new client")
        return self._took_s

    def _run(self, fault_s: float) -> None:
        try:
            while self._took_s is None and not self._is_abandoned.wait(_PROBE_S):
                for address in self._addresses:
                    with suppress(ClientError, ProtocolError):
                        leader = self._leader(address)
                        if leader is not None and self._is_written(leader):
                            self._took_s = time.monotonic() - fault_s
                            return
        finally:
            for connection in self._connections.values():
                connection.close()

    def _leader(self, address: str) -> str | None:
        """Return the leader's address, None if there is no other one yet. Raises ClientError or ProtocolError."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        metadata = self._connected(address).request(request, MetadataResponse, _METADATA_VERSION)
        (topic,) = metadata.topics or ()
        leader = next((part.leader_id for part in topic.partitions if part.partition_index == 0), -1)
        if leader in (self._victim, -1):
            return None
        return next((f"{node.host}:{node.port}" for node in metadata.brokers if node.node_id == leader), None)

    def _is_written(self, address: str) -> bool:
        """Raises ClientError or ProtocolError."""
        data = PartitionProduceData(index=0, records=build_batch([Record(value=b"probe")]))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=int(_PROBE_TIMEOUT_S * 1000),
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )
        response = self._connected(address).request(request, ProduceResponse, _PRODUCE_VERSION)
        return not response.responses[0].partition_responses[0].error_code

    def _connected(self, address: str) -> Connection:
        """Raises ClientError."""
        connection = self._connections.get(address)
        if connection is None or connection.is_closed:
            host, port = split_address(address)
            connection = self._connections[address] = Connection(host, port, timeout_s=_PROBE_TIMEOUT_S)
        return connection


def _inject(cluster: BenchCluster, fault: Fault, victim: int) -> None:
    if fault is Fault.CUT:
        assert cluster.network is not None, "a node of a cluster with a network can be cut off"
        cluster.network.cut(victim)
    else:
        signals = {Fault.KILL: signal.SIGKILL, Fault.PAUSE: signal.SIGSTOP, Fault.STOP: signal.SIGTERM}
        cluster.signal(victim, signals[fault])


def _end(cluster: BenchCluster, fault: Fault, victim: int) -> None:
    node = cluster.nodes[victim]
    match fault:
        case Fault.KILL:
            node.kill()
            node.launch()
        case Fault.STOP:
            node.stop()
            node.launch()
        case Fault.PAUSE:
            cluster.signal(victim, signal.SIGCONT)
        case Fault.CUT:
            assert cluster.network is not None
            cluster.network.heal()


def _read(cluster: BenchCluster, topic: str, partitions: int) -> dict[int, int]:
    """Return the numbers of all messages of the topic, with how often each is stored. Raises ClusterError."""
    settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "bench", "log_level": 2}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    stored: dict[int, int] = {}
    ended: set[int] = set()
    until_s = time.monotonic() + _READ_S_MAX
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while len(ended) < partitions:
            if time.monotonic() > until_s:
                raise ClusterError(f"{topic} could not be read in {_READ_S_MAX:.0f} s")
            for message in consumer.consume(1_000, timeout=0.1):
                error, value = message.error(), message.value()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    ended.add(int(message.partition() or 0))
                elif error is None and value is not None and value != b"probe":
                    stored[int(value)] = stored.get(int(value), 0) + 1
    finally:
        consumer.close()
    return stored
