"""aiokafka. Its coroutines run in an event loop on another thread, so that the scenarios need not be coroutines."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from threading import Event
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from tests.interop.clients.aiokafka_admin import AiokafkaAdmin
from tests.interop.clients.aiokafka_settings import QUICK, isolation_level, refusals
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
    Stored,
)
from tests.interop.clients.loop_thread import LoopThread
from tests.interop.waiting import WITHIN_S

_QUICK_CONSUMER = {"fetch_max_wait_ms": 50, "auto_commit_interval_ms": 50}
_LOG_APPEND_TIME = 1


class AiokafkaClient(Client):
    name = "aiokafka"
    lacks: Mapping[Feature, str] = {
        Feature.COOPERATIVE: "its assignors are eager",
        Feature.FENCING: "its Heartbeat (version 1) and OffsetCommit (version 3) have no group.instance.id",
        Feature.INCREMENTAL_CONFIGS: "its admin client has no such call",
        Feature.DELETE_GROUPS: "its admin client has no such call",
        Feature.ALTER_GROUP_OFFSETS: "its admin client has no such call",
        Feature.DELETE_GROUP_OFFSETS: "its admin client has no such call",
        Feature.LIST_OFFSETS: "its admin client has no such call",
        Feature.LOG_DIRS: "its admin client has no such call",
        Feature.DESCRIBE_TRANSACTIONS: "its admin client has no such call",
        Feature.MEMBERS_IN_TRANSACTIONS: "it sends version 0, which has only the group id",
        Feature.STABLE_OFFSETS: "it sends at most version 3, which has no such field",
    }

    def __init__(self) -> None:
        self.loop = LoopThread("aiokafka")

    def close(self) -> None:
        self.loop.close()

    def producer(self, servers: str, options: ProducerOptions = PLAIN_PRODUCER) -> Producer:
        return AiokafkaProducer(self.loop, servers, options)

    def reader(
        self, servers: str, topic: str, starts: Mapping[int, int], options: ReaderOptions = PLAIN_READER
    ) -> Reader:
        return AiokafkaReader(self.loop, servers, topic, starts, options)

    def member(self, servers: str, topic: str, options: MemberOptions) -> Member:
        return AiokafkaMember(servers, topic, options)

    def mortal_member(self, servers: str, topic: str, options: MemberOptions) -> MortalMember:
        return ChildMember(self.name, servers, topic, options)

    def admin(self, servers: str) -> Admin:
        return AiokafkaAdmin(self.loop, servers)

    def topics(self, servers: str) -> dict[str, int]:
        with self.admin(servers) as admin:
            return admin.topics()

    def offsets_at(self, servers: str, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int]:
        async def look_up() -> dict[int, int]:
            async with _anonymous(servers) as consumer:
                offsets = await consumer.offsets_for_times(
                    {TopicPartition(topic, number): timestamp_ms for number in partitions}
                )
            return {partition.partition: -1 if place is None else place.offset for partition, place in offsets.items()}

        return self.loop.run(look_up(), WITHIN_S)

    def ends(
        self, servers: str, topic: str, partitions: Sequence[int], *, read_committed: bool = False
    ) -> dict[int, tuple[int, int]]:
        wanted = [TopicPartition(topic, number) for number in partitions]

        async def look_up() -> dict[int, tuple[int, int]]:
            async with _anonymous(servers, isolation_level=isolation_level(read_committed)) as consumer:
                first, following = await consumer.beginning_offsets(wanted), await consumer.end_offsets(wanted)
            return {partition.partition: (first[partition], following[partition]) for partition in wanted}

        with refusals():
            return self.loop.run(look_up(), WITHIN_S)


class AiokafkaProducer(Producer):
    def __init__(self, loop: LoopThread, servers: str, options: ProducerOptions) -> None:
        self._loop = loop
        self._sent: list[Any] = []

        async def start() -> Any:
            producer = AIOKafkaProducer(
                retry_backoff_ms=QUICK["retry_backoff_ms"],
                request_timeout_ms=options.patience_ms,
                bootstrap_servers=servers,
                compression_type=None if options.codec == "none" else options.codec,
                acks="all" if options.acks == -1 else options.acks,
                enable_idempotence=options.idempotent,
                max_batch_size=options.batch_bytes,
                linger_ms=options.linger_ms,
                max_request_size=options.request_bytes_max,
                transactional_id=options.transactional_id,
                transaction_timeout_ms=options.transaction_timeout_ms,
            )
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            return producer

        with refusals():
            self._producer = loop.run(start(), WITHIN_S)

    def send(self, records: Sequence[Outgoing]) -> None:
        async def send() -> list[Any]:
            # It waits for room in the previous batch, so slightly more than one batch is in flight.
            return [
                await self._producer.send(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    record.timestamp_ms,
                    headers=list(record.headers),
                )
                for record in records
            ]

        self._sent.append(self._loop.start(send()))

    def flush(self, within_s: float = WITHIN_S) -> list[Stored]:
        sent, self._sent = self._sent, []

        async def stored() -> list[Stored]:
            futures = [future for submitted in sent for future in await asyncio.wrap_future(submitted)]
            results = await asyncio.gather(*futures)
            return [
                Stored(-1, -1) if metadata is None else Stored(metadata.partition, metadata.offset)
                for metadata in results
            ]

        with refusals():
            return self._loop.run(stored(), within_s)

    def begin(self) -> None:
        with refusals():
            self._loop.run(self._producer.begin_transaction(), WITHIN_S)

    def send_offsets(self, member: Member) -> None:
        assert isinstance(member, AiokafkaMember)
        with refusals():
            self._loop.run(self._producer.send_offsets_to_transaction(member.positions, member.group), WITHIN_S)

    def commit(self) -> None:
        self._end(self._producer.commit_transaction)

    def abort(self) -> None:
        self._end(self._producer.abort_transaction)

    def _end(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def end_what_was_sent() -> None:
            # All records have to be passed to it before the transaction is ended.
            for submitted in self._sent:
                await asyncio.wrap_future(submitted)
            await end()

        with refusals():
            self._loop.run(end_what_was_sent(), WITHIN_S)

    def close(self) -> None:
        self._loop.run(self._producer.stop(), WITHIN_S)


class AiokafkaReader(Reader):
    def __init__(
        self, loop: LoopThread, servers: str, topic: str, starts: Mapping[int, int], options: ReaderOptions
    ) -> None:
        self._loop = loop
        self._topic = topic

        async def start() -> Any:
            consumer = _anonymous(
                servers,
                isolation_level=isolation_level(options.read_committed),
                max_partition_fetch_bytes=options.fetch_bytes_max,
                fetch_max_bytes=options.fetch_bytes_max,
            )
            await consumer.start()
            consumer.assign([TopicPartition(topic, number) for number in starts])
            return consumer

        self._consumer = loop.run(start(), WITHIN_S)
        for number, start_at in starts.items():
            self.seek(number, start_at)

    def poll(self, within_s: float) -> list[Received]:
        return self._loop.run(_poll(self._consumer, within_s), within_s + WITHIN_S)

    def seek(self, partition: int, offset: int) -> None:
        place = TopicPartition(self._topic, partition)

        async def seek() -> None:
            if offset == BEGINNING:
                await self._consumer.seek_to_beginning(place)
            elif offset == END:
                await self._consumer.seek_to_end(place)
            else:
                self._consumer.seek(place, offset)

        self._loop.run(seek(), WITHIN_S)

    def close(self) -> None:
        self._loop.run(self._consumer.stop(), WITHIN_S)


class AiokafkaMember(Member):
    """A member with its own event loop: it sends heartbeats whether it is polled or not, so `stall` blocks the loop."""

    def __init__(self, servers: str, topic: str, options: MemberOptions) -> None:
        self.group = options.group
        self._topic = topic
        self._positions: dict[int, int] = {}
        self._loop = LoopThread("aiokafka-member")
        self._stalled: Event | None = None
        self._polling: Future[list[Received]] | None = None

        async def create() -> Any:
            return AIOKafkaConsumer(
                topic,
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
                rebalance_timeout_ms=options.poll_interval_ms,
                isolation_level=isolation_level(options.read_committed),
                partition_assignment_strategy=(RangePartitionAssignor,),
            )

        self._consumer = self._loop.run(create(), WITHIN_S)
        # Starting includes joining, for which the other members have to be polled.
        self._started = self._loop.start(self._consumer.start())

    @property
    def assignment(self) -> frozenset[int]:
        return frozenset(partition.partition for partition in self._consumer.assignment())

    def poll(self, within_s: float) -> list[Received]:
        # Both wait for a rebalance without a timeout, so they run in the background.
        if self._polling is None:
            self._polling = self._loop.start(self._poll(within_s))
        try:
            records = self._polling.result(within_s)
        except TimeoutError:
            return []
        self._polling = None
        self._positions.update((record.partition, record.offset + 1) for record in records)
        return records

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return {TopicPartition(self._topic, number): offset for number, offset in self._positions.items()}

    async def _poll(self, within_s: float) -> list[Received]:
        await asyncio.wrap_future(self._started)
        return await _poll(self._consumer, within_s)

    def commit(self) -> None:
        committed = self._loop.start(asyncio.wait_for(self._consumer.commit(), WITHIN_S))
        if self._stalled is not None:
            # The commit is now first in the queue.
            self._stalled.set()
        with refusals():
            committed.result(WITHIN_S)

    def stall(self) -> None:
        self._stalled = self._loop.block()

    def close(self) -> None:
        for future in (self._started, self._polling):
            if future is not None:
                future.cancel()
        self._loop.run(self._consumer.stop(), WITHIN_S)
        self._loop.close()


async def _poll(consumer: Any, within_s: float) -> list[Received]:
    with refusals():
        by_partition = await consumer.getmany(timeout_ms=round(within_s * 1000))
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


def _anonymous(servers: str, **settings: Any) -> Any:
    """Return a consumer without a group."""
    return AIOKafkaConsumer(
        **QUICK,
        **_QUICK_CONSUMER,
        bootstrap_servers=servers,
        enable_auto_commit=False,
        auto_offset_reset="none",
        **settings,
    )
