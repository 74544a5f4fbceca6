"""The JSON Fetch request: the records of a partition from an offset on, decompressed and written as JSON.

Kafka's consumers decode batches themselves; here the broker does, in steps of `_STEP_S` between which other requests
run. Responses are memory, several times the size of the records while they are written, so only
`CONCURRENT_RESPONSES_MAX` are written at a time.

With `read_committed`, records of aborted transactions and records from the last stable offset on are left out. Control
batches are always left out. If nothing else was read, the response has no records, and the next fetch continues at its
`next_offset`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from logbrook.core.groups.messages import NO_OFFSET
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.json_frames import RecordTooLargeError, to_json
from logbrook.protocol.json_requests import Fetch, Isolation, Position, record_object
from logbrook.records.batch import BatchHeader, check_batch, iter_headers
from logbrook.records.errors import RecordsError
from logbrook.records.reader import iter_records
from logbrook.records.record import RawRecord
from logbrook.server.json.handlers import committed_offset
from logbrook.server.pending_fetch import EXHAUSTED_WAIT_S, fetch_deadline_s
from logbrook.server.services import Services
from logbrook.storage.log import Log
from logbrook.storage.log_reading import LogRead
from logbrook.storage.transaction_index import AbortedTxn

CONCURRENT_RESPONSES_MAX = 4
_STEP_S = 0.002


class ResponseSlot(NamedTuple):
    """Permission to write a response: once it can be sent, and for a limited number of responses at a time."""

    can_send: asyncio.Event
    writing: asyncio.Semaphore

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        await self.can_send.wait()
        async with self.writing:
            yield


async def fetch(services: Services, request: Fetch, slot: ResponseSlot) -> str:
    """Return the JSON text of the response, after at most `max_wait_ms` without records. Raises LogbrookError."""
    partition = TopicPartition(request.topic, request.partition)
    log = services.topics.log(partition)
    offset = await _start_offset(services, request, log)
    deadline_s = fetch_deadline_s(services, request.max_wait_ms)
    is_over = request.max_wait_ms == 0
    while True:
        async with slot.taken():
            page = _JsonFetchPage(services, request, Offset(offset))
            is_exhausted = services.response_memory.is_exhausted
            with services.response_memory.reserved(page.bytes_max):
                if not is_exhausted:
                    await page.read(log)
                if page.records or is_over:
                    services.probe.topics[request.topic].gave(page.records_bytes, len(page.records))
                    return page.to_json(log)
        if services.loop.time() >= deadline_s:
            is_over = True
        elif page.next_offset > offset:
            # All that was read was left out; there may be more.
            offset = page.next_offset
        else:
            until_s = min(deadline_s, services.loop.time() + EXHAUSTED_WAIT_S) if is_exhausted else deadline_s
            is_over = await _wait_for_commit(services, partition, until_s)


async def _start_offset(services: Services, request: Fetch, log: Log) -> int:
    if isinstance(request.offset, int):
        return request.offset
    if request.offset is None:
        assert request.group_id is not None
        committed = await committed_offset(services, request.group_id, log.partition)
        return log.log_start_offset if committed == NO_OFFSET else committed.offset
    if request.offset is Position.EARLIEST:
        return log.log_start_offset
    return log.last_stable_offset if request.isolation is Isolation.READ_COMMITTED else log.high_watermark


async def _wait_for_commit(services: Services, partition: TopicPartition, deadline_s: float) -> bool:
    """Wait until something is committed to the partition. Return True if the deadline has passed instead."""
    woken: asyncio.Future[bool] = services.loop.create_future()

    def wake(is_over: bool) -> None:
        if not woken.done():
            woken.set_result(is_over)

    wait = services.fetch_purgatory.add([partition], 1, deadline_s, wake)
    try:
        return await woken
    finally:
        wait.cancel()


class _JsonFetchPage:
    """The records of one response, and the offset after them."""

    def __init__(self, services: Services, request: Fetch, offset: Offset) -> None:
        self._services = services
        self._request = request
        self._offset = offset
        self.bytes_max = services.response_memory.fetch_bytes_max(request.max_bytes)
        self._step_until_s = 0.0
        self.next_offset = offset
        self.records: list[str] = []
        self.records_bytes = 0
        self._text_length = 0

    async def read(self, log: Log) -> None:
        """Raises StorageError, RecordsError or RecordTooLargeError."""
        is_committed = self._request.isolation is Isolation.READ_COMMITTED
        read = await self._services.cold_reads.read(
            lambda: log.read(self._offset, self.bytes_max, up_to=log.last_stable_offset if is_committed else None)
        )
        aborted = log.producers.aborted.overlapping(self._offset, read.next_offset) if is_committed else ()
        decompressed_bytes_max = log.environment.config.decompressed_bytes_max
        self._begin_step()
        try:
            await self._read_batches(read, aborted, decompressed_bytes_max)
        except RecordsError:
            # Return the records before the corrupt batch; the next fetch reports the error.
            if not self.records:
                raise

    async def _read_batches(self, read: LogRead, aborted: Sequence[AbortedTxn], decompressed_bytes_max: int) -> None:
        for part in read.slices:
            for position, header in iter_headers(part.data):
                await self._yield_if_due()
                if header.next_offset <= self._offset:
                    continue
                if not (header.is_control or any(_is_part_of(header, transaction) for transaction in aborted)):
                    check_batch(part.data, position, len(part.data))
                    for record in iter_records(part.data, position, bytes_max=decompressed_bytes_max):
                        await self._yield_if_due()
                        if record.offset >= self._offset and not self._add(record, header.size):
                            return
                self.next_offset = header.next_offset
        # Compaction may have left a gap behind the last batch.
        self.next_offset = max(self.next_offset, read.next_offset)

    def _add(self, record: RawRecord, batch_bytes: int) -> bool:
        """Add the record, or return False if the page is full. Raises RecordTooLargeError if no page has room."""
        headers = sum(len(key) + len(value or b"") for key, value in record.headers)
        size = len(record.key or b"") + len(record.value or b"") + headers
        # A record of an uncompressed batch is in memory anyway, whatever its size.
        size_max = max(self._services.config.network.fetch_bytes_max, batch_bytes)
        if size > size_max:
            if self.records:
                return False
            raise RecordTooLargeError(record.offset, size, size_max)
        text = record_object(record, self._request.encoding)
        if self.records and self._text_length + len(text) > self.bytes_max:
            return False
        self.records.append(text)
        self.records_bytes += size
        self._text_length += len(text)
        self.next_offset = Offset(record.offset + 1)
        return True

    def to_json(self, log: Log) -> str:
        head = to_json(
            {
                "topic": self._request.topic,
                "partition": self._request.partition,
                "next_offset": self.next_offset,
                "high_watermark": log.high_watermark,
                "last_stable_offset": log.last_stable_offset,
                "log_start_offset": log.log_start_offset,
            }
        )
        return f'{head[:-1]},"records":[{",".join(self.records)}]}}'

    def _begin_step(self) -> None:
        self._step_until_s = self._services.loop.time() + _STEP_S

    async def _yield_if_due(self) -> None:
        if self._services.loop.time() >= self._step_until_s:
            await asyncio.sleep(0)
            self._begin_step()


def _is_part_of(header: BatchHeader, transaction: AbortedTxn) -> bool:
    is_within = transaction.first_offset <= header.base_offset <= transaction.last_offset
    return is_within and header.is_transactional and header.producer_id == transaction.producer_id
