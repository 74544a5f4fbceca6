"""kafka-python, a client in pure Python."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

from tests.interop.clients.child_member import ChildMember
from tests.interop.clients.interface import (
    BEGINNING,
    END,
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
    RefusedError,
    Stored,
)
from tests.interop.clients.kafka_python_admin import KafkaPythonAdmin
from tests.interop.clients.kafka_python_settings import QUICK, assignors, isolation_level, kafka, refusals
from tests.interop.waiting import WITHIN_S, Deadline

_QUICK_CONSUMER = {"fetch_max_wait_ms": 50, "auto_commit_interval_ms": 50}
_LOG_APPEND_TIME = 1
_POLL_S = 0.1
_JOIN_S = 1.0


class KafkaPythonClient(Client):
    name = "kafka-python"
    lacks: Mapping[Feature, str] = {
        Feature.PLAIN_ALTER_CONFIGS: "it adds the current settings to the given ones",
        Feature.NULL_HEADERS: "its API accepts only bytes",
    }

    def why_not_codec(self, codec: str) -> str | None:
        is_there = codec == "none" or getattr(kafka.codec, f"has_{codec}")()
        return None if is_there else f"install kafka-python[{codec}]"

    def producer(self, servers: str, options: ProducerOptions = PLAIN_PRODUCER) -> Producer:
        return KafkaPythonProducer(servers, options)

    def reader(
        self, servers: str, topic: str, starts: Mapping[int, int], options: ReaderOptions = PLAIN_READER
    ) -> Reader:
        return KafkaPythonReader(servers, topic, starts, options)

    def member(self, servers: str, topic: str, options: MemberOptions) -> Member:
        return KafkaPythonMember(servers, topic, options)

    def mortal_member(self, servers: str, topic: str, options: MemberOptions) -> MortalMember:
        return ChildMember(self.name, servers, topic, options)

    def admin(self, servers: str) -> Admin:
        return KafkaPythonAdmin(servers)

    def topics(self, servers: str) -> dict[str, int]:
        with self.admin(servers) as admin:
            return admin.topics()

    def offsets_at(self, servers: str, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int]:
        wanted = {kafka.TopicPartition(topic, number): timestamp_ms for number in partitions}
        with anonymous(servers) as consumer:
            offsets = consumer.offsets_for_times(wanted)
        return {partition.partition: -1 if place is None else place.offset for partition, place in offsets.items()}

    def ends(
        self, servers: str, topic: str, partitions: Sequence[int], *, read_committed: bool = False
    ) -> dict[int, tuple[int, int]]:
        wanted = [kafka.TopicPartition(topic, number) for number in partitions]
        with anonymous(servers, isolation_level=isolation_level(read_committed)) as consumer, refusals():
            first, following = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
        return {partition.partition: (first[partition], following[partition]) for partition in wanted}


class KafkaPythonProducer(Producer):
    def __init__(self, servers: str, options: ProducerOptions) -> None:
        self._sent: list[Any] = []
        self._producer = kafka.KafkaProducer(
            **QUICK,
            bootstrap_servers=servers,
            compression_type=None if options.codec == "none" else options.codec,
            acks="all" if options.acks == -1 else options.acks,
            enable_idempotence=options.idempotent or options.transactional_id is not None,
            batch_size=options.batch_bytes,
            linger_ms=options.linger_ms,
            max_request_size=options.request_bytes_max,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            max_block_ms=options.patience_ms,
        )
        if options.transactional_id is not None:
            try:
                with refusals():
                    self._producer.init_transactions()
            except BaseException:
                self.close()
                raise

    def send(self, records: Sequence[Outgoing]) -> None:
        with refusals():
            for record in records:
                self._sent.append(
                    self._producer.send(
                        record.topic,
                        record.value,
                        record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                )

    def flush(self, within_s: float = WITHIN_S) -> list[Stored]:
        deadline = Deadline(within_s)
        sent, self._sent = self._sent, []
        self._producer.flush(within_s)
        with refusals():
            results = [future.get(deadline.left_s) for future in sent]
        return [Stored(metadata.partition, metadata.offset) for metadata in results]

    def begin(self) -> None:
        with refusals():
            self._producer.begin_transaction()

    def send_offsets(self, member: Member) -> None:
        assert isinstance(member, KafkaPythonMember)
        with refusals():
            self._producer.send_offsets_to_transaction(member.positions, member.group_metadata())

    def commit(self) -> None:
        with refusals():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with refusals():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=5)


class KafkaPythonReader(Reader):
    def __init__(self, servers: str, topic: str, starts: Mapping[int, int], options: ReaderOptions) -> None:
        self._topic = topic
        self._consumer = anonymous(
            servers,
            isolation_level=isolation_level(options.read_committed),
            max_partition_fetch_bytes=options.fetch_bytes_max,
            fetch_max_bytes=options.fetch_bytes_max,
        )
        self._consumer.assign([kafka.TopicPartition(topic, number) for number in starts])
        for number, start in starts.items():
            self.seek(number, start)

    def poll(self, within_s: float) -> list[Received]:
        return poll(self._consumer, within_s)

    def seek(self, partition: int, offset: int) -> None:
        place = kafka.TopicPartition(self._topic, partition)
        if offset == BEGINNING:
            self._consumer.seek_to_beginning(place)
        elif offset == END:
            self._consumer.seek_to_end(place)
            # Resolved at the next poll, unless the position is requested.
            self._consumer.position(place)
        else:
            self._consumer.seek(place, offset)

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class KafkaPythonMember(Member):
    """A member that is polled continuously on its own thread, with a long timeout while it joins.

    A poll that ends in the middle of a join discards the result: the next one drops a join that has completed by then,
    and joins again (join_group_async in kafka/coordinator/base.py).
    """

    def __init__(self, servers: str, topic: str, options: MemberOptions) -> None:
        self._topic = topic
        self._positions: dict[int, int] = {}
        self._polled: SimpleQueue[list[Received] | Exception] = SimpleQueue()
        self._is_polled = True
        self._stalled_as: Any = None
        self._consumer = kafka.KafkaConsumer(
            **QUICK,
            **_QUICK_CONSUMER,
            bootstrap_servers=servers,
            group_id=options.group,
            group_instance_id=options.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=options.auto_commit,
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=50,
            max_poll_interval_ms=options.poll_interval_ms,
            isolation_level=isolation_level(options.read_committed),
            partition_assignment_strategy=[assignors["cooperative-sticky" if options.is_cooperative else "range"]],
        )
        self._auto_commit = options.auto_commit
        self._consumer.subscribe([topic])
        # For the same reason: a leader that learns of partitions only after joining joins again.
        self._consumer.partitions_for_topic(topic)
        # Calls of the consumer are queued together with the polls.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-python-member")
        self._thread.submit(self._poll_again)

    @property
    def assignment(self) -> frozenset[int]:
        return frozenset(partition.partition for partition in self._consumer.assignment())

    def poll(self, within_s: float) -> list[Received]:
        try:
            records = self._polled.get(timeout=within_s)
        except Empty:
            return []
        if isinstance(records, Exception):
            raise records
        self._positions.update((record.partition, record.offset + 1) for record in records)
        return records

    @property
    def positions(self) -> dict[Any, Any]:
        return {
            kafka.TopicPartition(self._topic, number): kafka.structs.OffsetAndMetadata(offset, "", -1)
            for number, offset in self._positions.items()
        }

    def group_metadata(self) -> Any:
        """Return the current group metadata: member id and generation."""
        return self._stalled_as or self._thread.submit(self._consumer.group_metadata).result(WITHIN_S)

    def commit(self) -> None:
        with refusals():
            self._thread.submit(self._consumer.commit, self.positions, timeout_ms=WITHIN_S * 1000).result(2 * WITHIN_S)

    def stall(self) -> None:
        self._is_polled = False
        # Its heartbeats continue, and reset its group metadata once it is removed. A hanging process would keep them.
        self._stalled_as = self._thread.submit(self._consumer.group_metadata).result(WITHIN_S)

    def close(self) -> None:
        self.stall()
        self._thread.submit(self._consumer.close, autocommit=self._auto_commit).result(2 * WITHIN_S)
        self._thread.shutdown()

    def _poll_again(self) -> None:
        if not self._is_polled:
            return
        try:
            records = poll(self._consumer, _POLL_S if self._consumer.assignment() else _JOIN_S)
        except kafka.errors.KafkaConnectionError:
            # Raised while the broker is down, and retriable: an application polls again.
            pass
        except (RefusedError, kafka.errors.KafkaError) as error:
            self._polled.put(error)
        else:
            if records:
                self._polled.put(records)
        self._thread.submit(self._poll_again)


def poll(consumer: Any, within_s: float) -> list[Received]:
    with refusals():
        by_partition = consumer.poll(timeout_ms=round(within_s * 1000))
    return [
        Received(
            record.partition,
            record.offset,
            record.key,
            record.value,
            tuple((name, value) for name, value in record.headers),
            record.timestamp,
            record.timestamp_type == _LOG_APPEND_TIME,
        )
        for records in by_partition.values()
        for record in records
    ]


def anonymous(servers: str, **settings: Any) -> Any:
    """Return a consumer without a group."""
    return kafka.KafkaConsumer(
        **QUICK,
        **_QUICK_CONSUMER,
        bootstrap_servers=servers,
        enable_auto_commit=False,
        auto_offset_reset="none",
        **settings,
    )
