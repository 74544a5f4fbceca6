"""Fetch: batches from the offsets asked for, now, or when enough is there, or when the client's patience ends.

The bytes of a closed segment go from its mapping to the socket; nothing is decoded and nothing is copied. The first
batch that there is is always given, however large, so that no reader gets stuck behind one.
"""

from asyncio import Future
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from logbrook.core.fetch_sessions import FetchContext, FetchPartition, FetchSessionError, PartitionKey
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from logbrook.server.api import Api, Call, Handled
from logbrook.server.errors import error_code
from logbrook.server.fetch_limits import fetch_bytes_max, fetch_deadline_s
from logbrook.server.fetch_waits import FetchWait
from logbrook.server.leader_epoch import check_leader_epoch
from logbrook.server.services import Services

_READ_COMMITTED = 1
_TOPIC_IDS_SINCE = 13

_Read: TypeAlias = tuple[FetchPartition, PartitionData]


def handle(services: Services, request: FetchRequest, call: Call) -> Handled:
    replica_id = request.replica_state.replica_id if request.replica_state is not None else request.replica_id
    if replica_id >= 0:
        # Followers need the broker's own credentials (CVE-2018-1288), and there are none of either.
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        context = services.fetch_sessions.begin(
            request.session_id,
            request.session_epoch,
            _wanted(request, call.version),
            _forgotten(request, call.version),
            services.clock.now_ms(),
            by_id=call.version >= _TOPIC_IDS_SINCE,
        )
    except FetchSessionError as error:
        return FetchResponse(error_code=error_code(error))
    return _Fetch(services, request, context).begin()


API = Api(FetchRequest, FetchResponse, handle)


def _wanted(request: FetchRequest, version: int) -> Iterator[FetchPartition]:
    for topic in request.topics:
        key = topic.topic_id if version >= _TOPIC_IDS_SINCE else topic.topic
        for one in topic.partitions:
            yield FetchPartition(
                (key, one.partition), one.fetch_offset, one.partition_max_bytes, one.current_leader_epoch
            )


def _forgotten(request: FetchRequest, version: int) -> Iterator[tuple[bytes | str, int]]:
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if version >= _TOPIC_IDS_SINCE else topic.topic
        for partition in topic.partitions:
            yield key, partition


