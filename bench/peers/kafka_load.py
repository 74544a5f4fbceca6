"""The load for Logbrook and Kafka: librdkafka with the same settings for both, mostly its defaults."""

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from threading import Event, Thread
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from bench import librdkafka
from bench.peers import many_consumers, small_load
from bench.peers.load import (
    RETRY_S,
    WAIT_S_MAX,
    Job,
    Load,
    LoadError,
    Spent,
    age_ms,
    messages,
    paced,
    passes_of,
    quantiles,
    spending,
    stamped,
)
from bench.transactions import paired_seconds

# ApiVersions request, version 0, without a client id.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_QUEUED_MESSAGES_MAX = 300_000
_QUEUED_KIB_MAX = 262_144
_CONSUME_S_MAX = 10.0
_MEMBERS = 10
_SET = AlterConfigOpType.SET


class KafkaLoad(Load):
    def create(self, job: Job) -> None:
        topic = NewTopic(job.topic, job.partitions, job.replicas, config=job.settings)
        admin = _admin(job)
        admin.create_topics([topic], operation_timeout=WAIT_S_MAX)[job.topic].result(WAIT_S_MAX)
        _wait_until(lambda: _leaders(admin, job.topic) == job.partitions, "every partition has a leader")

    def delete(self, job: Job) -> None:
        admin = _admin(job)
        admin.delete_topics([job.topic])[job.topic].result(WAIT_S_MAX)

    def ready(self, job: Job) -> None:
        super().ready(job)
        librdkafka.get_ready()
        if job.connections > 1:
            small_load.get_ready()

    def produce(self, job: Job) -> Spent:
        pool = _pool(job.size, job.partitions, job.count, job.in_turn)
        settings = {
            "bootstrap.servers": job.address,
            "compression.type": job.codec,
            "queue.buffering.max.messages": _QUEUED_MESSAGES_MAX,
            "queue.buffering.max.kbytes": _QUEUED_KIB_MAX,
        }
        with librdkafka.producing(settings, job.topic) as producer, spending(job.count) as spent:
            remaining = job.count
            while remaining:
                count = min(remaining, len(pool))
                producer.produce(pool, count)
                remaining -= count
            producer.flush()
        return spent

    def consume(self, job: Job) -> Spent:
        return self.consume_passes(replace(job, stored=job.count))

    def consume_passes(self, job: Job) -> Spent:
        librdkafka.get_ready()
        from_topic = librdkafka.consuming(job.address, job.topic, job.partitions)
        with from_topic as consumer, spending(job.count) as spent:
            count, size = consumer.consume(job.stored, _CONSUME_S_MAX, passes_of(job))
        if size != count * job.size:
            raise LoadError(f"{count} messages have {size} bytes, expected {count * job.size}")
        spent.messages = count
        return spent

    def fan_out(self, job: Job) -> Spent:
        return many_consumers.fan_out(job)

    def idle_groups(self, job: Job) -> None:
        many_consumers.hold_idle_groups(job)

    def small_requests(self, job: Job) -> Spent:
        return small_load.send_small_requests(job)

    def fill_keyed(self, job: Job) -> Spent:
        """Send `count` messages whose keys repeat after half of them, so that a compaction keeps half."""
        keys = [b"%012d" % number for number in range(job.count // 2)]
        pool = librdkafka.Pool(
            (messages(job.size) * (1 + len(keys) // len(messages(job.size))))[: len(keys)], 1, keys=keys
        )
        with (
            librdkafka.producing({"bootstrap.servers": job.address}, job.topic) as producer,
            spending(job.count) as spent,
        ):
            for _ in range(2):
                producer.produce(pool, len(pool))
            producer.flush()
        return spent

    def set_topic_config(self, job: Job) -> None:
        entries = [ConfigEntry(name, value, incremental_operation=_SET) for name, value in job.settings.items()]
        resource = ConfigResource(ResourceType.TOPIC, job.topic, incremental_configs=entries)
        admin = _admin(job)
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S_MAX)

    def acknowledged(self, job: Job) -> dict[str, float]:
        pool = _pool(job.size, job.partitions, job.count, job.in_turn)
        return quantiles(*librdkafka.latencies_ms(job.address, job.topic, pool, job.count, job.rate))

    def send_stamped(self, job: Job) -> None:
        failed: list[object] = []
        producer = _producer(job, failed, **{"linger.ms": 0})
        value = messages(job.size)[0]
        for due in paced(job.count, job.rate):
            for _ in range(due):
                producer.produce(job.topic, stamped(value), partition=0)
            producer.poll(0)
        _flush(producer, failed)

    def receive_stamped(self, job: Job) -> dict[str, float]:
        consumer = _consumer(job)
        ages: list[float] = []
        started = time.monotonic()
        try:
            consumer.assign([TopicPartition(job.topic, 0, 0)])
            while len(ages) < job.count:
                message = consumer.poll(20)
                if message is None:
                    raise LoadError(f"{job.count - len(ages)} messages did not arrive")
                if _is_message(message):
                    ages.append(age_ms(message.value() or b""))
        finally:
            consumer.close()
        return quantiles(ages, time.monotonic() - started)

    def wait_for_ack(self, job: Job) -> None:
        """Poll with ApiVersions before starting the client, whose own reconnects would take longer."""
        _wait_until(lambda: _answers(job), "the broker answers")
        failed: list[object] = []
        fast_retries = {
            "topic.metadata.refresh.fast.interval.ms": 10,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
        }
        producer = _producer(job, failed, **{"linger.ms": 0, **fast_retries})
        producer.produce(job.topic, messages(job.size)[0], partition=0)
        _flush(producer, failed)

    def connect_and_ping(self, job: Job) -> socket.socket:
        connection = socket.create_connection((job.host, job.port), 10.0)
        connection.sendall(_API_VERSIONS)
        if not connection.recv(4):
            connection.close()
            raise ConnectionError("closed before the response")
        return connection

    def rebalance(self, job: Job) -> dict[str, float]:
        """Return how long a group of ten takes to assign all partitions: all start, one leaves, one joins."""
        members: list[_Member] = []
        try:
            together_s = _seconds(
                lambda: members.extend(_Member(job) for _ in range(_MEMBERS)), lambda: _is_assigned(members, job)
            )
            leaver = members.pop()
            left_s = _seconds(leaver.leave, lambda: _is_assigned(members, job))
            joined_s = _seconds(lambda: members.append(_Member(job)), lambda: _is_assigned(members, job))
        finally:
            for member in members:
                member.leave()
        return {"together": together_s, "left": left_s, "joined": joined_s}

    def transactions(self, job: Job) -> dict[str, float]:
        """Return how long `count` transactions of each producer take, and the same records without transactions.

        There is a producer per partition.
        """
        ((plain_s, transactional_s),) = paired_seconds(job.address, job.topic, job.partitions, 1, job.count)
        return {"plain_s": plain_s, "transactional_s": transactional_s}


class _Member:
    """A group member: a consumer with a thread that polls."""

    def __init__(self, job: Job) -> None:
        self._consumer = Consumer({**_settings(job), "group.id": job.topic, "auto.offset.reset": "earliest"})
        self._consumer.subscribe([job.topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._is_stopped = Event()
        self.partitions = 0
        self._thread = Thread(target=self._poll, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Leave the group and join the thread."""
        self._is_stopped.set()
        self._thread.join(WAIT_S_MAX)

    def _poll(self) -> None:
        while not self._is_stopped.is_set():
            self._consumer.poll(0.02)
        self._consumer.close()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions = len(partitions)

    def _revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.partitions = 0


def _is_assigned(members: list[_Member], job: Job) -> bool:
    held = [member.partitions for member in members]
    return all(held) and sum(held) == job.partitions


def _seconds(change: Callable[[], object], is_done: Callable[[], bool]) -> float:
    started = time.monotonic()
    change()
    _wait_until(is_done, "all partitions are assigned")
    return time.monotonic() - started


def _wait_until(is_done: Callable[[], bool], condition: str) -> None:
    until = time.monotonic() + WAIT_S_MAX
    pause = Event()
    while not is_done():
        if time.monotonic() > until:
            raise LoadError(f"timed out after {WAIT_S_MAX:.0f} s: {condition}")
        pause.wait(RETRY_S)


def _answers(job: Job) -> bool:
    try:
        with socket.create_connection((job.host, job.port), 1.0) as connection:
            connection.sendall(_API_VERSIONS)
            return bool(connection.recv(4))
    except OSError:
        return False


def _leaders(admin: AdminClient, topic: str) -> int:
    partitions = admin.list_topics(topic, timeout=WAIT_S_MAX).topics[topic].partitions
    return sum(partition.leader >= 0 for partition in partitions.values())


@lru_cache(maxsize=4)
def _pool(size: int, partitions: int, count: int, in_turn: bool) -> librdkafka.Pool:
    return librdkafka.Pool(messages(size)[:count], partitions, in_turn=in_turn)


def _settings(job: Job) -> dict[str, Any]:
    return {"bootstrap.servers": job.address, "log_level": 2}


def _admin(job: Job) -> AdminClient:
    return AdminClient(_settings(job))


def _producer(job: Job, failed: list[object], **settings: Any) -> Producer:
    """Return a connected producer that appends delivery errors to `failed`, without a callback per message."""

    def report(error: object, _message: object) -> None:
        failed.append(error)

    only_failures = {"delivery.report.only.error": True, "on_delivery": report}
    producer = Producer(
        {**_settings(job), "acks": "all", **only_failures, **settings},
    )
    producer.list_topics(job.topic, timeout=WAIT_S_MAX)
    return producer


def _consumer(job: Job) -> Consumer:
    consumer = Consumer(
        {**_settings(job), "group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "error"}
    )
    consumer.list_topics(job.topic, timeout=WAIT_S_MAX)
    return consumer


def _flush(producer: Producer, failed: list[object]) -> None:
    if unacknowledged := producer.flush(WAIT_S_MAX):
        raise LoadError(f"{unacknowledged} messages were not acknowledged")
    if failed:
        raise LoadError(str(failed[0]))


def _is_message(message: Any) -> bool:
    if message.error() is not None:
        raise LoadError(str(message.error()))
    return True
