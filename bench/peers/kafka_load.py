"""librdkafka as the load, for Logbrook and for Kafka: the same code and settings, most of them its defaults."""

import socket
import struct
import time
from collections.abc import Callable
from itertools import cycle
from threading import Event, Thread
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peers.load import (
    RETRY_S,
    WAIT_S_MAX,
    Job,
    Load,
    LoadError,
    Spent,
    age_ms,
    paced,
    quantiles,
    spending,
    stamped,
)
from bench.peers.messages import messages
from bench.transactions import paired_seconds

# ApiVersions, version 0, from nobody.
_QUESTION = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_QUEUED_MESSAGES_MAX = 300_000
_QUEUED_BYTES_MAX = 256_000_000
_CHUNK = 1_000
_MEMBERS = 10


class KafkaLoad(Load):
    def create(self, job: Job) -> None:
        topic = NewTopic(job.topic, job.partitions, 1, config=job.settings)
        admin = _admin(job)
        admin.create_topics([topic], operation_timeout=WAIT_S_MAX)[job.topic].result(WAIT_S_MAX)
        _wait_until(lambda: _leaders(admin, job.topic) == job.partitions, "every partition has a leader")

    def delete(self, job: Job) -> None:
        admin = _admin(job)
        admin.delete_topics([job.topic])[job.topic].result(WAIT_S_MAX)

    def produce(self, job: Job) -> Spent:
        failed: list[object] = []
        producer = _producer(
            job,
            failed,
            **{"compression.type": job.codec, "queue.buffering.max.messages": 2 * _QUEUED_MESSAGES_MAX},
        )
        pieces = cycle(_pieces(job))
        queued_max = min(_QUEUED_MESSAGES_MAX, _QUEUED_BYTES_MAX // job.size)
        with spending(job.count) as spent:
            left = job.count
            while left:
                while len(producer) > queued_max:
                    producer.poll(0.005)
                partition, piece = next(pieces)
                some = piece[:left]
                if producer.produce_batch(job.topic, some, partition=partition) != len(some):
                    raise LoadError("the client's queue is full")
                if partition == 0:
                    producer.poll(0)
                left -= len(some)
            _flush(producer, failed)
        return spent

    def consume(self, job: Job) -> Spent:
        consumer = _consumer(job)
        try:
            with spending(job.count) as spent:
                consumer.assign([TopicPartition(job.topic, number, 0) for number in range(job.partitions)])
                left = job.count
                while left > 0:
                    some = consumer.consume(min(10_000, left), timeout=10)
                    if not some:
                        raise LoadError(f"{left} messages did not come")
                    left -= sum(_is_message(message) for message in some)
        finally:
            consumer.close()
        return spent

    def acknowledged(self, job: Job) -> dict[str, float]:
        """An idempotent producer, as most clients of today are, and no lingering."""
        latencies: list[float] = []

        def delivered(error: object, message: Any) -> None:
            if error is not None:
                raise LoadError(str(error))
            latencies.append(1_000 * message.latency())

        settings = {"bootstrap.servers": job.address, "acks": "all", "linger.ms": 0, "log_level": 2}
        producer = Producer({**settings, "enable.idempotence": True})
        value = messages(job.size)[0]
        producer.produce(job.topic, value)
        _flush(producer, [])
        started, sent = time.monotonic(), 0
        while sent < job.count:
            due = min(job.count, int((time.monotonic() - started) * job.rate) + 1)
            for number in range(sent, due):
                producer.produce(job.topic, value, partition=number % job.partitions, on_delivery=delivered)
            sent = due
            producer.poll(0.001)
        took_s = time.monotonic() - started
        _flush(producer, [])
        if len(latencies) != job.count:
            raise LoadError(f"{job.count - len(latencies)} messages were not acknowledged")
        return quantiles(latencies, took_s)

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
                    raise LoadError(f"{job.count - len(ages)} messages did not come")
                if _is_message(message):
                    ages.append(age_ms(message.value() or b""))
        finally:
            consumer.close()
        return quantiles(ages, time.monotonic() - started)

    def wait_for_ack(self, job: Job) -> None:
        """The question is asked until it is answered, and only then does the client begin: it would wait longer."""
        _wait_until(lambda: _answers(job), "the broker answers")
        failed: list[object] = []
        often = {"topic.metadata.refresh.fast.interval.ms": 10, "retry.backoff.ms": 10, "reconnect.backoff.ms": 10}
        producer = _producer(job, failed, **{"linger.ms": 0, **often})
        producer.produce(job.topic, messages(job.size)[0], partition=0)
        _flush(producer, failed)

    def greet(self, job: Job) -> socket.socket:
        connection = socket.create_connection((job.host, job.port), 10.0)
        connection.sendall(_QUESTION)
        if not connection.recv(4):
            connection.close()
            raise ConnectionError("closed before it answered")
        return connection

    def rebalance(self, job: Job) -> dict[str, float]:
        """How long ten members take to share the topic: when all start, when one leaves, when one joins."""
        members: list[_Member] = []
        try:
            together_s = _seconds(
                lambda: members.extend(_Member(job) for _ in range(_MEMBERS)), lambda: _is_shared(members, job)
            )
            leaver = members.pop()
            left_s = _seconds(leaver.leave, lambda: _is_shared(members, job))
            joined_s = _seconds(lambda: members.append(_Member(job)), lambda: _is_shared(members, job))
        finally:
            for member in members:
                member.leave()
        return {"together": together_s, "left": left_s, "joined": joined_s}

    def transactions(self, job: Job) -> dict[str, float]:
        """How long the same records take from a producer per partition, plainly and in transactions."""
        ((plain_s, transactional_s),) = paired_seconds(job.address, job.topic, job.partitions, 1)
        return {"plain_s": plain_s, "transactional_s": transactional_s}


class _Member:
    """A consumer with a thread that polls, which is all that a member of a group has to do."""

    def __init__(self, job: Job) -> None:
        settings = {"bootstrap.servers": job.address, "group.id": job.topic, "log_level": 2}
        self._consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        self._consumer.subscribe([job.topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._is_over = Event()
        self.partitions = 0
        self._thread = Thread(target=self._poll, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Returns once the thread is over; that it has left is sent before."""
        self._is_over.set()
        self._thread.join(WAIT_S_MAX)

    def _poll(self) -> None:
        while not self._is_over.is_set():
            self._consumer.poll(0.02)
        self._consumer.close()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions = len(partitions)

    def _revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.partitions = 0


def _is_shared(members: list[_Member], job: Job) -> bool:
    held = [member.partitions for member in members]
    return all(held) and sum(held) == job.partitions


def _seconds(change: Callable[[], object], is_done: Callable[[], bool]) -> float:
    started = time.monotonic()
    change()
    _wait_until(is_done, "the group shares the topic")
    return time.monotonic() - started


def _wait_until(is_done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WAIT_S_MAX
    pause = Event()
    while not is_done():
        if time.monotonic() > until:
            raise LoadError(f"in {WAIT_S_MAX:.0f} s it did not come to pass that {what}")
        pause.wait(RETRY_S)


def _answers(job: Job) -> bool:
    try:
        with socket.create_connection((job.host, job.port), 1.0) as connection:
            connection.sendall(_QUESTION)
            return bool(connection.recv(4))
    except OSError:
        return False


def _leaders(admin: AdminClient, topic: str) -> int:
    partitions = admin.list_topics(topic, timeout=WAIT_S_MAX).topics[topic].partitions
    return sum(partition.leader >= 0 for partition in partitions.values())


def _pieces(job: Job) -> list[tuple[int, list[dict[str, bytes]]]]:
    """The messages as they are handed to the client: of each thousand, those of each partition together.

    `produce_batch` heeds the partition of the call and not that of a message, whatever its documentation says.
    """
    pool = [{"value": value} for value in messages(job.size)]
    chunks = [pool[start : start + _CHUNK] for start in range(0, len(pool), _CHUNK)]
    pieces = [
        (partition, chunk[partition :: job.partitions]) for chunk in chunks for partition in range(job.partitions)
    ]
    return [(partition, piece) for partition, piece in pieces if piece]


def _admin(job: Job) -> AdminClient:
    return AdminClient({"bootstrap.servers": job.address, "log_level": 2})


def _producer(job: Job, failed: list[object], **settings: Any) -> Producer:
    """It reports only what went wrong, into `failed`: a callback for each message would cost more than sending it."""

    def report(error: object, _message: object) -> None:
        failed.append(error)

    only_failures = {"delivery.report.only.error": True, "on_delivery": report}
    producer = Producer(
        {"bootstrap.servers": job.address, "acks": "all", "log_level": 2, **only_failures, **settings},
    )
    producer.list_topics(job.topic, timeout=WAIT_S_MAX)
    return producer


def _consumer(job: Job) -> Consumer:
    settings = {"bootstrap.servers": job.address, "group.id": "bench", "enable.auto.commit": False, "log_level": 2}
    consumer = Consumer({**settings, "auto.offset.reset": "error"})
    consumer.list_topics(job.topic, timeout=WAIT_S_MAX)
    return consumer


def _flush(producer: Producer, failed: list[object]) -> None:
    if left := producer.flush(WAIT_S_MAX):
        raise LoadError(f"{left} messages were not acknowledged")
    if failed:
        raise LoadError(str(failed[0]))


def _is_message(message: Any) -> bool:
    if message.error() is not None:
        raise LoadError(str(message.error()))
    return True
