"""The shell of the group coordinator: it appends what the coordinator decides, and answers when that is durable.

Group records live in `__consumer_offsets`, a compacted topic that is created with the first of them. Writes go out in
the order in which the coordinator gave them, and come back to it, replayed, in the same order. Until the topic has been
read at start, the coordinator answers that it is loading.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from logbrook.config import GroupConfig, OffsetStore
from logbrook.core.groups import CommitRequest, GroupCoordinator, JoinRequest, Outcome, Reply, SyncRequest, Write
from logbrook.core.groups.errors import CoordinatorNotAvailableError, GroupError
from logbrook.model import LogbrookError, TopicPartition
from logbrook.ports import Clock, Random
from logbrook.records.batch import check_batch, iter_headers
from logbrook.records.reader import iter_records
from logbrook.server.appends import Appends
from logbrook.server.topics import CONSUMER_OFFSETS, Topics
from logbrook.storage.batch_set import Origin
from logbrook.storage.ticket import Ticket

_SETTINGS = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(100 << 20),
    "max.message.bytes": str(16 << 20),
}
_LOAD_BYTES = 256 * 1024

_logger = logging.getLogger(__name__)


class _Pending(NamedTuple):
    write: Write
    on_done: Callable[[GroupError | None], None]
    ended: "asyncio.Future[None]"


class Groups:
    """One per broker. All of it runs on the event loop."""

    def __init__(
        self,
        config: GroupConfig,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        appends: Appends,
        clock: Clock,
        random: Random,
    ) -> None:
        self.coordinator = GroupCoordinator(config, random)
        self._config = config
        self._loop = loop
        self._topics = topics
        self._appends = appends
        # Sessions are counted in a time that no correction of the clock can make jump.
        self._clock = clock
        self._origin_ms = clock.now_ms() - int(clock.monotonic_s() * 1000)
        self._timer: asyncio.TimerHandle | None = None
        self._waiting_for_topic: deque[_Pending] = deque()
        self._creation: asyncio.Task[None] | None = None
        # Of each group, the end of the newest write that is under way; those before it end before it.
        self._last_writes: dict[str, asyncio.Future[None]] = {}
        self._asked: set[asyncio.Future[Any]] = set()
        self._is_stopping = False

    @property
    def now_ms(self) -> int:
        return self._origin_ms + int(self._clock.monotonic_s() * 1000)

    @property
    def _is_in_memory(self) -> bool:
        return self._config.offsets is OffsetStore.MEMORY

    async def load(self) -> None:
        """Read the groups and offsets of the past, a little at a time. Until then all requests are told to wait."""
        topic = None if self._is_in_memory else self._topics.metadata.topics.get(CONSUMER_OFFSETS)
        if topic is not None:
            try:
                for partition in topic.partitions:
                    await self._load(partition)
            except LogbrookError:
                # Offsets that cannot be read are not "no offsets": the groups stay unavailable.
                _logger.exception("the consumer offsets cannot be read; groups stay unavailable")
                return
        self.coordinator.finish_loading(self.now_ms)
        self._forget_deleted_topics()
        self._schedule()

    def _forget_deleted_topics(self) -> None:
        """A topic may have been deleted while its offsets could not be, by a crash or because they were being read."""
        coordinator = self.coordinator
        committed = {
            partition.topic
            for group in coordinator.list_groups()
            for partition in coordinator.fetch_offsets(group.group_id, None)
        }
        gone = committed - self._topics.metadata.topics.keys()
        if gone:
            _logger.info("forgetting what groups committed for topics that are gone: %s", ", ".join(sorted(gone)))
            self.forget_topics(gone)

    def stop(self) -> None:
        """Send away those who wait for others to join or to assign; they come back to the next start."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for future in [*self._asked]:
            if not future.done():
                future.set_exception(CoordinatorNotAvailableError(""))

    def join(self, request: JoinRequest) -> "asyncio.Future[Any]":
        """A JoinResult in the end, or a GroupError raised."""
        return self._ask(lambda token, now_ms: self.coordinator.join(request, token, now_ms))

    def sync(self, request: SyncRequest) -> "asyncio.Future[Any]":
        """A SyncResult in the end, or a GroupError raised."""
        return self._ask(lambda token, now_ms: self.coordinator.sync(request, token, now_ms))

    def commit(self, request: CommitRequest) -> "asyncio.Future[dict[TopicPartition, GroupError]]":
        """The partitions whose offsets were refused, once the others are durable. Raises GroupError."""
        decision = self.coordinator.commit_offsets(request, self.now_ms)
        return self._when_written(decision.write, decision.errors)

    def writes_under_way(self, group_ids: Iterable[str]) -> "list[asyncio.Future[None]]":
        """What to wait for until all that was asked of these groups so far can be seen. Not to be cancelled."""
        return [ended for group_id in group_ids if (ended := self._last_writes.get(group_id))]

    def delete_offsets(
        self, group_id: str, partitions: list[TopicPartition]
    ) -> "asyncio.Future[dict[TopicPartition, GroupError]]":
        """The partitions whose offsets may not go, once the others are gone. Raises GroupError."""
        deletion = self.coordinator.delete_offsets(group_id, partitions)
        return self._when_written(deletion.write, deletion.errors)

    def delete_group(self, group_id: str) -> "asyncio.Future[dict[TopicPartition, GroupError]]":
        """Done when the group is gone. Raises GroupError."""
        return self._when_written(self.coordinator.delete_group(group_id), {})

    def forget_topics(self, topics: Collection[str]) -> None:
        """Topics were deleted, and what was committed for them goes too."""
        for write in self.coordinator.delete_topic_offsets(topics):
            self._write(write)

    def carry_out(self, outcome: Outcome) -> None:
        """Do what the coordinator wants done."""
        for reply in outcome.replies:
            _send(reply)
        for write in outcome.writes:
            self._write(write)
        self._schedule()

    def _ask(self, ask: Callable[[object, int], Outcome]) -> "asyncio.Future[Any]":
        future = self._loop.create_future()
        self.carry_out(ask(future, self.now_ms))
        if not future.done():
            self._asked.add(future)
            future.add_done_callback(self._answered)
        return future

    def _answered(self, future: "asyncio.Future[Any]") -> None:
        self._asked.discard(future)
        if future.cancelled():
            self.coordinator.disconnect(future, self.now_ms)
            self._schedule()

    def _when_written(
        self, write: Write, errors: dict[TopicPartition, GroupError]
    ) -> "asyncio.Future[dict[TopicPartition, GroupError]]":
        future: asyncio.Future[dict[TopicPartition, GroupError]] = self._loop.create_future()

        def done(error: GroupError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(errors)
            else:
                future.set_exception(error)

        self._write(write, done)
        return future

    def _write(self, write: Write, on_done: Callable[[GroupError | None], None] = lambda _error: None) -> None:
        pending = _Pending(write, on_done, self._loop.create_future())
        if not write.records or self._is_in_memory:
            self._written(pending)
            return
        self._last_writes[write.group_id] = pending.ended
        if self._waiting_for_topic or CONSUMER_OFFSETS not in self._topics.metadata.topics:
            self._waiting_for_topic.append(pending)
            if self._creation is None:
                self._creation = self._loop.create_task(self._create_topic())
        else:
            self._append(pending)

    def _append(self, pending: _Pending) -> None:
        def done(ticket: Ticket) -> None:
            if ticket.error is None:
                self._written(pending)
            else:
                self._failed(pending, ticket.error)

        try:
            log = self._topics.log(self._partition_of(pending.write.group_id))
            self._appends.append(log, self._appends.batch_of(pending.write.records), done, Origin.COORDINATOR)
        except LogbrookError as error:
            self._failed(pending, error)

    def _written(self, pending: _Pending) -> None:
        for key, value in pending.write.records:
            self.coordinator.replay(key, value)
        for reply in pending.write.replies:
            _send(reply)
        pending.on_done(None)
        self._end(pending)

    def _failed(self, pending: _Pending, error: LogbrookError) -> None:
        _logger.error("group %r could not be written: %s", pending.write.group_id, error)
        pending.on_done(CoordinatorNotAvailableError(pending.write.group_id))
        self._end(pending)
        self.carry_out(self.coordinator.write_failed(pending.write, self.now_ms))

    def _end(self, pending: _Pending) -> None:
        pending.ended.set_result(None)
        if self._last_writes.get(pending.write.group_id) is pending.ended:
            del self._last_writes[pending.write.group_id]

    async def _create_topic(self) -> None:
        try:
            await self._topics.create(CONSUMER_OFFSETS, self._config.offsets_partitions, _SETTINGS)
        except LogbrookError as error:
            waiting, self._waiting_for_topic = self._waiting_for_topic, deque()
            for pending in waiting:
                self._failed(pending, error)
        else:
            while self._waiting_for_topic:
                self._append(self._waiting_for_topic.popleft())
        finally:
            self._creation = None

    def _partition_of(self, group_id: str) -> TopicPartition:
        count = self._topics.metadata.topic(CONSUMER_OFFSETS).partition_count
        return TopicPartition(CONSUMER_OFFSETS, (_java_hash(group_id) & 0x7FFF_FFFF) % count)

    async def _load(self, partition: TopicPartition) -> None:
        log = self._topics.log(partition)
        bytes_max = log.environment.config.decompressed_bytes_max
        for part in log.read_range(log.log_start_offset, log.high_watermark, _LOAD_BYTES):
            for position, _ in iter_headers(part.data):
                # A flipped bit may well be another offset.
                check_batch(part.data, position, part.length)
                for record in iter_records(part.data, position, bytes_max=bytes_max):
                    if record.key is not None:
                        self.coordinator.replay(record.key, record.value)
            await asyncio.sleep(0)

    def _schedule(self) -> None:
        """Set the one timer to when the coordinator next has something to do."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.coordinator.next_deadline_ms()
        if deadline_ms is not None and not self._is_stopping:
            delay_s = max(0.0, (deadline_ms - self.now_ms) / 1000)
            self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.carry_out(self.coordinator.tick(self.now_ms))


def _send(reply: Reply) -> None:
    future = reply.reply_to
    assert isinstance(future, asyncio.Future)
    if future.done():
        return
    if isinstance(reply.result, GroupError):
        future.set_exception(reply.result)
    else:
        future.set_result(reply.result)


def _java_hash(text: str) -> int:
    """Java's String.hashCode, by which Kafka spreads groups over the partitions."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[position : position + 2], "big")) & 0xFFFF_FFFF
    return value
