"""Runtime of a coordinator: loads shards, appends and replays their records, and releases replies.

There is a shard per partition of the internal topic. The rules are those of `core.coordinator`:

- `append` writes the records of a decision and replays them at once.
- A reply is released when everything appended to the shard so far is committed (`context`). With an in-memory log, or
  when nothing is in flight, that is immediately.
- A refused append raises and changes nothing. If an appended record cannot be committed (sync failed, storage offline),
  all unreleased replies fail, and the shard is unloaded and loaded again from the committed part of the log.

The topic is created with its first records. Until it exists, appended records are queued; if the creation fails, that
is a failed commit.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from logbrook.core.coordinator import (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    CoordinatorRecord,
    CoordinatorShard,
    CorruptCoordinatorRecordError,
    NotCoordinatorError,
    ProducerIdentity,
)
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.ports import Clock
from logbrook.records.control import read_marker
from logbrook.records.reader import iter_records
from logbrook.server.coordinators.context import CoordinatorContext, InFlightAppend, ShardState, complete
from logbrook.server.coordinators.internal_topic import InternalTopic
from logbrook.server.log_appender import LogAppender
from logbrook.server.logs import RateLimitedWarnings
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.pending_append import PendingAppend

_SUSPENDED_POLL_MS = 500
# A member or producer that is gone is waited for at most this much longer after an outage.
_GRACE_MS_MAX = 60_000
_LOAD_AGAIN_S = 1.0

_logger = event_logger(__name__)

S = TypeVar("S", bound=CoordinatorShard[Any])


class CoordinatorRuntime(Generic[S]):
    """The shards of one coordinator. One per internal topic, on the event loop.

    `carry_out(context, result)` processes the result of a tick; `on_loaded(context)` is called when a shard is active.
    """

    def __init__(
        self,
        topic: InternalTopic,
        appender: LogAppender,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        new_shard: Callable[[], S],
        carry_out: Callable[[CoordinatorContext[S], Any], None],
        on_loaded: Callable[[CoordinatorContext[S]], object],
        *,
        decompressed_bytes_max: int,
        is_in_memory: bool = False,
    ) -> None:
        self.topic = topic
        self._appender = appender
        self._clock = clock
        self._loop = loop
        self._new_shard = new_shard
        self._carry_out = carry_out
        self._on_loaded = on_loaded
        self._decompressed_bytes_max = decompressed_bytes_max
        self._is_in_memory = is_in_memory
        # Rate-limited: while the disk is full, every request of every member fails.
        self._warnings = RateLimitedWarnings(_logger, clock)
        # Session and transaction timeouts use a clock that does not jump when the system time is corrected.
        self._origin_ms = clock.now_ms() - int(clock.monotonic_s() * 1000)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        # Since when this coordinator is not certain, and until when nothing times out after that.
        self._suspended_since_ms: int | None = None
        self._grace_until_ms = 0
        self._creation: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_stopping = False
        self._stopped: asyncio.Future[None] = loop.create_future()
        # In a cluster: False while another broker may have taken over, because the lease is not certain.
        self.is_certain: Callable[[], bool] = lambda: True
        self._contexts = [
            CoordinatorContext(topic.name, number, new_shard()) for number in range(topic.partition_count)
        ]

    def __len__(self) -> int:
        """The number of groups or transactional ids in all active shards."""
        return sum(len(context.shard) for context in self.active_contexts())

    @property
    def now_ms(self) -> int:
        return self._origin_ms + int(self._clock.monotonic_s() * 1000)

    @property
    def is_ready(self) -> bool:
        """True if no shard is loading or failed to load."""
        return all(context.state in (ShardState.ACTIVE, ShardState.UNLOADED) for context in self._contexts)

    def context_for(self, key: str) -> CoordinatorContext[S]:
        """Return the active shard of a group id or transactional id.

        Raises CoordinatorLoadingError or NotCoordinatorError.
        """
        context = self._context(self.topic.partition_for(key))
        if not context.is_active:
            raise context.unavailable(key)
        if self._update_suspension():
            # Another broker may be the coordinator by now. An error derived from stale state, such as
            # UNKNOWN_MEMBER_ID, would be final for the client.
            raise NotCoordinatorError(key)
        return context

    def _update_suspension(self) -> bool:
        """Begin or end the suspension. Return True while another broker may be the coordinator.

        Then requests are refused, and no client times out; nor for as long again after that, so that clients can repeat
        what was refused. Records have the true time meanwhile, since other coordinators may continue with them.
        """
        now_ms = self.now_ms
        if not self.is_certain():
            if self._suspended_since_ms is None:
                self._suspended_since_ms = now_ms
            # To notice the end.
            self._tick_at(now_ms + _SUSPENDED_POLL_MS)
            return True
        if self._suspended_since_ms is not None:
            grace_ms = min(now_ms - self._suspended_since_ms, _GRACE_MS_MAX)
            # A shorter suspension, as of a hand-over, may follow an outage.
            self._grace_until_ms = max(self._grace_until_ms, now_ms + grace_ms)
            self._suspended_since_ms = None
            for context in list(self.active_contexts()):
                context.shard.begin_grace(self._grace_until_ms)
                self.schedule(context)
        return False

    def context_or_none(self, key: str) -> CoordinatorContext[S] | None:
        """Return the shard of a key if it is active."""
        context = self._context(self.topic.partition_for(key))
        return context if context.is_active else None

    def is_loading(self, key: str) -> bool:
        """Return True if requests for the key get CoordinatorLoadingError."""
        state = self._context(self.topic.partition_for(key)).state
        return state in (ShardState.LOADING, ShardState.FAILED)

    def contexts(self) -> Iterator[CoordinatorContext[S]]:
        """Iterate over all active shards. Raises CoordinatorLoadingError if one is loading or FAILED."""
        if not self.is_ready:
            raise CoordinatorLoadingError
        return self.active_contexts()

    def active_contexts(self) -> Iterator[CoordinatorContext[S]]:
        return (context for context in self._contexts if context.is_active)

    def _context(self, partition: int) -> CoordinatorContext[S]:
        """Return the shard of a partition. Another broker may have created the topic with more partitions."""
        while len(self._contexts) <= partition:
            context = CoordinatorContext(self.topic.name, len(self._contexts), self._new_shard())
            context.state = ShardState.UNLOADED
            self._contexts.append(context)
        return self._contexts[partition]

    # Loading and unloading

    def start_unloaded(self) -> None:
        """Unload all shards: in a cluster each is loaded when this broker begins to lead its partition."""
        for context in self._contexts:
            context.state = ShardState.UNLOADED

    async def load_all(self) -> None:
        for partition in range(len(self._contexts)):
            await self.load(partition)

    async def load(self, partition: int) -> None:
        """Load a shard from the committed part of its partition. A load that fails is logged: the shard becomes FAILED.

        State that cannot be read must not appear to be absent.
        """
        context = self._context(partition)
        if not context.is_active:
            if context.state is not ShardState.LOADING:
                context = self._new_context(partition)
            await self._load(context)

    def load_soon(self, partition: int) -> None:
        """Begin to load a shard: this broker leads its partition from now on, until `unload`."""
        self._context(partition)
        self.own(self._loop.create_task(self._load(self._new_context(partition))))

    def _new_context(self, partition: int) -> CoordinatorContext[S]:
        context = self._contexts[partition] = CoordinatorContext(self.topic.name, partition, self._new_shard())
        return context

    async def _load(self, context: CoordinatorContext[S]) -> None:
        """Has no effect if the shard is unloaded meanwhile."""
        try:
            await self._replay_log(context)
        except LogbrookError as error:
            if context.state is ShardState.LOADING:
                context.state = ShardState.FAILED
                _logger.exception("coordinator load failed", topic=self.topic.name, partition=context.partition)
                if not isinstance(error, CorruptLogError | CorruptCoordinatorRecordError):
                    self.own(self._loop.create_task(self._load_again(context)))
            return
        if context.state is not ShardState.LOADING:
            return
        context.shard.finish_loading(self.now_ms)
        if self._grace_until_ms > self.now_ms:
            context.shard.begin_grace(self._grace_until_ms)
        context.state = ShardState.ACTIVE
        self.schedule(context)
        self._on_loaded(context)

    async def _load_again(self, failed: CoordinatorContext[S]) -> None:
        """After a while, unless the shard is unloaded: files or memory were short, or a read has failed."""
        await asyncio.wait([self._stopped], timeout=_LOAD_AGAIN_S)
        if self._contexts[failed.partition] is failed and failed.state is ShardState.FAILED and not self._is_stopping:
            # It may have markers in flight that are not committed.
            failed.unload()
            await self._load_after(failed, self._new_context(failed.partition))

    def unload(self, partition: int) -> None:
        """Drop a shard. Its unreleased replies fail; later requests get NotCoordinatorError."""
        self._context(partition).unload()

    def stop(self) -> None:
        """Stop the timer, and fail the replies that wait for other members: they retry at the next start."""
        self._is_stopping = True
        if not self._stopped.done():
            self._stopped.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        for context in self._contexts:
            context.fail_waiting_replies()

    async def _replay_log(self, context: CoordinatorContext[S]) -> None:
        """Raises LogbrookError."""
        if self._is_in_memory or not self.topic.exists:
            return
        shard = context.shard
        async for header, batch in self.topic.batches(context.partition):
            if context.state is not ShardState.LOADING:
                return
            producer = ProducerIdentity(header.producer_id, header.producer_epoch) if header.is_transactional else None
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None and producer is not None:
                    shard.replay_marker(producer, is_commit=marker.is_commit)
                continue
            for record in iter_records(batch, bytes_max=self._decompressed_bytes_max):
                if record.key is not None:
                    shard.replay(record.key, record.value, producer)

    def _fail(self, context: CoordinatorContext[S], error: LogbrookError) -> None:
        """Unload a shard whose records could not be committed, and load it again from those that are."""
        if context.state is ShardState.UNLOADED:
            return
        self._warnings.warn(
            "commit", "coordinator commit failed", topic=self.topic.name, partition=context.partition, error=error
        )
        context.unload()
        if not self._is_stopping:
            self.own(self._loop.create_task(self._load_after(context, self._new_context(context.partition))))

    async def _load_after(self, failed: CoordinatorContext[S], context: CoordinatorContext[S]) -> None:
        if failed.in_flight:
            await failed.drained.wait()
        await self._load(context)

    # Writing

    def append(
        self,
        context: CoordinatorContext[S],
        key: str,
        records: Sequence[CoordinatorRecord],
        producer: ProducerIdentity | None = None,
    ) -> None:
        """Append records and replay them. `producer` makes them part of its transaction.

        Raises CoordinatorNotAvailableError if they cannot be appended, NotCoordinatorError if the shard was unloaded;
        then nothing has changed.
        """
        if not context.is_active:
            raise context.unavailable(key)
        if not records:
            return
        if self._is_in_memory:
            append = None
        else:
            append = self._append_batch(context, key, self._appender.batch_of(records, *(producer or ())))
        for record_key, value in records:
            context.shard.replay(record_key, value, producer)
        self._track(context, append)

    def append_marker(
        self, partition: int, marker: bytes | bytearray, producer: ProducerIdentity, *, is_commit: bool
    ) -> "asyncio.Future[None]":
        """Append a transaction marker and replay it. The future is done when it is committed.

        Raises CoordinatorError if it cannot be appended. A shard that failed to load gets it in its log only.
        """
        context = self._context(partition)
        name = f"{self.topic.name}-{partition}"
        if context.state not in (ShardState.ACTIVE, ShardState.FAILED):
            raise context.unavailable(name)
        append = None if self._is_in_memory else self._append_batch(context, name, marker)
        if context.is_active:
            context.shard.replay_marker(producer, is_commit=is_commit)
        self._track(context, append)
        return self.committed(context)

    def committed(self, context: CoordinatorContext[S], result: object = None) -> "asyncio.Future[Any]":
        """Return a future of `result`, done when everything appended to the shard so far is committed."""
        future = self._loop.create_future()
        context.release(future, result)
        return future

    def pending_reply(self, context: CoordinatorContext[S]) -> "asyncio.Future[Any]":
        """Return a future for a reply that may wait for other requests. It fails if the shard is unloaded."""
        future = self._loop.create_future()
        context.replies[future] = None
        future.add_done_callback(context.replies.pop)
        return future

    def _append_batch(self, context: CoordinatorContext[S], key: str, batch: bytes | bytearray) -> InFlightAppend:
        append = InFlightAppend()
        if self._creation is not None or not self.topic.exists:
            context.queued.append((batch, append))
            if self._creation is None:
                self._creation = self._loop.create_task(self._create_topic())
            return append
        try:
            self._append_to_log(context, batch, append)
        except LogbrookError as error:
            self._warnings.warn("append", "coordinator append refused", topic=self.topic.name, id=key, error=error)
            raise CoordinatorNotAvailableError(key) from error
        return append

    def _append_to_log(self, context: CoordinatorContext[S], batch: bytes | bytearray, append: InFlightAppend) -> None:
        """Raises LogbrookError."""
        log = self.topic.log(context.partition)
        self._appender.append(log, batch, partial(self._on_done, context, append), AppendOrigin.COORDINATOR)

    def _track(self, context: CoordinatorContext[S], append: InFlightAppend | None) -> None:
        """Keep an append until it is committed, which it may be already."""
        if append is not None:
            context.in_flight.append(append)
            if append.is_done:
                self._release_committed(context)

    def _on_done(self, context: CoordinatorContext[S], append: InFlightAppend, pending: PendingAppend) -> None:
        append.is_done, append.error = True, pending.error
        self._release_committed(context)

    def _release_committed(self, context: CoordinatorContext[S]) -> None:
        in_flight = context.in_flight
        while in_flight and in_flight[0].is_done:
            append = in_flight.popleft()
            if append.error is not None:
                append.fail_replies(self.topic.name)
                self._fail(context, append.error)
                continue
            for future, result in append.replies:
                complete(future, result)
        if not in_flight and context.state is ShardState.UNLOADED:
            context.drained.set()

    async def _create_topic(self) -> None:
        try:
            await self.topic.create()
        except LogbrookError as error:
            self._creation = None
            for context in [*self._contexts]:
                if context.queued:
                    self._fail(context, error)
            return
        self._creation = None
        for context in [*self._contexts]:
            while context.queued:
                batch, append = context.queued.popleft()
                try:
                    self._append_to_log(context, batch, append)
                except LogbrookError as error:
                    append.is_done, append.error = True, error
                    self._release_committed(context)

    # Timers and tasks

    def schedule(self, context: CoordinatorContext[S]) -> None:
        """Set the timer to the shard's next deadline, unless it is set to an earlier time."""
        deadline_ms = context.shard.next_deadline_ms()
        if deadline_ms is not None:
            self._tick_at(deadline_ms)

    def _tick_at(self, time_ms: int) -> None:
        if self._is_stopping:
            return
        now_ms = self.now_ms
        time_ms = max(time_ms, now_ms)
        if self._timer is not None:
            if self._timer_ms <= time_ms:
                return
            self._timer.cancel()
        self._timer_ms = time_ms
        self._timer = self._loop.call_later((time_ms - now_ms) / 1000, self.tick)

    def tick(self) -> None:
        """Process the timers that are due, of all active shards."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._update_suspension():
            return
        now_ms = self.now_ms
        for context in list(self.active_contexts()):
            deadline_ms = context.shard.next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                self._carry_out(context, context.shard.tick(now_ms))
            self.schedule(context)

    def own(self, task: "asyncio.Task[Any]") -> None:
        """Keep a background task alive, and report its error to the event loop."""
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            message = f"a background task of the coordinator of {self.topic.name} failed"
            self._loop.call_exception_handler({"message": message, "exception": error, "task": task})
