"""Produce: records become batches of the log, and are answered when they are as durable as the broker promises.

All records of a request are appended together, in as many batches as `max.message.bytes` takes, and get offsets without
a gap. So what is too large is a record, never a request.
"""

from asyncio import Future
from collections.abc import Iterator, Sequence
from typing import Any

from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.json_requests import Produce
from logbrook.records.batch import HEADER_BYTES, NO_TIMESTAMP
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.metrics.scrape import Observed
from logbrook.server.refusals import RefusedError
from logbrook.storage.ticket import Ticket

# The most that the lengths, deltas and attributes of a record take, and those of a header.
_RECORD_OVERHEAD_BYTES = 40
_HEADER_OVERHEAD_BYTES = 10


def produce(broker: Observed, request: Produce) -> "Future[Any]":
    """Raises LogbrookError."""
    services = broker.services
    if services.topics.is_internal(request.topic):
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {request.topic!r} is the broker's own")
    log = services.topics.log(TopicPartition(request.topic, request.partition))
    now_ms = services.clock.now_ms()
    records = [one if one.timestamp != NO_TIMESTAMP else one._replace(timestamp=now_ms) for one in request.records]
    data = b"".join(build_batch(part) for part in _batches(records, log.config.max_message_bytes))
    answer: Future[Any] = services.loop.create_future()

    def done(ticket: Ticket) -> None:
        if answer.done():
            return
        if ticket.error is not None:
            answer.set_result(ticket.error)
            return
        answer.set_result(
            {
                "topic": request.topic,
                "partition": request.partition,
                "base_offset": ticket.base_offset,
                "last_offset": ticket.base_offset + len(records) - 1,
                "log_start_offset": log.log_start_offset,
            }
        )

    services.appends.append(log, data, done)
    services.probe.topics[request.topic].took(len(data), len(records))
    return answer


def _batches(records: Sequence[Record], bytes_max: int) -> Iterator[Sequence[Record]]:
    """The records in runs that surely fit into a batch, but for a record that alone might not."""
    start, size = 0, HEADER_BYTES
    for number, record in enumerate(records):
        more = _size_at_most(record)
        if size + more > bytes_max and number > start:
            yield records[start:number]
            start, size = number, HEADER_BYTES
        size += more
    yield records[start:]


def _size_at_most(record: Record) -> int:
    headers = sum(_HEADER_OVERHEAD_BYTES + len(key.encode()) + len(value or b"") for key, value in record.headers)
    return _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers
