"""Appends of the broker, with completion on the event loop.

Every append of the broker goes through `LogAppender`. The committer thread completes appends in groups, one group per
commit, and wakes the event loop once per group. There, for each append in order, waiting fetches are notified, then the
callback of the append is called; when the whole group is done, `on_drained` sends the responses.

A replicated log is appended to by its leader only, and `ReplicatedAppends` decides when its append is done.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from logbrook.core.replication.leader import PartitionLeader
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, ProducerEpoch, ProducerId
from logbrook.ports import Clock
from logbrook.records.batch import NO_PRODUCER_ID, BatchHeader
from logbrook.records.builder import NO_PRODUCER_EPOCH, build_batch
from logbrook.records.record import Record
from logbrook.server.cluster.errors import NotLeaderError
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.errors import DiskFullError, OutOfOrderSequenceError, StorageError
from logbrook.storage.log import Log
from logbrook.storage.pending_append import PendingAppend


class ReplicatedAppends(Protocol):
    """The replicas of this broker, in a cluster."""

    @property
    def is_certain(self) -> bool:
        """True if no other broker can have taken over what this one leads."""

    def leader_of(self, partition: TopicPartition) -> PartitionLeader:
        """Raises NotLeaderError."""

    def check_in_sync(self, partition: TopicPartition) -> None:
        """Raises NotEnoughReplicasError or NotLeaderError."""

    def on_append(self, log: Log) -> None:
        """The log has grown."""

    def on_disk_full(self, log: Log) -> None:
        """An append to the log was refused."""

    def on_log_synced(self, log: Log) -> None:
        """Records that were fetched from a leader are durable; this broker may lead the partition by now."""

    def on_synced(
        self,
        term: PartitionLeader,
        log: Log,
        append: PendingAppend,
        length: int,
        on_done: Callable[[PendingAppend], None],
        *,
        waits: bool,
        timeout_s: float | None,
    ) -> None:
        """The append is durable on this broker, or has failed: call `on_done` now, or when it is committed."""


class LogAppender:
    """One per broker, on the event loop; only `complete_from_thread` is called on the committer's thread.

    `on_committed(partition, bytes)` is called for every append that becomes readable.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, on_committed: Callable[[TopicPartition, int], None]
    ) -> None:
        # That of all logs of a single node. In a cluster each partition has its own.
        self.leader_epoch = LeaderEpoch(0)
        self.replicas: ReplicatedAppends | None = None
        # Set while clients' records are refused although the disk works.
        self.refusal: StorageError | None = None
        self.is_draining = False
        self.on_drained: Callable[[], None] = lambda: None
        self._loop = loop
        self._clock = clock
        self._on_committed = on_committed

    def append(
        self,
        log: Log,
        data: bytes | bytearray | memoryview,
        on_done: Callable[[PendingAppend], None],
        origin: AppendOrigin = AppendOrigin.CLIENT,
        header: BatchHeader | None = None,
        *,
        waits_for_replicas: bool = True,
        timeout_s: float | None = None,
    ) -> PendingAppend:
        """Append now and call `on_done(append)` on the event loop once it is done, possibly before this returns.

        `header` is the header of the first batch, if the caller has parsed it. In a cluster, the append is done when
        all in-sync replicas have it, within `timeout_s`, or without `waits_for_replicas` when it is durable here.
        Raises `refusal`, NotLeaderError, and what `Log.append` raises.
        """
        if self.refusal is not None:
            raise self.refusal
        if self.replicas is not None and log.is_replica:
            return self._append_replicated(log, data, on_done, origin, header, waits_for_replicas, timeout_s)
        append = log.append(
            data, now_ms=self._clock.now_ms(), leader_epoch=self.leader_epoch, origin=origin, header=header
        )
        append.caller_data = (log.partition, len(data), on_done)
        if log.environment.durability.is_immediate:
            self._finish(append)
        return append

    def _append_replicated(
        self,
        log: Log,
        data: bytes | bytearray | memoryview,
        on_done: Callable[[PendingAppend], None],
        origin: AppendOrigin,
        header: BatchHeader | None,
        waits: bool,
        timeout_s: float | None,
    ) -> PendingAppend:
        replicas = self.replicas
        assert replicas is not None
        term = replicas.leader_of(log.partition)
        try:
            append = log.append(
                data, now_ms=self._clock.now_ms(), leader_epoch=term.leader_epoch, origin=origin, header=header
            )
        except DiskFullError:
            replicas.on_disk_full(log)
            raise
        except OutOfOrderSequenceError:
            # Producers give up upon it. Another leader may have the records that are missing here.
            if not replicas.is_certain:
                raise NotLeaderError(log.partition) from None
            raise
        length = len(data)

        def synced(append: PendingAppend) -> None:
            replicas.on_synced(term, log, append, length, on_done, waits=waits, timeout_s=timeout_s)

        # Consumers see the records when they are committed, so nothing is reported when they are synced.
        append.caller_data = (None, 0, synced)
        if not append.duplicate:
            replicas.on_append(log)
        if log.environment.durability.is_immediate:
            self._finish(append)
        return append

    def append_fetched(self, log: Log, data: memoryview, on_synced: Callable[[PendingAppend], None]) -> None:
        """Append records of the leader and call `on_synced(append)` on the event loop once they are durable, or failed.

        Raises what `Log.append_fetched` raises.
        """
        replicas = self.replicas
        assert replicas is not None, "only a broker of a cluster has replicas"

        def synced(append: PendingAppend) -> None:
            on_synced(append)
            replicas.on_log_synced(log)

        append = log.append_fetched(data, now_ms=self._clock.now_ms())
        append.caller_data = (None, 0, synced)
        if log.environment.durability.is_immediate:
            self._finish(append)

    async def append_durably(self, log: Log, batch: bytes | bytearray) -> PendingAppend:
        """Append a batch of the broker's own and wait until it is durable. Raises StorageError."""
        done = self._loop.create_future()

        def finish(append: PendingAppend) -> None:
            if not done.done():
                done.set_result(append)

        self.append(log, batch, finish, AppendOrigin.COORDINATOR)
        append: PendingAppend = await done
        return append.result()

    def batch_of(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        producer_id: ProducerId = NO_PRODUCER_ID,
        producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    ) -> bytearray:
        """Return a batch of the broker's own records, transactional if there is a producer id."""
        now_ms = self._clock.now_ms()
        return build_batch(
            [Record(timestamp=now_ms, key=key, value=value) for key, value in records],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer_id != NO_PRODUCER_ID,
        )

    def complete_from_thread(self, appends: Sequence[PendingAppend]) -> None:
        """Finish a group of completed appends on the event loop. Called on the committer's thread."""
        self._loop.call_soon_threadsafe(self._drain, appends)

    def _drain(self, appends: Sequence[PendingAppend]) -> None:
        remaining = iter(appends)
        self.is_draining = True
        try:
            for append in remaining:
                self._finish(append)
        finally:
            self.is_draining = False
            # A callback raised: the event loop reports it, and the other appends of the group are finished next.
            if unfinished := list(remaining):
                self._loop.call_soon(self._drain, unfinished)
            self.on_drained()

    def _finish(self, append: PendingAppend) -> None:
        if append.caller_data is None:
            return
        partition, length, on_done = append.caller_data
        append.caller_data = None
        if append.error is None and not append.duplicate and partition is not None:
            self._on_committed(partition, length)
        on_done(append)
