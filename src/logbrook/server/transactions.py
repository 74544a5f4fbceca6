"""The shell of the transaction coordinator: it appends what the coordinator decides, and ends transactions.

The coordinator believes a record as soon as it is appended; clients are answered when it is durable. An end takes three
steps, each of which is durable before the next: the decision, a marker in each partition, the word that the markers are
written. The client is answered before the last one is: a crash leaves at worst a decision whose markers are written
again at the next start.

What a log has open and the coordinator does not know is settled when the broker starts: records may have survived a
power loss that the word of their partition did not.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from logbrook.config import TransactionConfig
from logbrook.core.transactions import Ended, Initialized, InitRequest, Markers, Record, TransactionCoordinator
from logbrook.core.transactions.errors import ConcurrentTransactionsError, CoordinatorNotAvailableError
from logbrook.core.transactions.records import decode_key
from logbrook.model import LogbrookError, TopicPartition
from logbrook.ports import Clock
from logbrook.records.control import build_marker
from logbrook.records.reader import iter_records
from logbrook.server.appends import Appends
from logbrook.server.fetch_waits import FetchWaits
from logbrook.server.groups import Groups
from logbrook.server.internal_topic import InternalTopic
from logbrook.server.topics import CONSUMER_OFFSETS, TRANSACTION_STATE, Topics
from logbrook.storage.batch_set import Origin
from logbrook.storage.ticket import Ticket

_RETRY_S = 1.0

_logger = logging.getLogger(__name__)


class Transactions:
    """One per broker. All of it runs on the event loop."""

    def __init__(
        self,
        config: TransactionConfig,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        appends: Appends,
        fetch_waits: FetchWaits,
        groups: Groups,
        clock: Clock,
    ) -> None:
        self.coordinator = TransactionCoordinator(config)
        self._loop = loop
        self._topics = topics
        self._appends = appends
        self._fetch_waits = fetch_waits
        self._groups = groups
        self._topic = InternalTopic(topics, TRANSACTION_STATE, config.partitions)
        # Timeouts are counted in a time that no correction of the clock can make jump.
        self._clock = clock
        self._origin_ms = clock.now_ms() - int(clock.monotonic_s() * 1000)
        self._timer: asyncio.TimerHandle | None = None
        # Transactions whose markers are on their way, and those that were being ended when the broker last stopped.
        self._finishing: set[str] = set()
        self._interrupted: set[str] = set()
        self._settling: asyncio.TimerHandle | None = None
        self._is_stopping = False

    @property
    def now_ms(self) -> int:
        return self._origin_ms + int(self._clock.monotonic_s() * 1000)

    async def load(self) -> None:
        """Read the transactions of the past, and end what was being ended. Until then all requests are told to wait."""
        coordinator = self.coordinator
        bytes_max = self._topics.directory.environment.config.decompressed_bytes_max
        try:
            async for header, batch in self._topic.batches():
                if not header.is_control:
                    for record in iter_records(batch, bytes_max=bytes_max):
                        if record.key is not None:
                            coordinator.replay(record.key, record.value)
        except LogbrookError:
            _logger.exception("the transactions of the past cannot be read; transactions stay unavailable")
            return
        coordinator.finish_loading(self.now_ms)
        self._interrupted.update(coordinator.unfinished())
        self._try_again()
        self._settle_unknown()
        self._schedule()

    def stop(self) -> None:
        self._is_stopping = True
        for timer in (self._timer, self._settling):
            if timer is not None:
                timer.cancel()

    async def init_producer(self, request: InitRequest) -> Initialized:
        """The producer that a transactional id stands for from now on; its predecessors are fenced, and what they left
        open is aborted. Raises TransactionError or StorageError."""
        await self._topic.create()
        transactional_id = request.transactional_id
        new_id = None
        after_abort = False
        while True:
            if new_id is None and self.coordinator.needs_producer_id(transactional_id):
                new_id = await self._topics.new_producer_id()
            decision = self.coordinator.init_producer(request, new_id, self.now_ms, after_abort=after_abort)
            if decision.result is not None:
                await self._written(transactional_id, decision.records)
                return decision.result
            await self._decide(transactional_id, decision.records)
            if self.coordinator.markers(transactional_id) is not None:
                raise ConcurrentTransactionsError(transactional_id)
            after_abort = True

    def add_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> None:
        """These are part of the transaction now: what is appended to them after this call is decided with it.

        Nobody waits until that is durable: what is appended later is durable later. Raises TransactionError.
        """
        records = self.coordinator.add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, self.now_ms
        )
        if records:
            self._append(transactional_id, records)
            self._schedule()

    async def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, is_commit: bool, bumps_epoch: bool
    ) -> Ended:
        """What the producer goes on with, when its transaction is decided. Raises TransactionError or StorageError."""
        next_id = None
        if bumps_epoch and self.coordinator.is_exhausted(transactional_id):
            next_id = await self._topics.new_producer_id()
        decision = self.coordinator.end(
            transactional_id,
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            bumps_epoch=bumps_epoch,
            next_producer_id=next_id,
            now_ms=self.now_ms,
        )
        if decision.records:
            await self._decide(transactional_id, decision.records)
        return decision.result

    def _decide(self, transactional_id: str, records: Sequence[Record]) -> "asyncio.Future[None]":
        """Write down how a transaction ends, and end it, whether anyone waits for it or not.

        Done when its partitions know, durably, or when one of them cannot be told, which is tried again. Raises
        CoordinatorNotAvailableError.
        """
        future: asyncio.Future[None] = self._loop.create_future()

        def decided(ticket: Ticket) -> None:
            if ticket.error is None:
                self._finish(transactional_id, lambda: _resolve(future, ticket, transactional_id))
            else:
                _resolve(future, ticket, transactional_id)

        self._append(transactional_id, records, decided)
        self._schedule()
        return future

    def _finish(self, transactional_id: str, on_done: Callable[[], None] = lambda: None) -> None:
        """Write the markers of a transaction whose decision is durable and, when they are, the word that they are.

        What cannot be written is tried again. Until then the transaction stays decided, and its producer is told to
        wait.
        """
        markers = self.coordinator.markers(transactional_id)
        if markers is None or transactional_id in self._finishing:
            on_done()
            return
        self._finishing.add(transactional_id)
        # One more than there are, so that nothing is over before all of them are tried.
        left = len(markers.partitions) + 1
        is_good = True

        def marked(is_written: bool) -> None:
            nonlocal left, is_good
            left -= 1
            is_good = is_good and is_written
            if left == 0:
                self._finishing.discard(transactional_id)
                self._complete(transactional_id, is_good)
                on_done()

        for partition in markers.partitions:
            self._mark(markers, partition, marked)
        marked(True)

    def _complete(self, transactional_id: str, is_good: bool) -> None:
        try:
            if is_good:
                self._append(transactional_id, self.coordinator.complete(transactional_id, self.now_ms))
                self._schedule()
                if transactional_id in self._interrupted:
                    self._interrupted.discard(transactional_id)
                    self._settle_unknown()
                return
        except CoordinatorNotAvailableError:
            # It has been logged.
            pass
        self._loop.call_later(_RETRY_S, self._try_again)

    def _try_again(self) -> None:
        if not self._is_stopping:
            for transactional_id in self.coordinator.unfinished():
                self._finish(transactional_id)

    def _mark(self, markers: Markers, partition: TopicPartition, on_done: Callable[[bool], None]) -> None:
        """Decide what a producer wrote to a partition; `on_done(is_written)` is called when that is durable or not."""
        producer_id, is_commit = markers.producer_id, markers.is_commit

        def done(is_written: bool) -> None:
            if is_written and partition.topic == CONSUMER_OFFSETS:
                self._groups.end_transaction(producer_id, is_commit=is_commit)
            on_done(is_written)

        def written(ticket: Ticket) -> None:
            # Those who read what is committed may see more than these few bytes.
            self._fetch_waits.changed(partition)
            done(ticket.error is None)

        if partition not in self._topics.directory:
            # The topic was deleted, or it is the offsets of groups, which are kept in memory.
            done(True)
            return
        log = self._topics.directory.get(partition)
        known = log.producers.get(producer_id)
        if known is not None and known.transaction_start_offset is not None and known.epoch > markers.decided_epoch:
            # A crash has left more of the next transaction than of the word that this one is over.
            on_done(True)
            return
        marker = build_marker(
            producer_id,
            markers.producer_epoch,
            is_commit=is_commit,
            timestamp_ms=self._clock.now_ms(),
            coordinator_epoch=self._appends.leader_epoch,
        )
        try:
            self._appends.append(log, marker, written, Origin.COORDINATOR)
        except LogbrookError as error:
            _logger.warning(
                "transaction %r is decided, and %s cannot be told: %s", markers.transactional_id, partition, error
            )
            done(False)

    def _settle_unknown(self) -> None:
        """Records whose partition nobody knows to be part of a transaction join it if it is still their producer's, and
        are aborted if it is not. What cannot be written is tried again."""
        self._settling = None
        for log in self._topics.logs():
            for producer_id, producer_epoch, first_offset in log.producers.open_transactions():
                if self.coordinator.is_open(producer_id, log.partition):
                    continue
                owner = self.coordinator.owner_of(producer_id, producer_epoch)
                _logger.warning(
                    "producer %d wrote to %s from offset %d on, and no transaction knows of it: %s",
                    producer_id,
                    log.partition,
                    first_offset,
                    "it is aborted" if owner is None else f"it joins that of {owner!r}",
                )
                if owner is None:
                    markers = Markers("", producer_id, producer_epoch, False, (log.partition,), producer_epoch)
                    self._mark(markers, log.partition, self._settled)
                    continue
                try:
                    self.add_partitions(owner, producer_id, producer_epoch, [log.partition])
                except CoordinatorNotAvailableError:
                    self._settled(False)

    def _settled(self, is_written: bool) -> None:
        if not is_written and self._settling is None and not self._is_stopping:
            self._settling = self._loop.call_later(_RETRY_S, self._settle_unknown)

    def _written(self, transactional_id: str, records: Sequence[Record]) -> "asyncio.Future[None]":
        """Append; done when that is durable. Raises CoordinatorNotAvailableError when it cannot be appended."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._append(transactional_id, records, lambda ticket: _resolve(future, ticket, transactional_id))
        self._schedule()
        return future

    def _append(
        self, transactional_id: str, records: Sequence[Record], on_done: Callable[[Ticket], None] = lambda _ticket: None
    ) -> None:
        """Append, believe it, and call `on_done` when it is durable.

        Raises CoordinatorNotAvailableError; then the coordinator has not changed.
        """
        early: list[Ticket] = []
        is_believed = False

        def done(ticket: Ticket) -> None:
            if is_believed:
                on_done(ticket)
            else:
                early.append(ticket)

        try:
            log = self._topic.log_of(transactional_id)
            self._appends.append(log, self._appends.batch_of(records), done, Origin.COORDINATOR)
        except LogbrookError as error:
            _logger.error("transaction %r could not be written: %s", transactional_id, error)
            raise CoordinatorNotAvailableError(transactional_id) from error
        for key, value in records:
            self.coordinator.replay(key, value)
        is_believed = True
        for ticket in early:
            on_done(ticket)

    def _schedule(self, at_least_s: float = 0.0) -> None:
        """Set the one timer to when the coordinator next has something to do."""
        deadline_ms = self.coordinator.next_deadline_ms()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None and not self._is_stopping:
            delay_s = max(at_least_s, (deadline_ms - self.now_ms) / 1000)
            self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self.now_ms
        due = self.coordinator.tick(now_ms)
        try:
            for transactional_id in due.timed_out:
                records = self.coordinator.expire(transactional_id, now_ms)
                if records:
                    _logger.info("transaction %r was open for longer than it may be, and is aborted", transactional_id)
                    self._decide(transactional_id, records)
            for key, value in due.records:
                self._append(decode_key(key) or "", [(key, value)])
        except CoordinatorNotAvailableError:
            # A disk that takes nothing now may do so later.
            self._schedule(at_least_s=_RETRY_S)
        else:
            self._schedule()


def _resolve(future: "asyncio.Future[None]", ticket: Ticket, transactional_id: str) -> None:
    if future.done():
        return
    if ticket.error is None:
        future.set_result(None)
    else:
        future.set_exception(CoordinatorNotAvailableError(transactional_id))
        # The storage has said so; not everyone who asks waits for the answer.
        future.exception()
