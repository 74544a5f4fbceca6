"""Transactions in a simulation: a transactional producer, and a reader of committed records that checks them.

A transaction writes some batches to each partition, without waiting for the answers in between, and is committed or
aborted. If an answer is lost, its outcome is
unknown: all of its records are committed or none. The next transaction starts with InitProducerId, which aborts what is
still open. With transaction version 1, as older clients, the producer adds the partitions itself, keeps its epoch, and
sends EndTxn until it is answered. The coordinator aborts a transaction that takes longer than its timeout and fences
its producer; a producer that is in time must never be fenced.
"""

import asyncio
from collections.abc import Iterator
from random import Random

from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_classes import REFRESH_METADATA
from logbrook.protocol.error_codes import RETRIABLE, ErrorCode
from logbrook.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from logbrook.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from logbrook.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from logbrook.records.batch import iter_headers
from logbrook.records.builder import build_batch
from logbrook.records.control import read_marker
from logbrook.records.reader import iter_records
from logbrook.records.record import Record
from logbrook.testing.simulation.client import WorkloadClient

TIMEOUT_MS = 3_000
_INIT_PRODUCER_ID, _ADD_PARTITIONS, _FETCH = 4, 3, 12
# By transaction version (KIP-890).
_PRODUCE, _END_TXN = {1: 11, 2: 12}, {1: 4, 2: 5}
_READ_COMMITTED = 1
_BYTES_MAX = 1 << 20
# Of a transaction, to each partition.
_BATCHES_MAX = 3
_RETRIABLE = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}
# Of a producer whose transaction has timed out.
_FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


class UnfinishedTransactionError(OSError):
    """A request was refused. The transaction is given up."""