class _Fetch:
    """One request under way. It reads when it begins, and again whenever it is woken."""

    def __init__(self, services: Services, request: FetchRequest, context: FetchContext) -> None:
        self._services = services
        self._request = request
        self._context = context
        self._until_s = fetch_deadline_s(services, request.max_wait_ms)
        self._future: Future[Any] | None = None
        self._wait: FetchWait | None = None
        self._waits_for: list[TopicPartition] = []
        self._next_offsets: dict[PartitionKey, int] = {}
        self._has_error = False

    def begin(self) -> Handled:
        read, size = self._read()
        if self._request.max_wait_ms <= 0 or self._is_enough(read, size):
            return self._respond(read)
        self._future = self._services.loop.create_future()
        self._future.add_done_callback(self._stop_waiting)
        self._wait_for(size)
        return self._future

    def _is_enough(self, read: Sequence[_Read], size: int) -> bool:
        if self._has_error or size >= self._request.min_bytes or not self._waits_for:
            return True
        # Batches are given whole, so an answer may be full though it is smaller than what was asked for.
        return size > 0 and any(self._has_more(wanted, data) for wanted, data in read)

    def _has_more(self, wanted: FetchPartition, data: PartitionData) -> bool:
        """Whether there are records that did not fit."""
        is_committed = self._request.isolation_level == _READ_COMMITTED
        end_offset = data.last_stable_offset if is_committed else data.high_watermark
        return self._next_offsets.get(wanted.key, wanted.fetch_offset) < end_offset

    def _wait_for(self, size: int) -> None:
        missing = self._request.min_bytes - size
        self._wait = self._services.fetch_waits.add(self._waits_for, missing, self._until_s, self._woken)

    def _woken(self, time_is_up: bool) -> None:
        self._wait = None
        future = self._future
        if future is None or future.done():
            return
        read, size = self._read()
        if time_is_up or self._is_enough(read, size):
            future.set_result(self._respond(read))
        else:
            self._wait_for(size)

    def _stop_waiting(self, _future: "Future[Any]") -> None:
        if self._wait is not None:
            self._wait.cancel()

    def _read(self) -> tuple[list[_Read], int]:
        self._waits_for = []
        self._next_offsets = {}
        self._has_error = False
        room = left = fetch_bytes_max(self._services, self._request.max_bytes)
        read: list[_Read] = []
        for wanted in self._context:
            data, size = self._read_partition(wanted, left, is_first=left == room)
            read.append((wanted, data))
            left -= size
        return read, room - left

    def _read_partition(self, wanted: FetchPartition, left: int, *, is_first: bool) -> tuple[PartitionData, int]:
        key, number = wanted.key
        data = PartitionData(partition_index=number, high_watermark=-1, records=b"")
        topics = self._services.topics
        try:
            name = key if isinstance(key, str) else topics.metadata.topic_with_id(key).name
            partition = TopicPartition(name, number)
            log = topics.log(partition)
            check_leader_epoch(partition, wanted.current_leader_epoch, self._services.appends.leader_epoch)
            is_committed = self._request.isolation_level == _READ_COMMITTED
            up_to = log.last_stable_offset if is_committed else None
            bytes_max = min(left, max(0, wanted.partition_max_bytes))
            found = log.read(wanted.fetch_offset, bytes_max, up_to=up_to, at_least_one=is_first)
            if is_committed:
                data.aborted_transactions = [
                    AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                    for producer_id, first_offset in log.aborted_between(wanted.fetch_offset, found.next_offset)
                ]
        except LogbrookError as error:
            self._has_error = True
            code = error_code(error)
            data.error_code = code
            self._services.probe.errors["Fetch", code.name] += 1
            return data, 0
        self._waits_for.append(partition)
        data.high_watermark = found.high_watermark
        data.last_stable_offset = found.last_stable_offset
        data.log_start_offset = found.log_start_offset
        data.records = [part.data for part in found.slices]
        if found.slices:
            self._next_offsets[wanted.key] = found.next_offset
        return data, found.length

    def _respond(self, read: Sequence[_Read]) -> FetchResponse:
        context = self._context
        topics: dict[bytes | str, FetchableTopicResponse] = {}
        for wanted, data in read:
            size = sum(map(len, data.records)) if isinstance(data.records, list) else 0
            is_news = wanted.is_news(
                high_watermark=data.high_watermark,
                log_start_offset=data.log_start_offset,
                has_records=size > 0,
                has_error=bool(data.error_code),
            )
            if not (is_news or context.is_full):
                continue
            key = wanted.key[0]
            if key not in topics:
                topics[key] = _topic_response(key)
            topics[key].partitions.append(data)  # type: ignore[attr-defined]
            if size:
                context.served(wanted)
                self._count(wanted, size)
        return FetchResponse(session_id=context.session_id, responses=list(topics.values()))

    def _count(self, wanted: FetchPartition, size: int) -> None:
        key, _ = wanted.key
        metadata = self._services.topics.metadata
        name = key if isinstance(key, str) else metadata.topic_with_id(key).name
        # By offsets, since nobody looks into the batches: those that were compacted away count too.
        messages = self._next_offsets[wanted.key] - wanted.fetch_offset
        self._services.probe.topics[name].gave(size, messages)


def _topic_response(key: bytes | str) -> FetchableTopicResponse:
    if isinstance(key, bytes):
        return FetchableTopicResponse(topic_id=key, partitions=[])
    return FetchableTopicResponse(topic=key, partitions=[])
