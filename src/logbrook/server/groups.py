"""The shell of the group coordinator: it appends what the coordinator decides, and answers when that is durable.

Group records live in `__consumer_offsets`, a compacted topic that is created with the first of them. Writes go out in
the order in which the coordinator gave them, and come back to it, replayed, in the same order. Until the topic has been
read at start, the coordinator answers that it is loading. Offsets that belong to a transaction are written as part of
it, and count when the transaction coordinator says so.
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
from logbrook.records.control import read_marker
from logbrook.records.reader import iter_records
from logbrook.server.appends import Appends
from logbrook.server.internal_topic import InternalTopic
from logbrook.server.topics import CONSUMER_OFFSETS, Topics
from logbrook.storage.batch_set import Origin
from logbrook.storage.ticket import Ticket

_logger = logging.getLogger(__name__)


class _Producer(NamedTuple):
    """Whose transaction a write belongs to."""

    producer_id: int
    producer_epoch: int


class _Pending(NamedTuple):
    write: Write
    producer: _Producer | None
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
        self._topic = InternalTopic(topics, CONSUMER_OFFSETS, config.offsets_partitions)
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

    async def load(self) -> None:
        """Read the groups and offsets of the past, a little at a time. Until then all requests are told to wait."""
        if not self._is_in_memory:
            try:
                await self._load()
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
        producer = _Producer(request.producer_id, request.producer_epoch) if request.transactional else None
        return self._when_written(decision.write, decision.errors, producer)

    async def offsets_partition(self, group_id: str) -> TopicPartition:
        """Where the group's offsets are written; the topic is made if it is not there. Raises LogbrookError."""
        if not self._is_in_memory:
            await self._topic.create()
        return self._topic.partition_of(group_id)

    @property
    def _is_in_memory(self) -> bool:
        return self._config.offsets is OffsetStore.MEMORY

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The transaction of a producer is decided, durably, and so are the offsets in it."""
        self.coordinator.end_transaction(producer_id, is_commit=is_commit)

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
        self, write: Write, errors: dict[TopicPartition, GroupError], producer: _Producer | None = None
    ) -> "asyncio.Future[dict[TopicPartition, GroupError]]":
        future: asyncio.Future[dict[TopicPartition, GroupError]] = self._loop.create_future()

        def done(error: GroupError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(errors)
            else:
                future.set_exception(error)

        self._write(write, done, producer)
        return future

    def _write(
        self,
        write: Write,
        on_done: Callable[[GroupError | None], None] = lambda _error: None,
        producer: _Producer | None = None,
    ) -> None:
        pending = _Pending(write, producer, on_done, self._loop.create_future())
        if not write.records or self._is_in_memory:
            self._written(pending)
            return
        self._last_writes[write.group_id] = pending.ended
        if self._waiting_for_topic or not self._topic.exists:
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
            log = self._topic.log_of(pending.write.group_id)
            batch = self._appends.batch_of(pending.write.records, *(pending.producer or ()))
            self._appends.append(log, batch, done, Origin.COORDINATOR)
        except LogbrookError as error:
            self._failed(pending, error)

    def _written(self, pending: _Pending) -> None:
        for key, value in pending.write.records:
            if pending.producer is None:
                self.coordinator.replay(key, value)
            else:
                self.coordinator.replay_transactional(pending.producer.producer_id, key, value)
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
            await self._topic.create()
        except LogbrookError as error:
            waiting, self._waiting_for_topic = self._waiting_for_topic, deque()
            for pending in waiting:
                self._failed(pending, error)
        else:
            while self._waiting_for_topic:
                self._append(self._waiting_for_topic.popleft())
        finally:
            self._creation = None

    async def _load(self) -> None:
        """Raises LogbrookError."""
        coordinator = self.coordinator
        bytes_max = self._topics.directory.environment.config.decompressed_bytes_max
        async for header, batch in self._topic.batches():
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None:
                    coordinator.end_transaction(header.producer_id, is_commit=marker.is_commit)
                continue
            for record in iter_records(batch, bytes_max=bytes_max):
                if record.key is None:
                    continue
                if header.is_transactional:
                    coordinator.replay_transactional(header.producer_id, record.key, record.value)
                else:
                    coordinator.replay(record.key, record.value)

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
