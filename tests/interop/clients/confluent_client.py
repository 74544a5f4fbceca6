"""confluent-kafka, which is librdkafka."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as RdProducer

from tests.interop.clients.child_member import ChildMember
from tests.interop.clients.confluent_admin import ConfluentAdmin
from tests.interop.clients.confluent_settings import QUICK, checked, isolation_level, refusals, refused
from tests.interop.clients.interface import (
    PLAIN_PRODUCER,
    PLAIN_READER,
    Admin,
    Client,
    Feature,
    Member,
    MemberOptions,
    MortalMember,
    Outgoing,
    Producer,
    ProducerOptions,
    Reader,
    ReaderOptions,
    Received,
    Stored,
)
from tests.interop.waiting import WITHIN_S, Deadline

_QUICK_CONSUMER = {"fetch.wait.max.ms": 50, "fetch.error.backoff.ms": 20, "auto.commit.interval.ms": 50}
_AT_ONCE = 500
# A consumer that gets nothing for so long has no events to be told either.
_IDLE_S = 0.1


class ConfluentClient(Client):
    name = "confluent"
    lacks: Mapping[Feature, str] = {
        Feature.DELETE_GROUP_OFFSETS: "librdkafka's call is not in the Python API",
        Feature.LOG_DIRS: "librdkafka has no DescribeLogDirs",
        Feature.DESCRIBE_TRANSACTIONS: "librdkafka has no such calls",
    }

    def producer(self, servers: str, options: ProducerOptions = PLAIN_PRODUCER) -> Producer:
        return ConfluentProducer(servers, options)

    def reader(
        self, servers: str, topic: str, starts: Mapping[int, int], options: ReaderOptions = PLAIN_READER
    ) -> Reader:
        return ConfluentReader(servers, topic, starts, options)

    def member(self, servers: str, topic: str, options: MemberOptions) -> Member:
        return ConfluentMember(servers, topic, options)

    def mortal_member(self, servers: str, topic: str, options: MemberOptions) -> MortalMember:
        return ChildMember(self.name, servers, topic, options)

    def admin(self, servers: str) -> Admin:
        return ConfluentAdmin(servers)

    def topics(self, servers: str) -> dict[str, int]:
        with self.admin(servers) as admin:
            return admin.topics()

    def offsets_at(self, servers: str, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int]:
        wanted = [TopicPartition(topic, number, timestamp_ms) for number in partitions]
        with _anonymous(servers) as consumer:
            return {
                partition.partition: checked(partition).offset
                for partition in consumer.offsets_for_times(wanted, timeout=WITHIN_S)
            }

    def ends(
        self, servers: str, topic: str, partitions: Sequence[int], *, read_committed: bool = False
    ) -> dict[int, tuple[int, int]]:
        offsets: dict[int, tuple[int, int]] = {}
        with _anonymous(servers, **{"isolation.level": isolation_level(read_committed)}) as consumer:
            for number in partitions:
                ends = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=WITHIN_S)
                assert ends is not None, "it took too long"
                offsets[number] = ends
        return offsets


class ConfluentProducer(Producer):
    def __init__(self, servers: str, options: ProducerOptions) -> None:
        config: dict[str, Any] = {
            **QUICK,
            "bootstrap.servers": servers,
            "compression.type": options.codec,
            "acks": options.acks,
            "enable.idempotence": options.idempotent,
            "batch.size": options.batch_bytes,
            "linger.ms": options.linger_ms,
            "message.max.bytes": options.request_bytes_max,
            "message.timeout.ms": options.patience_ms,
        }
        if options.transactional_id is not None:
            config["transactional.id"] = options.transactional_id
            config["transaction.timeout.ms"] = options.transaction_timeout_ms
            # The delivery timeout may not exceed the transaction timeout.
            for name in ("message.timeout.ms", "socket.timeout.ms"):
                config[name] = min(config[name], options.transaction_timeout_ms)
        self._producer = RdProducer(config)
        self._results: list[tuple[KafkaError | None, Message]] = []
        if options.transactional_id is not None:
            try:
                self._producer.init_transactions(WITHIN_S)
            except KafkaException as error:
                # Closing would raise it again.
                del self._producer
                raise refused(error.args[0]) from error

    def send(self, records: Sequence[Outgoing]) -> None:
        for record in records:
            chosen: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
            if record.timestamp_ms is not None:
                chosen["timestamp"] = record.timestamp_ms
            with refusals():
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    on_delivery=lambda error, message: self._results.append((error, message)),
                    **chosen,
                )

    def flush(self, within_s: float = WITHIN_S) -> list[Stored]:
        with refusals():
            try:
                left = self._producer.flush(within_s)
            except SystemError as failure:
                # A fatal error during the call can make it return without a result and without an exception. The
                # delivery reports, and their errors, are there all the same.
                if failure.__cause__ is not None:
                    raise
                left = self._producer.flush(within_s)
        assert left == 0, f"{left} records were not delivered in time"
        results, self._results = self._results, []
        for error, _ in results:
            if error is not None:
                raise refused(error)
        return [Stored(_number(message.partition()), _number(message.offset(), -1)) for _, message in results]

    def begin(self) -> None:
        with refusals():
            self._producer.begin_transaction()

    def send_offsets(self, member: Member) -> None:
        assert isinstance(member, ConfluentMember)
        with refusals():
            self._producer.send_offsets_to_transaction(member.positions, member.group_metadata, WITHIN_S)

    def commit(self) -> None:
        with refusals():
            self._producer.commit_transaction(WITHIN_S)

    def abort(self) -> None:
        with refusals():
            self._producer.abort_transaction(WITHIN_S)

    def close(self) -> None:
        self._producer.purge()
        with warnings.catch_warnings(), suppress(KafkaException):
            # It aborts the open transaction; if the producer was fenced, it raises that error again.
            warnings.filterwarnings("ignore", "Producer abort_transaction failed during close", RuntimeWarning)
            self._producer.close()
        del self._producer


class ConfluentReader(Reader):
    def __init__(self, servers: str, topic: str, starts: Mapping[int, int], options: ReaderOptions) -> None:
        self._topic = topic
        self._consumer = _anonymous(
            servers,
            **{
                "isolation.level": isolation_level(options.read_committed),
                "max.partition.fetch.bytes": options.fetch_bytes_max,
                "fetch.max.bytes": options.fetch_bytes_max,
                "message.max.bytes": min(options.fetch_bytes_max, 1_000_000),
            },
        )
        # It retries after half a second if it has to look up an offset and does not know the leader yet.
        self._consumer.list_topics(topic, timeout=WITHIN_S)
        # BEGINNING and END are the numbers that librdkafka has for them.
        self._consumer.assign([TopicPartition(topic, number, start) for number, start in starts.items()])

    def poll(self, within_s: float) -> list[Received]:
        return _poll(self._consumer, within_s)

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition, offset))

    def close(self) -> None:
        self._consumer.close()


class ConfluentMember(Member):
    def __init__(self, servers: str, topic: str, options: MemberOptions) -> None:
        config: dict[str, Any] = {
            **QUICK,
            **_QUICK_CONSUMER,
            "bootstrap.servers": servers,
            "group.id": options.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": options.auto_commit,
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": 50,
            "max.poll.interval.ms": options.poll_interval_ms,
            "isolation.level": isolation_level(options.read_committed),
            "partition.assignment.strategy": "cooperative-sticky" if options.is_cooperative else "range",
        }
        if options.instance_id is not None:
            config["group.instance.id"] = options.instance_id
        self._topic = topic
        self._positions: dict[int, int] = {}
        self._is_stalled = False
        self._consumer = Consumer(config)
        self._consumer.subscribe([topic])

    @property
    def assignment(self) -> frozenset[int]:
        return frozenset(partition.partition for partition in self._consumer.assignment())

    def poll(self, within_s: float) -> list[Received]:
        records = _poll(self._consumer, within_s)
        self._positions.update((record.partition, record.offset + 1) for record in records)
        return records

    @property
    def positions(self) -> list[TopicPartition]:
        # Explicit positions: the client drops its own when it is removed from its group.
        return [TopicPartition(self._topic, number, offset) for number, offset in self._positions.items()]

    @property
    def group_metadata(self) -> Any:
        """The current group metadata: member id and generation."""
        return self._consumer.consumer_group_metadata()

    def commit(self) -> None:
        with refusals():
            for partition in self._consumer.commit(offsets=self.positions, asynchronous=False) or []:
                checked(partition)

    def stall(self) -> None:
        self._is_stalled = True

    def close(self) -> None:
        if self._is_stalled:
            self._rejoin()
        self._consumer.close()

    def _rejoin(self) -> None:
        """Poll until a member that was removed from its group, and is its only one now, has partitions again.

        The application has not been told of the removal yet. If `close` told it, librdkafka could wait forever: its
        assign() is never answered once the consumer terminates (librdkafka issue 4884).
        """
        deadline = Deadline()
        while self._consumer.poll(_IDLE_S) is not None or not self._consumer.assignment():
            deadline.check("the member has no partition, or still gets records")


def _poll(consumer: Consumer, within_s: float) -> list[Received]:
    """Return the first record that arrives, with those that arrived at the same time. Raises RefusedError."""
    deadline = Deadline(within_s)
    while True:
        messages = consumer.consume(1, deadline.left_s)
        messages += consumer.consume(_AT_ONCE, 0) if messages else []
        records = [_received(message) for message in messages if not _is_passing(message)]
        if records or deadline.has_passed:
            return records


def _is_passing(message: Message) -> bool:
    """Return True for an error that librdkafka recovers from by itself. Raises RefusedError for any other."""
    error = message.error()
    if error is None:
        return False
    if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        return True
    raise refused(error)


def _received(message: Message) -> Received:
    kind, timestamp_ms = message.timestamp()
    headers: Any = message.headers() or []
    return Received(
        _number(message.partition()),
        _number(message.offset()),
        message.key(),
        message.value(),
        tuple((name, value) for name, value in headers),
        timestamp_ms,
        kind == TIMESTAMP_LOG_APPEND_TIME,
    )


def _anonymous(servers: str, **settings: Any) -> Consumer:
    """Return a consumer without a group. librdkafka requires a group id all the same."""
    return Consumer(
        {
            **QUICK,
            **_QUICK_CONSUMER,
            "bootstrap.servers": servers,
            "group.id": f"nobody-{uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **settings,
        }
    )


def _number(value: int | None, otherwise: int | None = None) -> int:
    value = otherwise if value is None else value
    assert value is not None
    return value
