"""Service of the transaction coordinator: requests of handlers, and the end of transactions.

A transaction ends in three steps, each committed before the next begins: PrepareCommit or PrepareAbort, a marker in
every partition, and CompleteCommit or CompleteAbort (ADR 11). The client is answered when the last step is appended, or
when a marker could not be written; that is retried until it succeeds. A crash leaves at worst a prepared transaction,
whose markers are written again after the next load.

After a power loss a partition may have records of an open transaction that the coordinator lost. These are settled when
all shards are loaded.
"""

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from logbrook.config import TransactionConfig
from logbrook.core.coordinator import (
    CoordinatorError,
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    CoordinatorRecord,
    ProducerIdentity,
)
from logbrook.core.transactions.errors import ConcurrentTransactionsError
from logbrook.core.transactions.messages import (
    InitRequest,
    TransactionMarkers,
    TransactionTimeouts,
)
from logbrook.core.transactions.shard import TransactionCoordinatorShard, check_transactional_id
from logbrook.core.transactions.transaction import Transaction
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.ports import Clock
from logbrook.server.coordinators.context import CoordinatorContext
from logbrook.server.coordinators.groups import GroupCoordinatorService
from logbrook.server.coordinators.internal_topic import InternalTopic
from logbrook.server.coordinators.marker_writer import MarkerWriter
from logbrook.server.coordinators.runtime import CoordinatorRuntime
from logbrook.server.coordinators.transaction_joins import TransactionJoins
from logbrook.server.coordinators.transaction_peers import TransactionPeers
from logbrook.server.fetch_purgatory import FetchPurgatory
from logbrook.server.log_appender import LogAppender
from logbrook.server.logs import RateLimitedWarnings
from logbrook.server.topics import TRANSACTION_STATE, Topics

_RETRY_S = 1.0

_logger = event_logger(__name__)

T = TypeVar("T")
TransactionContext: TypeAlias = CoordinatorContext[TransactionCoordinatorShard]


