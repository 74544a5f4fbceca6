"""Fetch: the records of a partition from an offset on, decompressed and written as JSON, a little at a time.

Kafka's clients look into batches themselves. Here the broker does it for them, in steps between which everyone else has
a turn, so that a large batch holds nobody up. Answers are not slices of files but memory, several times as much as the
records while they are written, so only a few are written at a time. A reader of committed records is not shown what
belongs to aborted transactions or comes after the last stable offset. Markers are never shown. Where only such things
are found the answer has no records, and says where to go on.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from logbrook.core.groups import NO_OFFSET
from logbrook.model import TopicPartition
from logbrook.protocol.json_frames import RecordTooLargeError, to_json
from logbrook.protocol.json_requests import Fetch, Isolation, Position, record_object
from logbrook.records.batch import BatchHeader, check_batch, iter_headers
from logbrook.records.errors import RecordsError
from logbrook.records.reader import iter_records
from logbrook.records.record import RawRecord
from logbrook.server.fetch_limits import fetch_bytes_max, fetch_deadline_s
from logbrook.server.json.offsets import committed_offset
from logbrook.server.metrics.scrape import Observed
from logbrook.server.services import Services
from logbrook.storage.log import Log
from logbrook.storage.log_reading import LogRead

_STEP_S = 0.002
ANSWERS_AT_ONCE = 4


class Turn(NamedTuple):
    """When an answer may be written: once it can be sent, and with only so many others at a time."""

    may_be_sent: asyncio.Event
    writing: asyncio.Semaphore

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        await self.may_be_sent.wait()
        async with self.writing:
            yield


async def fetch(broker: Observed, request: Fetch, turn: Turn) -> str:
    """The text of the answer. Raises LogbrookError."""
    services = broker.services
    partition = TopicPartition(request.topic, request.partition)
    log = services.topics.log(partition)
    offset = await _start_offset(services, request, log)
    until_s = fetch_deadline_s(services, request.max_wait_ms)
    is_over = request.max_wait_ms == 0
    while True:
        async with turn.taken():
            page = _Page(services, request, offset)
            await page.read(log)
            if page.records or is_over:
                services.probe.topics[request.topic].gave(page.records_bytes, len(page.records))
                return page.answer(log)
        if services.loop.time() >= until_s:
            is_over = True
        elif page.next_offset > offset:
            # There was something, though not for this reader, and there may be more.
            offset = page.next_offset
        else:
            is_over = await _wait(services, partition, until_s)


async def _start_offset(services: Services, request: Fetch, log: Log) -> int:
    if isinstance(request.offset, int):
        return request.offset
    if request.offset is None:
        assert request.group_id is not None
        committed = await committed_offset(services, request.group_id, log.partition)
        return log.log_start_offset if committed == NO_OFFSET else committed.offset
    return log.log_start_offset if request.offset is Position.EARLIEST else _end_offset(log, request.isolation)


def _end_offset(log: Log, isolation: Isolation) -> int:
    return log.last_stable_offset if isolation is Isolation.READ_COMMITTED else log.high_watermark


async def _wait(services: Services, partition: TopicPartition, until_s: float) -> bool:
    """Wait for something to be committed. Returns whether the time is up."""
    woken: asyncio.Future[bool] = services.loop.create_future()

    def wake(is_over: bool) -> None:
        if not woken.done():
            woken.set_result(is_over)

    wait = services.fetch_waits.add([partition], 1, until_s, wake)
    try:
        return await woken
    finally:
        wait.cancel()


class _Aborted(NamedTuple):
    """Where a producer's transaction was that was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int

    def has(self, header: BatchHeader) -> bool:
        is_within = self.first_offset <= header.base_offset <= self.last_offset
        return is_within and header.is_transactional and header.producer_id == self.producer_id


class _Page:
    """What one answer has room for."""

    def __init__(self, services: Services, request: Fetch, offset: int) -> None:
        self._services = services
        self._request = request
        self._offset = offset
        self._bytes_max = fetch_bytes_max(services, request.max_bytes)
        self._step_until_s = 0.0
        self.next_offset = offset
        self.records: list[str] = []
        self.records_bytes = 0
        self._text_length = 0

    async def read(self, log: Log) -> None:
        """Raises StorageError, RecordsError or RecordTooLargeError."""
        is_committed = self._request.isolation is Isolation.READ_COMMITTED
        up_to = log.last_stable_offset if is_committed else None
        found = log.read(self._offset, self._bytes_max, up_to=up_to)
        aborted: list[_Aborted] = []
        if is_committed:
            overlapping = log.producers.aborted.overlapping(self._offset, found.next_offset)
            aborted = [_Aborted(one.producer_id, one.first_offset, one.last_offset) for one in overlapping]
        decompressed_bytes_max = log.environment.config.decompressed_bytes_max
        self._begin_step()
        try:
            await self._read_batches(found, aborted, decompressed_bytes_max)
        except RecordsError:
            # What was good is given; whoever goes on from there is told.
            if not self.records:
                raise

    async def _read_batches(self, found: LogRead, aborted: list[_Aborted], decompressed_bytes_max: int) -> None:
        for part in found.slices:
            for position, header in iter_headers(part.data):
                await self._take_turns()
                if header.next_offset <= self._offset:
                    continue
                if not (header.is_control or any(one.has(header) for one in aborted)):
                    check_batch(part.data, position, len(part.data))
                    for record in iter_records(part.data, position, bytes_max=decompressed_bytes_max):
                        await self._take_turns()
                        if record.offset >= self._offset and not self._take(record, header.size):
                            return
                self.next_offset = header.next_offset
        # Compaction may have left a gap behind the last batch.
        self.next_offset = max(self.next_offset, found.next_offset)

    def _take(self, record: RawRecord, batch_bytes: int) -> bool:
        """Add the record, unless the answer is full. Raises RecordTooLargeError for one that no answer has room for."""
        headers = sum(len(key) + len(value or b"") for key, value in record.headers)
        size = len(record.key or b"") + len(record.value or b"") + headers
        # One that was not compressed is in memory anyway, as large as it is.
        size_max = max(self._services.config.network.fetch_bytes_max, batch_bytes)
        if size > size_max:
            if self.records:
                return False
            raise RecordTooLargeError(record.offset, size, size_max)
        text = record_object(record, self._request.encoding)
        if self.records and self._text_length + len(text) > self._bytes_max:
            return False
        self.records.append(text)
        self.records_bytes += size
        self._text_length += len(text)
        self.next_offset = record.offset + 1
        return True

    def answer(self, log: Log) -> str:
        around = to_json(
            {
                "topic": self._request.topic,
                "partition": self._request.partition,
                "next_offset": self.next_offset,
                "high_watermark": log.high_watermark,
                "last_stable_offset": log.last_stable_offset,
                "log_start_offset": log.log_start_offset,
            }
        )
        return f'{around[:-1]},"records":[{",".join(self.records)}]}}'

    def _begin_step(self) -> None:
        self._step_until_s = self._services.loop.time() + _STEP_S

    async def _take_turns(self) -> None:
        if self._services.loop.time() >= self._step_until_s:
            await asyncio.sleep(0)
            self._begin_step()