class TransactionalWorkload:
    """One transactional producer. Call `run_one` again and again, with whatever connection there is."""

    def __init__(
        self,
        seed: int,
        topic: str,
        partitions: int,
        transactional_id: str,
        timeout_ms: int = TIMEOUT_MS,
        version: int = 2,
    ) -> None:
        """`version` is that of the transactions (KIP-890)."""
        self._timeout_ms = timeout_ms
        self._version = version
        self._random = Random(f"{seed}/{transactional_id}")
        self._topic = topic
        self._partitions = partitions
        self._id = transactional_id
        self._count = 0
        self._started_s = 0.0
        # Producer id and epoch; None: to be initialized.
        self._producer: tuple[int, int] | None = None
        # The next sequence number of each partition.
        self._sequences: dict[int, int] = {}
        # The end of a transaction of version 1 that was not answered, and its values.
        self._ending: tuple[EndTxnRequest, list[bytes]] | None = None
        # Values by outcome.
        self.committed: list[list[bytes]] = []
        self.aborted: list[list[bytes]] = []
        self.unknown: list[list[bytes]] = []

    async def run_one(self, client: WorkloadClient) -> None:
        """Run one transaction, or end the last one again. Raises OSError if it could not be finished."""
        if self._ending is not None:
            await self._end(client, *self._ending)
            return
        producer, self._producer = self._producer, None
        if producer is None:
            producer = await self._initialize(client)
        self._count += 1
        batches = [
            [
                b"%d/%d.%d of %s" % (self._count, partition, number, self._id.encode())
                for number in range(self._batches())
            ]
            for partition in range(self._partitions)
        ]
        values = [value for of_partition in batches for value in of_partition]
        is_commit = self._random.random() < 0.7
        self.unknown.append(values)
        self._started_s = asyncio.get_running_loop().time()
        if self._version == 1:
            await self._add_partitions(client, producer)
        for partition, of_partition in enumerate(batches):
            await self._write(client, producer, partition, of_partition)
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=producer[0], producer_epoch=producer[1], committed=is_commit
        )
        await self._end(client, request, values)

    async def _end(self, client: WorkloadClient, request: EndTxnRequest, values: list[bytes]) -> None:
        if self._version == 1:
            self._ending = request, values
        answer = await client.request(request, EndTxnResponse, _END_TXN[self._version])
        if answer.error_code not in _RETRIABLE:
            self._ending = None
        self._check(answer.error_code)
        self.unknown.remove(values)
        (self.committed if request.committed else self.aborted).append(values)
        if self._version == 1:
            self._producer = (request.producer_id, request.producer_epoch)
        else:
            self._producer = (answer.producer_id, answer.producer_epoch)
            self._sequences.clear()

    async def _initialize(self, client: WorkloadClient) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=self._timeout_ms)
        answer = await client.request(request, InitProducerIdResponse, _INIT_PRODUCER_ID)
        self._check(answer.error_code)
        self._sequences.clear()
        return answer.producer_id, answer.producer_epoch

    async def _add_partitions(self, client: WorkloadClient, producer: tuple[int, int]) -> None:
        topic = AddPartitionsToTxnTopic(name=self._topic, partitions=range(self._partitions))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[topic],
        )
        answer = await client.request(request, AddPartitionsToTxnResponse, _ADD_PARTITIONS)
        for added in answer.results_by_topic_v3_and_below:
            for result in added.results_by_partition:
                self._check(result.partition_error_code)

    async def _write(
        self, client: WorkloadClient, producer: tuple[int, int], partition: int, values: list[bytes]
    ) -> None:
        first = self._sequences.get(partition, 0)
        requests = [
            self._produce_request(producer, partition, value, first + number) for number, value in enumerate(values)
        ]
        for answer in await client.request_all(requests, ProduceResponse, _PRODUCE[self._version]):
            # Batches after one that was refused may be out of order.
            self._check(answer.responses[0].partition_responses[0].error_code)
        self._sequences[partition] = first + len(values)

    def _produce_request(
        self, producer: tuple[int, int], partition: int, value: bytes, sequence: int
    ) -> ProduceRequest:
        batch = build_batch(
            [Record(value=value)],
            producer_id=ProducerId(producer[0]),
            producer_epoch=ProducerEpoch(producer[1]),
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        return ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=5_000, topic_data=[data])

    def _batches(self) -> int:
        return self._random.randint(1, _BATCHES_MAX)

    def _check(self, code: int) -> None:
        """Raises UnfinishedTransactionError for an error after which a client begins again; others are violations."""
        if code == ErrorCode.NONE:
            return
        took_ms = 1000 * (asyncio.get_running_loop().time() - self._started_s)
        is_fenced = code in _FENCED and took_ms >= self._timeout_ms
        assert code in _RETRIABLE or is_fenced, (
            f"a transactional request got {ErrorCode(code).name} after {took_ms:.0f} ms"
        )
        raise UnfinishedTransactionError(ErrorCode(code).name)

    def check(self, visible: set[bytes]) -> None:
        """Assert that readers of committed records see whole transactions, and none that was aborted."""
        for values in self.committed:
            assert visible.issuperset(values), f"{values} were committed, and some are not visible"
        for values in self.aborted:
            assert not visible.intersection(values), f"{values} were aborted, and some are visible"
        for values in self.unknown:
            seen = visible.intersection(values)
            assert not seen or seen == set(values), f"of the transaction {values} only {seen} are visible"


async def read_committed(client: WorkloadClient, topic: str, partition: int, end: int, start: int = 0) -> list[bytes]:
    """Return the committed values of a partition from `start` up to `end`. Raises OSError."""
    values: list[bytes] = []
    offset = start
    while offset < end:
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_BYTES_MAX)
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=_BYTES_MAX,
            isolation_level=_READ_COMMITTED,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        response = await client.request(request, FetchResponse, _FETCH)
        data = response.responses[0].partitions[0]
        if data.error_code in REFRESH_METADATA:
            raise ConnectionRefusedError(ErrorCode(data.error_code).name)
        assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code).name
        assert isinstance(data.records, memoryview)
        for next_offset, committed in _committed(data.records, data.aborted_transactions or ()):
            offset = next_offset
            values += committed
    return values


def _committed(records: memoryview, aborted: object) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the offset after each batch and its values, without those of aborted transactions, as consumers do."""
    assert isinstance(aborted, list | tuple)
    pending: list[AbortedTransaction] = sorted(aborted, key=lambda transaction: transaction.first_offset)
    open_aborted: set[int] = set()
    for position, header in iter_headers(records):
        while pending and pending[0].first_offset <= header.last_offset:
            open_aborted.add(pending.pop(0).producer_id)
        batch = records[position : position + header.size]
        values: list[bytes] = []
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            values = [record.value or b"" for record in iter_records(batch, bytes_max=_BYTES_MAX)]
        yield header.next_offset, values