class TransactionCoordinatorService:
    """One per broker, on the event loop."""

    def __init__(
        self,
        config: TransactionConfig,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        appender: LogAppender,
        fetch_purgatory: FetchPurgatory,
        groups: GroupCoordinatorService,
        clock: Clock,
        peers: TransactionPeers | None = None,
    ) -> None:
        """`peers` are the other brokers of a cluster."""
        self._peers = peers
        self._loop = loop
        self._topics = topics
        self._appender = appender
        # On a full disk the markers of all transactions fail, every second.
        self._warnings = RateLimitedWarnings(_logger, clock)
        self._stopping = asyncio.Event()
        self.joins = TransactionJoins(clock)
        self._settling = asyncio.Lock()
        topic = InternalTopic(topics, TRANSACTION_STATE, config.partitions)
        self.marker_writer = MarkerWriter(loop, topics, topic, appender, fetch_purgatory, groups, clock, peers)
        self.runtime: CoordinatorRuntime[TransactionCoordinatorShard] = CoordinatorRuntime(
            topic,
            appender,
            clock,
            loop,
            lambda: TransactionCoordinatorShard(config, lambda: len(self.runtime), self.count_bytes),
            self._on_timeouts,
            lambda context: self.own(self._recover(context)),
            decompressed_bytes_max=topics.directory.environment.config.decompressed_bytes_max,
        )

    def stop(self) -> None:
        """Stop timers and retries. Ends in progress continue until they are answered."""
        self._stopping.set()
        self.runtime.stop()

    def count_bytes(self) -> int:
        """Return the memory of all transactional ids in active shards, in bytes."""
        return sum(context.shard.state_bytes for context in self.runtime.active_contexts())

    # Requests

    async def init_producer(self, request: InitRequest) -> ProducerIdentity:
        """Return the new identity of the transactional id's producer.

        Earlier producers are fenced, and their open transaction is aborted. Raises LogbrookError.
        """
        transactional_id = request.transactional_id
        check_transactional_id(transactional_id)
        new_id: ProducerId | None = None
        aborted: ProducerIdentity | None = None
        while True:
            context = self.runtime.context_for(transactional_id)
            if new_id is None and context.shard.needs_producer_id(transactional_id):
                new_id = await self._topics.new_producer_id()
                context = self.runtime.context_for(transactional_id)
            decision = context.shard.init_producer(request, new_id, self.runtime.now_ms, aborted)
            if decision.result is not None:
                self._append(context, transactional_id, decision.records)
                await self.runtime.committed(context)
                return decision.result
            self._append(context, transactional_id, decision.records)
            await self._end(context, transactional_id)
            if self.runtime.context_for(transactional_id).shard.markers(transactional_id) is not None:
                raise ConcurrentTransactionsError(transactional_id)
            aborted = decision.aborted

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Collection[TopicPartition],
    ) -> None:
        """Add partitions to the transaction: records appended to them after this call are part of it.

        Does not wait until that is committed, since records appended later are committed later (ADR 11). Raises
        CoordinatorError.
        """
        context = self._context(transactional_id)
        records = context.shard.add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, self.runtime.now_ms
        )
        self._append(context, transactional_id, records)

    async def add(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Collection[TopicPartition]
    ) -> None:
        """Add partitions as their producer asks. Raises CoordinatorError.

        In a cluster their leaders are other brokers, so the record must be committed before they append anything:
        otherwise a new coordinator may not know the partition, and never decide its records.
        """
        self.add_partitions(transactional_id, *producer, partitions)
        if self._peers is not None:
            await self.runtime.committed(self._context(transactional_id))

    async def join(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition, *, only_check: bool
    ) -> None:
        """Add a partition that this broker leads to a transaction, or check that it is part of it.

        The coordinator may be another broker. Append in the same step that this returns in: it has found that no
        marker ended the transaction here while the answer was on its way. Raises CoordinatorError or
        RequestRefusedError.
        """
        check_transactional_id(transactional_id)
        decided = self._last_decision(partition, producer.producer_id)
        coordinator = TopicPartition(TRANSACTION_STATE, self.runtime.topic.partition_for(transactional_id))
        if self._peers is not None and not self._peers.is_own(coordinator):
            await self._peers.add_partitions(
                coordinator, transactional_id, producer, [partition], only_check=only_check
            )
        elif only_check:
            self.check_partition(transactional_id, *producer, partition)
        else:
            await self.add(transactional_id, producer, [partition])
        if self._last_decision(partition, producer.producer_id) != decided:
            raise CoordinatorLoadingError(transactional_id)

    def _last_decision(self, partition: TopicPartition, producer_id: ProducerId) -> tuple[int, Offset | None] | None:
        """Return the leader epoch of a partition and the offset of the producer's last marker; None if another leads.

        An answer of the coordinator is of use only if they have not changed since the request (KIP-890).
        """
        try:
            epoch = self._topics.leader_epoch(partition)
            producer = self._topics.directory.get(partition).producers.get(producer_id)
        except LogbrookError:
            return None
        return epoch, None if producer is None else producer.marker_offset

    def check_partition(
        self, transactional_id: str, producer_id: ProducerId, producer_epoch: ProducerEpoch, partition: TopicPartition
    ) -> None:
        """Raises CoordinatorError unless the partition is part of the producer's open transaction."""
        shard = self._context(transactional_id).shard
        shard.check_partition(transactional_id, producer_id, producer_epoch, partition)

    async def end(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        *,
        is_commit: bool,
        bumps_epoch: bool,
    ) -> ProducerIdentity:
        """Commit or abort a transaction. Returns the producer of the next one. Raises LogbrookError."""
        next_id: ProducerId | None = None
        if bumps_epoch and self._context(transactional_id).shard.is_exhausted(transactional_id):
            next_id = await self._topics.new_producer_id()
        context = self._context(transactional_id)
        decision = context.shard.end(
            transactional_id,
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            bumps_epoch=bumps_epoch,
            next_producer_id=next_id,
            now_ms=self.runtime.now_ms,
        )
        if decision.records:
            self._append(context, transactional_id, decision.records)
            await self._end(context, transactional_id)
        return decision.result

    def list_transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[Transaction]:
        """Return the transactional ids of all shards that pass the filters. Raises CoordinatorError."""
        return [
            listing
            for context in self.runtime.contexts()
            for listing in context.shard.list_transactions(
                states, producer_ids, open_longer_than_ms, pattern, now_ms=self.runtime.now_ms
            )
        ]

    def describe(self, transactional_id: str) -> Transaction:
        """Raises CoordinatorError."""
        return self._context(transactional_id).shard.describe(transactional_id)

    def oldest_open_ms(self) -> int | None:
        """Return the age of the oldest uncompleted transaction."""
        now_ms = self.runtime.now_ms
        ages_ms = [context.shard.oldest_open_ms(now_ms) for context in self.runtime.active_contexts()]
        return max((age_ms for age_ms in ages_ms if age_ms is not None), default=None)

    # The end of a transaction

    def own(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine as a task of the service, which runs to its end whether or not a client waits for it."""
        task = self._loop.create_task(coroutine)
        self.runtime.own(task)
        return task

    async def _end(self, context: TransactionContext, transactional_id: str) -> None:
        """Complete a transaction whose PrepareCommit or PrepareAbort is appended.

        Returns after the first attempt; what could not be written is retried in a task. Raises
        CoordinatorNotAvailableError if the prepare record cannot be committed.
        """
        await self.runtime.committed(context)
        markers = context.shard.markers(transactional_id)
        assert markers is not None, "only this call completes the transaction"
        remaining = await self._try_complete(context, markers, markers.partitions)
        if remaining is not None:
            self.own(self._retry_complete(context, markers, remaining))

    async def _try_complete(
        self, context: TransactionContext, markers: TransactionMarkers, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartition] | None:
        """Write the markers of these partitions, then CompleteCommit or CompleteAbort.

        Return None if the transaction is completed, or otherwise the partitions whose marker has to be retried.
        """
        writes = [(partition, self.marker_writer.write(markers, partition)) for partition in partitions]
        results = await asyncio.gather(*(write for _, write in writes), return_exceptions=True)
        remaining: list[TopicPartition] = []
        for (partition, _), result in zip(writes, results, strict=True):
            if isinstance(result, LogbrookError):
                self._log_failed_marker(markers.transactional_id, partition, result)
                remaining.append(partition)
            elif result is not None:
                raise result
        if remaining:
            return remaining
        transactional_id = markers.transactional_id
        try:
            self._append(context, transactional_id, context.shard.complete(transactional_id, self.runtime.now_ms))
        except CoordinatorNotAvailableError:
            # It is logged.
            return []
        except CoordinatorError:
            # The shard was unloaded. The transaction is completed after the next load.
            return None
        return None

    async def _retry_complete(
        self, context: TransactionContext, markers: TransactionMarkers, partitions: list[TopicPartition]
    ) -> None:
        remaining: list[TopicPartition] | None = partitions
        while remaining is not None and not await self._is_stopping_after(_RETRY_S) and context.is_active:
            remaining = await self._try_complete(context, markers, remaining)

    async def _is_stopping_after(self, seconds: float) -> bool:
        """Sleep, unless the service stops meanwhile. Return True if it does."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True

    # Recovery

    async def _recover(self, context: TransactionContext) -> None:
        """After a load: complete the prepared transactions, and settle those unknown to the coordinator."""
        for transactional_id in context.shard.prepared_ids():
            self.own(self._complete_and_settle(context, transactional_id))
        if self.runtime.is_ready:
            await self._settle_unknown()

    async def _complete_and_settle(self, context: TransactionContext, transactional_id: str) -> None:
        """The partitions of a completed transaction may have records of the next one, which are then unknown."""
        markers = context.shard.markers(transactional_id)
        assert markers is not None, "it is prepared"
        remaining = await self._try_complete(context, markers, markers.partitions)
        if remaining is not None:
            await self._retry_complete(context, markers, remaining)
        if self.runtime.is_ready and not self._stopping.is_set():
            await self._settle_unknown()

    async def _settle_unknown(self) -> None:
        """Settle open transactions in logs that no shard has: their partition was added, and a crash lost the record.

        If the producer is still the current one of its transactional id, the partition is added to its transaction;
        otherwise the records are aborted. Retried until it succeeds. In a cluster there are none: a partition is added
        before anything is appended to it.
        """
        if self._peers is not None:
            return
        async with self._settling:
            while not await self._settle_once():
                if await self._is_stopping_after(_RETRY_S):
                    return

    async def _settle_once(self) -> bool:
        """Return False if something could not be written."""
        is_settled = True
        for log in self._topics.logs():
            for producer_id, producer_epoch, first_offset in log.producers.open_transactions():
                producer = ProducerIdentity(producer_id, producer_epoch)
                if not self._is_open(producer_id, log.partition):
                    is_settled &= await self._settle(log.partition, producer, first_offset)
        return is_settled

    async def _settle(self, partition: TopicPartition, producer: ProducerIdentity, first_offset: Offset) -> bool:
        owners = (context.shard.owner_of(producer) for context in self.runtime.active_contexts())
        owner = next((owner for owner in owners if owner is not None), None)
        _logger.warning(
            "unregistered transaction found",
            partition=partition,
            producer_id=producer.producer_id,
            first_offset=first_offset,
            action="abort" if owner is None else "register",
            transactional_id=owner,
        )
        if owner is None:
            try:
                epoch = self._appender.leader_epoch
                await self.marker_writer.append(partition, producer, is_commit=False, coordinator_epoch=epoch)
            except LogbrookError as error:
                self._log_failed_marker("", partition, error)
                return False
            return True
        try:
            self.add_partitions(owner, *producer, [partition])
        except CoordinatorError:
            return False
        return True

    def _is_open(self, producer_id: ProducerId, partition: TopicPartition) -> bool:
        return any(context.shard.is_open(producer_id, partition) for context in self.runtime.active_contexts())

    # Helpers

    def _on_timeouts(self, context: TransactionContext, timeouts: TransactionTimeouts) -> None:
        try:
            for transactional_id in timeouts.timed_out:
                records = context.shard.abort_timed_out(transactional_id, self.runtime.now_ms)
                if records:
                    _logger.info("transaction timed out", transactional_id=transactional_id)
                    self._append(context, transactional_id, records)
                    self.own(self._end_timed_out(context, transactional_id))
            for transactional_id in timeouts.expired_ids:
                self._append(context, transactional_id, context.shard.remove_expired(transactional_id))
        except CoordinatorError:
            # It is logged, and due again after a while.
            pass

    async def _end_timed_out(self, context: TransactionContext, transactional_id: str) -> None:
        # If the prepare record cannot be committed, the transaction times out again after the shard is loaded.
        with suppress(CoordinatorError):
            await self._end(context, transactional_id)

    def _context(self, transactional_id: str) -> TransactionContext:
        """Raises CoordinatorError."""
        check_transactional_id(transactional_id)
        return self.runtime.context_for(transactional_id)

    def _append(self, context: TransactionContext, transactional_id: str, records: list[CoordinatorRecord]) -> None:
        """Raises CoordinatorError."""
        if records:
            self.runtime.append(context, transactional_id, records)
            self.runtime.schedule(context)

    def _log_failed_marker(self, transactional_id: str, partition: TopicPartition, error: LogbrookError) -> None:
        self._warnings.warn(
            "marker",
            "transaction marker write failed",
            transactional_id=transactional_id,
            partition=partition,
            error=error,
        )
