"""Markers of transactions: a control batch in every partition of a transaction that commits or aborts its records.

The coordinator's broker appends the markers of the partitions it leads, and has the leaders of the others append theirs
(WriteTxnMarkers). Those of `__consumer_offsets` are appended by the group coordinator, which replays them. A marker
counts as written without an append if the partition is deleted, or if its log has the producer's next transaction.
"""

import asyncio

from logbrook.core.coordinator import ProducerIdentity
from logbrook.core.metadata import TopicNotFoundError
from logbrook.core.transactions.messages import TransactionMarkers
from logbrook.model import LogbrookError, TopicPartition
from logbrook.ports import Clock
from logbrook.records.control import build_marker
from logbrook.server.cluster.errors import NotLeaderError
from logbrook.server.coordinators.groups import GroupCoordinatorService
from logbrook.server.coordinators.internal_topic import InternalTopic
from logbrook.server.coordinators.transaction_peers import TransactionPeers
from logbrook.server.fetch_purgatory import FetchPurgatory
from logbrook.server.log_appender import LogAppender
from logbrook.server.topics import CONSUMER_OFFSETS, Topics
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.errors import PartitionNotFoundError
from logbrook.storage.log import Log
from logbrook.storage.pending_append import PendingAppend


class MarkerWriter:
    """One per broker, on the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        transaction_state: InternalTopic,
        appender: LogAppender,
        fetch_purgatory: FetchPurgatory,
        groups: GroupCoordinatorService,
        clock: Clock,
        peers: TransactionPeers | None,
    ) -> None:
        """`peers` are the other brokers of a cluster."""
        self._loop = loop
        self._topics = topics
        self._transaction_state = transaction_state
        self._appender = appender
        self._fetch_purgatory = fetch_purgatory
        self._groups = groups
        self._clock = clock
        self._peers = peers

    def write(self, markers: TransactionMarkers, partition: TopicPartition) -> "asyncio.Future[None]":
        """Write a marker of a transaction that this broker coordinates, to a partition that any broker leads.

        The future is done when the marker is committed, or raises LogbrookError.
        """
        number = self._transaction_state.partition_for(markers.transactional_id)
        try:
            epoch = self._topics.leader_epoch(TopicPartition(self._transaction_state.name, number))
        except LogbrookError as error:
            failed: asyncio.Future[None] = self._loop.create_future()
            _complete_append(failed, error)
            return failed
        if self._peers is None or self._peers.is_own(partition):
            return self._append(markers, partition, epoch)
        return self._loop.create_task(self._send(self._peers, markers, partition, epoch))

    def append(
        self,
        partition: TopicPartition,
        producer: ProducerIdentity,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        has_own_epoch: bool = False,
    ) -> "asyncio.Future[None]":
        """Append a marker to a partition of this broker, at the request of the coordinator or of an operator.

        With `has_own_epoch` the marker's epoch is above that of the records of its transaction: one that is repeated,
        and arrives when records of the next transaction have that epoch, has no effect. The transaction itself is not
        changed. The future is done when the marker is committed, or raises LogbrookError.
        """
        epoch = producer.producer_epoch - 1 if has_own_epoch else producer.producer_epoch
        markers = TransactionMarkers("", producer, is_commit, (partition,), epoch)
        return self._append(markers, partition, coordinator_epoch)

    async def _send(
        self, peers: TransactionPeers, markers: TransactionMarkers, partition: TopicPartition, coordinator_epoch: int
    ) -> None:
        """Raises LogbrookError."""
        if self._is_missing(partition):
            # It was deleted, or was created a moment ago.
            await self._topics.refresh()
            if self._is_missing(partition):
                return
        await peers.write_marker(markers, partition, coordinator_epoch)

    def _is_missing(self, partition: TopicPartition) -> bool:
        try:
            self._topics.check_partition(partition)
        except (TopicNotFoundError, PartitionNotFoundError):
            return True
        return False

    def _append(
        self, markers: TransactionMarkers, partition: TopicPartition, coordinator_epoch: int
    ) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = self._loop.create_future()
        directory, producer = self._topics.directory, markers.producer
        log = directory.get(partition) if partition in directory else None
        if log is None and partition.topic != CONSUMER_OFFSETS:
            # The topic was deleted, or a new leader has no log yet.
            is_deleted = self._peers is None or self._is_missing(partition)
            _complete_append(done, None if is_deleted else NotLeaderError(partition))
            return done
        if log is not None and _is_ahead(log, markers):
            done.set_result(None)
            return done
        marker = build_marker(
            *producer,
            is_commit=markers.is_commit,
            timestamp_ms=self._clock.now_ms(),
            coordinator_epoch=coordinator_epoch,
        )

        def on_done(pending: PendingAppend) -> None:
            # The marker may move the last stable offset over more bytes than its own: wake all fetches.
            self._fetch_purgatory.changed(partition)
            _complete_append(done, pending.error)

        try:
            if self._appender.replicas is not None:
                # It could not be committed, would be repeated, and hold up markers to other partitions of this broker.
                self._appender.replicas.check_in_sync(partition)
            if partition.topic == CONSUMER_OFFSETS:
                groups = self._groups.runtime
                return groups.append_marker(partition.partition, marker, producer, is_commit=markers.is_commit)
            assert log is not None
            self._appender.append(log, marker, on_done, AppendOrigin.COORDINATOR)
        except LogbrookError as error:
            _complete_append(done, error)
        return done


def _is_ahead(log: Log, markers: TransactionMarkers) -> bool:
    """Return True if the log has the producer's next transaction: a crash cut the log of the coordinator, not this one.

    If the next transaction has ended, the log has a later epoch than the marker, and would refuse it.
    """
    state = log.producers.get(markers.producer.producer_id)
    if state is None:
        return False
    is_open = state.transaction_start_offset is not None
    return state.epoch > (markers.transaction_epoch if is_open else markers.producer.producer_epoch)


def _complete_append(done: "asyncio.Future[None]", error: LogbrookError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        # One error may be shared by many appends: it must not accumulate the frames of all that await it.
        done.set_exception(error.with_traceback(None))
