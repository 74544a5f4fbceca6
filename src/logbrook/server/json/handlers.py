"""The handlers of all JSON requests but Fetch.

A handler takes the services, the request and, if it needs it, the context of the request. It returns the object (or
its JSON text) that answers it, at once or as a future or coroutine. It raises LogbrookError for what cannot be done.

Clients of this protocol join no group. They commit offsets as Kafka's consumers with assigned partitions do, which a
group that has members rejects.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import aclosing
from math import isfinite
from typing import Any

from logbrook.config.kafka_settings import TOPIC_SETTINGS, canonical_values
from logbrook.core.groups.errors import GroupError
from logbrook.core.groups.messages import NO_GENERATION, NO_OFFSET, CommitRequest, FetchedOffset, OffsetToCommit
from logbrook.core.metadata import Topic
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.json_frames import to_json
from logbrook.protocol.json_requests import (
    CreateTopic,
    DescribePartition,
    DescribeTopic,
    ListTopics,
    MetricsFetch,
    OffsetCommit,
    OffsetFetch,
    Produce,
)
from logbrook.records.batch import HEADER_BYTES, NO_TIMESTAMP
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.api import RequestContext
from logbrook.server.errors import RequestRefusedError
from logbrook.server.json.access import shows_settings, shows_topic
from logbrook.server.metrics.scrape import MetricsPages
from logbrook.server.services import Services
from logbrook.server.topic_checks import check_partition_exists, check_topic_is_new
from logbrook.storage.errors import PartitionNotFoundError
from logbrook.storage.log import Log
from logbrook.storage.pending_append import PendingAppend

# Upper bounds of the lengths, deltas and attributes in an encoded record, and in one of its headers.
_RECORD_OVERHEAD_BYTES = 40
_HEADER_OVERHEAD_BYTES = 10


def produce(services: Services, request: Produce) -> "asyncio.Future[Any]":
    """Append all records of the request; the future resolves once they are as durable as the broker promises.

    They get consecutive offsets, in as many batches as `max.message.bytes` requires: only a single record can be too
    large, never a request. Raises LogbrookError.
    """
    if services.topics.is_internal(request.topic):
        raise RequestRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {request.topic!r} is internal")
    log = services.topics.log(TopicPartition(request.topic, request.partition))
    now_ms = services.clock.now_ms()
    records = [
        record if record.timestamp != NO_TIMESTAMP else record._replace(timestamp=now_ms) for record in request.records
    ]
    data = b"".join(build_batch(run) for run in _split_into_batches(records, log.config.max_message_bytes))
    answer: asyncio.Future[Any] = services.loop.create_future()
    if log.config.needs_inspection:
        services.inspector.inspect(
            log, memoryview(data), lambda result: _append_inspected(services, log, result, len(records), answer)
        )
    else:
        _append(services, log, data, len(records), answer)
    return answer


def _append_inspected(
    services: Services, log: Log, result: memoryview | LogbrookError, count: int, answer: "asyncio.Future[Any]"
) -> None:
    """Append inspected batches, unless the topic was deleted meanwhile."""
    try:
        if isinstance(result, LogbrookError):
            raise result
        if services.topics.log(log.partition) is not log:
            raise PartitionNotFoundError(log.partition)
        _append(services, log, result, count, answer)
    except LogbrookError as error:
        if not answer.done():
            answer.set_result(error)


def _append(services: Services, log: Log, data: bytes | memoryview, count: int, answer: "asyncio.Future[Any]") -> None:
    """Append `count` records and resolve `answer` once they are durable. Raises LogbrookError."""

    def on_append_done(append: PendingAppend) -> None:
        if answer.done():
            return
        if append.error is not None:
            answer.set_result(append.error)
            return
        answer.set_result(
            {
                "topic": log.partition.topic,
                "partition": log.partition.partition,
                "base_offset": append.base_offset,
                "last_offset": append.base_offset + count - 1,
                "log_start_offset": log.log_start_offset,
            }
        )

    services.appender.append(log, data, on_append_done)
    services.probe.topics[log.partition.topic].took(len(data), count)


def _split_into_batches(records: Sequence[Record], bytes_max: int) -> Iterator[Sequence[Record]]:
    """Yield runs of records that fit into a batch of `bytes_max`; a run of one record may not fit."""
    start, size = 0, HEADER_BYTES
    for index, record in enumerate(records):
        record_bytes = _encoded_bytes_max(record)
        if size + record_bytes > bytes_max and index > start:
            yield records[start:index]
            start, size = index, HEADER_BYTES
        size += record_bytes
    yield records[start:]


def _encoded_bytes_max(record: Record) -> int:
    headers = sum(_HEADER_OVERHEAD_BYTES + len(key.encode()) + len(value or b"") for key, value in record.headers)
    return _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def commit_offset(services: Services, request: OffsetCommit) -> Coroutine[Any, Any, dict[str, Any]]:
    """Answer once the offset is durable. Raises LogbrookError."""
    partition = _existing_partition(services, request.topic, request.partition)
    offset = OffsetToCommit(partition, Offset(request.offset), metadata=request.metadata)
    commit = services.groups.commit(
        CommitRequest(group_id=request.group, member_id="", generation=NO_GENERATION, offsets=[offset])
    )
    return _await_commit(commit, request, partition)


async def _await_commit(
    commit: "asyncio.Future[dict[TopicPartition, GroupError]]", request: OffsetCommit, partition: TopicPartition
) -> dict[str, Any]:
    error = (await commit).get(partition)
    if error is not None:
        raise error
    return {
        "group": request.group,
        "topic": request.topic,
        "partition": request.partition,
        "offset": request.offset,
    }


async def fetch_offset(services: Services, request: OffsetFetch) -> dict[str, Any]:
    """Raises LogbrookError."""
    partition = _existing_partition(services, request.topic, request.partition)
    committed = await committed_offset(services, request.group, partition)
    has_offset = committed != NO_OFFSET
    return {
        "group": request.group,
        "topic": request.topic,
        "partition": request.partition,
        "offset": committed.offset if has_offset else None,
        "metadata": committed.metadata if has_offset else None,
    }


async def committed_offset(services: Services, group_id: str, partition: TopicPartition) -> FetchedOffset:
    """Return the offset, `NO_OFFSET` for none, when the commits in flight are committed. Raises CoordinatorError."""
    offset = services.groups.fetch_offsets(group_id, [partition])[partition]
    for commit in services.groups.pending_commits([group_id]):
        await commit
    return offset


def _existing_partition(services: Services, topic: str, number: int) -> TopicPartition:
    """Raises TopicNotFoundError or PartitionNotFoundError."""
    partition = TopicPartition(topic, number)
    check_partition_exists(services.topics.metadata.topic(topic), partition)
    return partition


async def create_topic(services: Services, request: CreateTopic, context: RequestContext) -> dict[str, Any]:
    """Answer once the topic is durable. Raises LogbrookError."""
    if request.topic in services.topics.metadata.topics:
        await services.topics.refresh()
    check_topic_is_new(services, request.topic)
    settings = canonical_values(request.settings, TOPIC_SETTINGS)
    created = await services.topics.create(request.topic, request.partition_count, settings)
    return _describe(services, created, context)


def list_topics(services: Services, _request: ListTopics, context: RequestContext) -> dict[str, Any]:
    topics = sorted(services.topics.metadata.topics.values(), key=lambda topic: topic.name)
    shown = [topic for topic in topics if not topic.is_hidden and shows_topic(services, context, topic.name)]
    return {"topics": [_summary(services, topic) for topic in shown]}


def describe_topic(services: Services, request: DescribeTopic, context: RequestContext) -> dict[str, Any]:
    """Raises TopicNotFoundError."""
    topic = services.topics.metadata.topic(request.topic)
    logs = [services.topics.log(partition) for partition in topic.partitions]
    return {**_describe(services, topic, context), "partitions": [_offsets(log) for log in logs]}


def describe_partition(services: Services, request: DescribePartition) -> dict[str, Any]:
    """Raises TopicNotFoundError or PartitionNotFoundError."""
    log = services.topics.log(TopicPartition(request.topic, request.partition))
    return {
        "topic": request.topic,
        **_offsets(log),
        "segments": len(log.segments),
        "quarantined": None if log.corruption is None else str(log.corruption),
    }


def _summary(services: Services, topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partition_count": topic.partition_count,
        "internal": services.topics.is_internal(topic.name),
    }


def _describe(services: Services, topic: Topic, context: RequestContext) -> dict[str, Any]:
    """`settings` is null if the client may not see them."""
    settings = dict(topic.settings) if shows_settings(services, context, topic.name) else None
    return {**_summary(services, topic), "settings": settings}


def _offsets(log: Log) -> dict[str, Any]:
    return {
        "partition": log.partition.partition,
        "log_start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "log_end_offset": log.log_end_offset,
        "size_bytes": log.size,
    }


async def fetch_metrics(pages: MetricsPages, request: MetricsFetch, can_send: asyncio.Event) -> str:
    """Return the JSON text of all metrics with the prefix, by their Prometheus names.

    It may be large, so it is produced only when it can be sent.
    """
    await can_send.wait()
    series: list[str] = []
    async with aclosing(await pages.open()) as page:
        async for piece in page:
            lines = piece.decode().splitlines()
            series += [_member(line) for line in lines if line[:1] not in ("", "#") and line.startswith(request.prefix)]
    return f'{{"metrics":{{{",".join(series)}}}}}'


def _member(line: str) -> str:
    name, _, number = line.rpartition(" ")
    # JSON has no infinity and no NaN.
    return f"{to_json(name)}:{number if isfinite(float(number)) else 'null'}"
