"""Random schedules of one broker and its clients, by seed.

Producers write with acks=all, one of them idempotently: it sends each record until it is acknowledged. Another one
writes transactions (`transactions`). Consumers read everything again and again, others are members of a group
(`groups`), and an administrator creates, grows and deletes topics (`admins`). Faults happen: kills, power losses that
keep, lose or tear unsynced bytes, slow syncs, broken connections, and clients that are cut off. At the end all faults
end, and what clients were told is compared with the log: acknowledged records are there, none is there twice, those of
the idempotent producer are in order, and committed readers see whole transactions. A schedule is the same in every run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar

from logbrook.config import Durability
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from logbrook.records.batch import iter_headers
from logbrook.records.builder import build_batch
from logbrook.records.reader import iter_records
from logbrook.records.record import Record
from logbrook.storage.log import Log
from logbrook.testing.simulation.admins import AdminWorkload
from logbrook.testing.simulation.broker import PORT, SimulatedBroker, simulation_config
from logbrook.testing.simulation.client import SimulatedClient, WorkloadClient
from logbrook.testing.simulation.client_history import ClientHistory
from logbrook.testing.simulation.deletions import DeletionWorkload
from logbrook.testing.simulation.groups import GroupWorkloadHistory, WorkloadMember
from logbrook.testing.simulation.loop import SimulationLoop, SimulationStuckError
from logbrook.testing.simulation.network import SimulatedNetwork
from logbrook.testing.simulation.transactions import TransactionalWorkload, read_committed
from logbrook.testing.variants import Variant

TOPIC = "t"
HOST = "broker"
IDEMPOTENT = "idempotent-producer"
TRANSACTIONAL = "transactional-producer"
ADMIN = "admin"
PARTITIONS = 2
SECONDS = 20.0
# The last versions in which topics go by name.
_PRODUCE, _FETCH, _CREATE_TOPICS, _INIT_PRODUCER_ID = 12, 12, 5, 4
# A transaction times out after 3 s; timeouts are looked for every 10 s.
_SETTLE_S = 60.0
_BYTES_MAX = 1 << 20
_PRODUCERS, _CONSUMERS, _MEMBERS = 3, 2, 2
_RETRIABLE = (OSError, TimeoutError)

T = TypeVar("T")


class SimulationFailureError(Exception):
    """A schedule that breaks a promise."""

    def __init__(self, seed: int, events: list[str], reason: str) -> None:
        super().__init__(f"seed {seed}: {reason}")
        self.seed = seed
        self.events = events
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ClientTimes:
    """The pauses and timeouts of clients."""

    # The longest pause of producers and consumers between two requests.
    pause_s_max: float = 0.2
    # After an error.
    retry_s: float = 0.05
    transaction_pause_s: float = 0.1
    member_pause_s: float = 0.3
    admin_pause_s: float = 1.0
    request_s_max: float = 5.0
    session_ms: int = 6_000
    transaction_ms: int = 3_000


class SimulationRun:
    """One seed. `events` is the schedule: faults and the number of records at each."""

    # The answers that an idempotent producer may get.
    idempotent_codes = frozenset({ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR})
    # The replication factor of the topics that the administrator creates.
    administered_replicas = 1
    # The records in a batch of a plain producer, at most.
    batch_records_max = 1

    def __init__(
        self,
        seed: int,
        seconds: float = SECONDS,
        durability: Durability = Durability.FSYNC,
        times: ClientTimes | None = None,
    ) -> None:
        self._seed = seed
        self._times = times or ClientTimes()
        self._seconds = seconds
        self._durability = durability
        self._random = Random(seed)
        self._is_over = False
        self._task_error: Exception | None = None
        self._values = 0
        # The number of faults.
        self.faults = 0
        self.events: list[str] = []
        self.history = ClientHistory()
        self._transactions = TransactionalWorkload(
            seed, TOPIC, PARTITIONS, TRANSACTIONAL, self._times.transaction_ms, self.transaction_version
        )
        self._group = GroupWorkloadHistory(TOPIC)
        self._deletions = DeletionWorkload(seed, TOPIC, int(1000 * self._times.request_s_max))
        self._admin = AdminWorkload(self.administered_replicas)
        self._loop = self._new_loop()

    def _new_loop(self) -> SimulationLoop:
        slowest_s = self._random.choice((0.001, 0.01, 0.1))
        latency = Random(self._random.random())
        loop = SimulationLoop(SimulatedNetwork(lambda: latency.uniform(0.0001, slowest_s)))
        sync_s = self._random.choice((0.0005, 0.02, 0.5))
        syncs = Random(self._random.random())
        self._broker = SimulatedBroker(
            loop,
            HOST,
            config=simulation_config(HOST, self._durability),
            seed=self._seed,
            sync_latency_s=lambda: syncs.uniform(0.0001, sync_s),
        )
        return loop

    def run(self) -> None:
        """Raises SimulationFailureError."""
        broken: BaseException | None = None
        self._loop.set_exception_handler(self._on_task_failed)
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._run())
        except SimulationStuckError as error:
            broken = error
        except BaseExceptionGroup as errors:
            broken = _first(errors)
        except Exception as error:
            # Of the judge.
            broken = error
        broken = broken or self._task_error
        if broken is not None:
            raise SimulationFailureError(self._seed, self.events, str(broken) or repr(broken)) from broken

    def _on_task_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A background task of a broker has failed: with another error than those of faults it is a bug."""
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError | LogbrookError):
            self._task_error = self._task_error or error
        loop.default_exception_handler(context)

    async def _run(self) -> None:
        await self._start()
        await self._create_topic()
        async with asyncio.TaskGroup() as group:
            for actor in self._actors():
                group.create_task(actor)
            await self._break_things()
            self._is_over = True
        await self._judge()
        await self._stop()

    def _actors(self) -> list[Coroutine[Any, Any, None]]:
        """Return the clients of this schedule."""
        actors = [self._produce(f"producer-{number}") for number in range(_PRODUCERS)]
        actors.append(self._produce_idempotently(IDEMPOTENT))
        actors.append(self._repeat(TRANSACTIONAL, self._transact))
        actors += [self._consume(f"consumer-{number}") for number in range(_CONSUMERS)]
        actors += [self._consume_as_member(f"member-{number}") for number in range(_MEMBERS)]
        actors.append(self._repeat(ADMIN, self._administrate))
        return actors

    async def _start(self) -> None:
        await self._broker.start()

    async def _stop(self) -> None:
        await self._broker.stop()

    # Clients

    @property
    def topic_settings(self) -> dict[str, str]:
        return {}

    @property
    def transaction_version(self) -> int:
        """That of the transactional producer (KIP-890)."""
        return 2

    async def _connect(self, name: str) -> WorkloadClient:
        """Raises OSError."""
        return await SimulatedClient.connect(HOST, PORT, name)

    async def _create_topic(self) -> None:
        client = await self._connect("creator")
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in self.topic_settings.items()]
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=-1, configs=configs)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        response = await client.request(request, CreateTopicsResponse, _CREATE_TOPICS)
        assert response.topics[0].error_code == ErrorCode.NONE
        client.close()

    async def _produce(self, name: str) -> None:
        choices = Random(f"{self._seed}/{name}")

        async def produce(client: WorkloadClient) -> None:
            partition = choices.randrange(PARTITIONS)
            count = choices.randint(1, self.batch_records_max) if self.batch_records_max > 1 else 1
            values = [self._new_value(name) for _ in range(count)]
            await self._send(client, partition, values, build_batch([Record(value=value) for value in values]))
            await self._pause(choices.uniform(0.0, self._times.pause_s_max))

        await self._repeat(name, produce)

    async def _produce_idempotently(self, name: str) -> None:
        """Send each record until it is acknowledged, with the same sequence number."""
        choices = Random(f"{self._seed}/{name}")
        sequences = dict.fromkeys(range(PARTITIONS), 0)
        producer: InitProducerIdResponse | None = None
        unacknowledged: tuple[int, bytes] | None = None

        async def produce(client: WorkloadClient) -> None:
            nonlocal producer, unacknowledged
            if producer is None:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
                answer = await client.request(request, InitProducerIdResponse, _INIT_PRODUCER_ID)
                if answer.error_code != ErrorCode.NONE:
                    return
                producer = answer
            if unacknowledged is None:
                unacknowledged = (choices.randrange(PARTITIONS), self._new_value(name))
            partition, value = unacknowledged
            batch = build_batch(
                [Record(value=value)],
                producer_id=ProducerId(producer.producer_id),
                producer_epoch=ProducerEpoch(producer.producer_epoch),
                base_sequence=sequences[partition],
            )
            code = await self._send(client, partition, [value], batch)
            assert code in self.idempotent_codes, f"{name} got {ErrorCode(code).name}"
            if code == ErrorCode.NONE:
                sequences[partition] += 1
                unacknowledged = None
            await self._pause(choices.uniform(0.0, self._times.pause_s_max))

        await self._repeat(name, produce)

    async def _transact(self, client: WorkloadClient) -> None:
        await self._transactions.run_one(client)
        await self._pause(self._times.transaction_pause_s)

    def _new_value(self, name: str) -> bytes:
        self._values += 1
        return b"%d of %s" % (self._values, name.encode())

    async def _send(self, client: WorkloadClient, partition: int, values: Sequence[bytes], batch: bytearray) -> int:
        """Return the error code."""
        topics = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=batch)])]
        request = ProduceRequest(acks=-1, timeout_ms=int(1000 * self._times.request_s_max), topic_data=topics)
        response = await client.request(request, ProduceResponse, _PRODUCE)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            for number, value in enumerate(values):
                self.history.on_acknowledged(partition, answer.base_offset + number, value)
        return answer.error_code

    async def _consume(self, name: str) -> None:
        choices = Random(f"{self._seed}/{name}")
        offsets = dict.fromkeys(range(PARTITIONS), 0)

        async def fetch(client: WorkloadClient) -> None:
            partition = choices.randrange(PARTITIONS)
            if choices.random() < 0.05:
                offsets[partition] = 0
            offsets[partition] = await self._fetch(client, partition, offsets[partition])
            await self._pause(choices.uniform(0.0, self._times.pause_s_max))

        await self._repeat(name, fetch)

    async def _consume_as_member(self, name: str) -> None:
        member = self._new_member(name)

        async def consume(client: WorkloadClient) -> None:
            await member.run_one(client)
            await self._pause(self._times.member_pause_s)

        await self._repeat(name, consume)

    def _new_member(self, name: str) -> WorkloadMember:
        return WorkloadMember(self._seed, name, self._group, PARTITIONS, self._fetch, self._times.session_ms)

    async def _administrate(self, client: WorkloadClient) -> None:
        await self._admin.run_one(client)
        await self._pause(self._times.admin_pause_s)

    async def _fetch(self, client: WorkloadClient, partition: int, offset: int) -> int:
        """Read from an offset on. Returns the offset to continue at."""
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_BYTES_MAX)
        topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
        request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=_BYTES_MAX, session_epoch=-1, topics=topics)
        response = await client.request(request, FetchResponse, _FETCH)
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    assert self._deletions.may_be_gone(partition, offset), f"offset {offset} of {partition} has gone"
                    return self._deletions.requested[partition]
                assert isinstance(data.records, memoryview) or data.error_code, "a response without records"
                records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
                for position, header in iter_headers(records):
                    for record in iter_records(records, position, bytes_max=_BYTES_MAX):
                        if record.offset >= offset:
                            value = b"marker at %d" % record.offset if header.is_control else record.value or b""
                            self.history.on_read(partition, record.offset, value)
                            offset = record.offset + 1
        return offset

    async def _repeat(self, name: str, work: Callable[[WorkloadClient], Awaitable[None]]) -> None:
        """Do the work until the end, with a new connection after each error."""
        client: WorkloadClient | None = None
        while not self._is_over:
            try:
                client = client or await self._connect(name)
                await work(client)
            except _RETRIABLE:
                client = None
                await self._pause(self._times.retry_s)
        if client is not None:
            client.close()

    async def _retrying(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read as the judge: as clients do, again while brokers have not heard of the last election."""
        until_s = self._loop.time() + _SETTLE_S
        while True:
            try:
                return await read()
            except _RETRIABLE:
                if self._loop.time() > until_s:
                    raise
                await self._pause(self._times.retry_s)

    # Faults

    async def _break_things(self) -> None:
        choices = Random(f"{self._seed}/faults")
        faults = [self._kill, self._kill, self._cut_off, self._break_connections]
        while self._loop.time() < self._seconds:
            await self._pause(choices.uniform(0.05, 3.0))
            self.faults += 1
            await choices.choice(faults)(choices)

    async def _kill(self, choices: Random) -> None:
        variant = choices.choice((Variant.KEPT, Variant.LOST, Variant.TORN))
        self._note(f"kill, unsynced bytes {variant.name}")
        await self._broker.kill(variant)
        await self._pause(choices.uniform(0.01, 1.0))
        await self._broker.start()
        self._note("started")

    async def _cut_off(self, choices: Random) -> None:
        name = choices.choice([IDEMPOTENT, TRANSACTIONAL, *(f"producer-{number}" for number in range(_PRODUCERS))])
        self._note(f"{name} is cut off")
        self._loop.network.cut_off(name, HOST)
        await self._pause(choices.uniform(0.01, 8.0))
        self._loop.network.reconnect(name, HOST)

    async def _break_connections(self, choices: Random) -> None:
        name = f"consumer-{choices.randrange(_CONSUMERS)}"
        self._note(f"connections of {name} break")
        self._loop.network.reset(name)

    async def _pause(self, seconds: float) -> None:
        over = asyncio.Event()
        self._loop.call_later(seconds, over.set)
        await over.wait()

    def _note(self, event: str) -> None:
        acknowledged, read = len(self.history.acknowledged), len(self.history.read)
        self.events.append(f"{self._loop.time():.6f} {event}; {acknowledged} acknowledged, {read} read")

    # Judgement

    async def _judge(self) -> None:
        client = await self._connect("judge")
        await self._judge_transactions(client)
        await self._judge_group(client)
        self._admin.check(self._partition_counts())
        starts = {partition: self._log_of(partition).log_start_offset for partition in range(PARTITIONS)}
        ends: dict[int, int] = {}
        for partition, start in starts.items():
            end: int = start
            # Coordinators may still append markers.
            while end < self._log_of(partition).high_watermark:
                end = await self._retrying(partial(self._fetch, client, partition, end))
            ends[partition] = end
        client.close()
        for (partition, number), value in self.history.acknowledged.items():
            if number < starts[partition] and self._deletions.may_be_gone(partition, number):
                continue
            actual = self.history.read.get((partition, number))
            assert actual == value, f"{value!r} was acknowledged at {partition}/{number}, where now is {actual!r}"
        for partition in range(PARTITIONS):
            self._log_of(partition).validate()
            self._judge_partition(partition, starts[partition], ends[partition])
        self._note("judged")

    def _judge_partition(self, partition: int, start: int, end: int) -> None:
        self._deletions.check(partition, start)
        offsets = sorted(number for of, number in self.history.read if of == partition and start <= number < end)
        assert offsets == list(range(start, end)), f"the offsets of partition {partition} are not dense"
        values = [self.history.read[partition, number] for number in offsets]
        assert len(set(values)) == len(values), f"partition {partition} has a record twice"
        numbers = [int(value.split()[0]) for value in values if value.endswith(IDEMPOTENT.encode())]
        assert numbers == sorted(numbers), f"records of {IDEMPOTENT} are out of order"

    def _log_of(self, partition: int) -> Log:
        """Return the log of a partition's leader."""
        return self._broker.server.directory.get(TopicPartition(TOPIC, partition))

    def _partition_counts(self) -> dict[str, int]:
        topics = self._broker.server.services.topics.metadata.topics
        return {name: topic.partition_count for name, topic in topics.items() if not topic.is_hidden}

    async def _judge_group(self, client: WorkloadClient) -> None:
        """A new member gets all partitions once the others have gone, from the committed offsets on, and reads on."""
        member = self._new_member("judge")
        until_s = self._loop.time() + _SETTLE_S
        ends = {number: self._log_of(number).high_watermark for number in range(PARTITIONS)}
        while member.positions is None or any(member.positions.get(number, -1) < end for number, end in ends.items()):
            assert self._loop.time() < until_s, f"the group does not reach {ends}: {member.positions}"
            try:
                await member.run_one(client)
            except _RETRIABLE:
                await self._pause(self._times.retry_s)

    async def _judge_transactions(self, client: WorkloadClient) -> None:
        """Wait until the last transaction has timed out, and compare what committed readers see."""
        logs = [self._log_of(number) for number in range(PARTITIONS)]
        until_s = self._loop.time() + _SETTLE_S
        while any(log.last_stable_offset < log.high_watermark for log in logs):
            assert self._loop.time() < until_s, "the last stable offset does not move"
            await self._pause(1.0)
        visible: set[bytes] = set()
        for number, log in enumerate(logs):
            read = partial(read_committed, client, TOPIC, number, log.last_stable_offset, log.log_start_offset)
            visible.update(await self._retrying(read))
        self._transactions.check(visible)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def run_seeds(
    first: int, count: int, seconds: float = SECONDS, durability: Durability = Durability.FSYNC
) -> SimulationFailureError | None:
    """Run seeds until one fails. Returns its failure, or None."""
    for seed in range(first, first + count):
        try:
            SimulationRun(seed, seconds, durability).run()
        except SimulationFailureError as failure:
            return failure
    return None
