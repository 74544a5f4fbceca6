"""Fetches the records of partitions that this broker follows from one leader, over one connection.

A leader has two fetchers: one for the partitions of which this broker is an in-sync replica, and one for the others. A
replica that has much to catch up with then does not delay the acknowledgements of writes.

A fetch reports the follower's log end offset as durable, so the next one is sent when all records of the last response
are synced. A replica that catches up fetches while they are synced, as far as the leader does not count what it reports
(`PartitionFollower.may_fetch`); the records of at most two responses are unsynced. Fetch sessions (KIP-227) keep the
requests small: a fetch lists only partitions whose position has changed.

A partition that fails, or whose records are not synced yet, is left out for a while and does not stop the others. The
fetch of the others then waits for a shorter time, and the next one has it. When a partition is added, the fetch that
waits on the connection would delay it: the connection is made anew, but not more often than every 0.1 s.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Protocol

from logbrook.core.cluster.image import ClusterImage
from logbrook.core.fetch_sessions import next_session_epoch
from logbrook.core.replication.follower import (
    EpochEnd,
    FollowerEffect,
    MoveHighWatermark,
    MoveLogStart,
    PartitionFollower,
    ReplicaFetch,
    StartAt,
    TruncateLog,
)
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from logbrook.ports import Clock
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from logbrook.records.batch import iter_headers
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.server.cluster.probe import ClusterProbe
from logbrook.server.cluster.replica import Replica
from logbrook.server.cluster.throttle import ReplicationThrottle
from logbrook.server.log_appender import LogAppender
from logbrook.server.logs import RateLimitedWarnings
from logbrook.storage.errors import DiskFullError
from logbrook.storage.log import Log
from logbrook.storage.pending_append import PendingAppend
from logbrook.storage.truncation import truncate

VERSION = 17
_WAIT_MS_MAX = 500
# The wait of a fetch without a partition whose records are not synced yet.
_UNSYNCED_WAIT_MS = 10
_TIMEOUT_S = 30.0
_BYTES_MAX = 16 << 20
_CATCH_UP_BYTES_MAX = 4 << 20
_PARTITION_BYTES_MAX = 1 << 20
_RECONNECT_S = 0.05
_RECONNECT_S_MAX = 1.0
# A connection of this age that is lost is made anew at once: if its broker was killed, that is refused.
_STEADY_S = 1.0
# A partition whose fetch failed is left out for this long: its leader or this broker may have older metadata.
_FAILED_S = 0.05
_INTERRUPT_S_MIN = 0.1

_logger = event_logger(__name__)

Connect = Callable[[str, int], Awaitable[PeerConnection]]


class FollowedReplicas(Protocol):
    """The owner of the replicas: carries out what changes more than a log."""

    probe: ClusterProbe

    def move_high_watermark(self, replica: Replica, offset: Offset) -> None: ...

    def replace_log(self, replica: Replica, start_offset: Offset) -> None: ...

    def on_disk_full(self, log: Log) -> None: ...

    def on_connected(self, connection: PeerConnection, broker_id: BrokerId) -> None: ...

    def on_unreachable(self, broker_id: BrokerId, error: OSError) -> None: ...


class _FetchedPartition:
    """A partition of the fetcher, and what the leader's session has of it."""

    __slots__ = ("blocked_until_s", "is_in_session", "replica", "sent")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.sent: ReplicaFetch | None = None
        self.is_in_session = False
        self.blocked_until_s = 0.0


class ReplicaFetcher:
    """One or two per leader, on the event loop. Its task runs from the construction to `stop`.

    `throttle` is that of a fetcher for partitions that are catching up, otherwise None.
    """

    def __init__(
        self,
        owner: FollowedReplicas,
        leader: BrokerId,
        broker_id: BrokerId,
        broker_epoch_of_self: Callable[[], BrokerEpoch],
        image: ClusterImage,
        appender: LogAppender,
        clock: Clock,
        connect: Connect,
        loop: asyncio.AbstractEventLoop,
        throttle: ReplicationThrottle | None,
        listener: str,
    ) -> None:
        self.leader = leader
        self._throttle = throttle
        self._listener = listener
        self._owner = owner
        self._broker_id = broker_id
        self._broker_epoch_of_self = broker_epoch_of_self
        self._image = image
        self._appender = appender
        self._clock = clock
        self._connect = connect
        self._loop = loop
        self._warnings = RateLimitedWarnings(_logger, clock)
        self._partitions: dict[tuple[bytes, int], _FetchedPartition] = {}
        # In the leader's session, but no longer fetched, or fetched anew.
        self._forgotten: dict[tuple[bytes, int], None] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._connection: PeerConnection | None = None
        self._is_fetching = False
        # The wait of the next fetch.
        self._wait_ms = _WAIT_MS_MAX
        self._interrupted_s = clock.monotonic_s() - _INTERRUPT_S_MIN
        self._interrupt_timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self.task = loop.create_task(self._run())
        self.task.add_done_callback(self._on_task_done)

    @property
    def is_idle(self) -> bool:
        return not self._partitions

    def add(self, replica: Replica) -> None:
        key = (replica.key.topic_id, replica.key.partition)
        self._partitions[key] = _FetchedPartition(replica)
        self._interrupt()

    def remove(self, replica: Replica) -> None:
        key = (replica.key.topic_id, replica.key.partition)
        fetched = self._partitions.pop(key, None)
        if fetched is not None and fetched.is_in_session:
            self._forgotten[key] = None

    def address_changed(self) -> None:
        """Brokers have come or gone: try to connect at once."""
        self._changed.set()

    def stop(self) -> None:
        self.task.cancel()

    def _interrupt(self) -> None:
        """Fetch anew with the partitions that were added, now or soon."""
        if self._interrupt_timer is not None:
            return
        wait_s = self._interrupted_s + _INTERRUPT_S_MIN - self._clock.monotonic_s()
        if wait_s > 0 and self._is_fetching:
            self._interrupt_timer = self._loop.call_later(wait_s, self._interrupt_now)
        else:
            self._interrupt_now()

    def _interrupt_now(self) -> None:
        self._interrupt_timer = None
        self._interrupted_s = self._clock.monotonic_s()
        self._changed.set()
        if self._is_fetching and self._connection is not None:
            self._connection.close()

    async def _run(self) -> None:
        pause_s = _RECONNECT_S
        try:
            while True:
                self._changed.clear()
                began_s = self._clock.monotonic_s()
                try:
                    await self._fetch_from_leader()
                    pause_s = _RECONNECT_S
                except ConnectionRefusedError:
                    pass
                except (OSError, LogbrookError) as error:
                    if not self._changed.is_set():
                        self._warnings.warn("fetch", "replica fetch failed", leader=self.leader, error=error)
                except Exception as error:
                    # A bug. Without a fetcher none of its partitions would get in sync again.
                    self._report(error)
                    self._disconnect()
                if self._connection is not None and self._clock.monotonic_s() - began_s > _STEADY_S:
                    self._disconnect()
                    pause_s = _RECONNECT_S
                    continue
                self._disconnect()
                is_changed = await self._pause(pause_s)
                pause_s = _RECONNECT_S if is_changed else min(2 * pause_s, _RECONNECT_S_MAX)
        finally:
            if self._interrupt_timer is not None:
                self._interrupt_timer.cancel()
            self._disconnect()

    async def _pause(self, seconds: float) -> bool:
        """Wait, but no longer than until something changes. Return True if it does."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _fetch_from_leader(self) -> None:
        """Fetch until the connection is lost. Return at once if the leader has no address.

        Raises OSError or ProtocolError.
        """
        broker = self._image.brokers.get(self.leader)
        address = None if broker is None else broker.registration.address(self._listener)
        if address is None:
            return
        try:
            self._connection = await self._connect(*address)
        except OSError as error:
            self._owner.on_unreachable(self.leader, error)
            raise
        # The memory of a response is reused when the second request after it is sent; its records are synced by then.
        self._connection.reuses_memory = True
        self._owner.on_connected(self._connection, self.leader)
        self._session_id = self._session_epoch = 0
        self._forgotten.clear()
        for fetched in self._partitions.values():
            fetched.is_in_session, fetched.sent = False, None
        # The appends of the last response.
        unsynced: list[asyncio.Future[None]] = []
        while True:
            self._changed.clear()
            positions = self._positions()
            if not positions:
                if unsynced:
                    await asyncio.wait(unsynced)
                    unsynced = []
                else:
                    await self._pause(_FAILED_S)
                continue
            self._is_fetching = True
            try:
                response = await self._connection.request(
                    self._request(positions), FetchResponse, VERSION, timeout_s=_TIMEOUT_S
                )
            finally:
                self._is_fetching = False
            if response.error_code:
                # Usually the leader has dropped the session. The next connection begins a new one.
                raise ConnectionResetError(ErrorCode(response.error_code).name)
            self._session_id = response.session_id
            self._session_epoch = next_session_epoch(self._session_epoch) if self._session_id else 0
            appends = self._accept(response, positions)
            if awaited := (appends if self._throttle is None else unsynced):
                await asyncio.wait(awaited)
            unsynced = appends

    def _positions(self) -> dict[tuple[bytes, int], tuple[PartitionFollower, ReplicaFetch]]:
        """Return the next fetch of each partition that can be fetched, and set how long it may wait."""
        self._wait_ms = _WAIT_MS_MAX
        positions: dict[tuple[bytes, int], tuple[PartitionFollower, ReplicaFetch]] = {}
        now_s = self._clock.monotonic_s()
        for key, fetched in self._partitions.items():
            follower, log = fetched.replica.follower, fetched.replica.log
            if follower is None or log is None:
                continue
            if fetched.blocked_until_s > now_s:
                self._wait_ms = min(self._wait_ms, 1 + int(1000 * (fetched.blocked_until_s - now_s)))
                continue
            throttle = self._throttle_of(fetched.replica)
            if throttle is not None and throttle.is_exceeded():
                continue
            if log.corruption is not None or log.environment.health.failure is not None:
                # It is repaired first (`replica_repair`), and must not join the ISR before.
                continue
            if not follower.may_fetch(log.log_end_offset, log.synced_end_offset):
                # Records of this broker's own term as a leader, records from another leader, or records up to the
                # leader's high watermark: the leader counts an offset there, so they must be synced first.
                self._wait_ms = min(self._wait_ms, _UNSYNCED_WAIT_MS)
                continue
            fetch = follower.fetch(log.log_start_offset, log.log_end_offset, log.synced_end_offset, _last_epoch(log))
            positions[key] = (follower, fetch)
        return positions

    def _throttle_of(self, replica: Replica) -> ReplicationThrottle | None:
        throttle = self._throttle
        return throttle if throttle is not None and throttle.applies_to(replica.partition) else None

    def _request(self, positions: dict[tuple[bytes, int], tuple[PartitionFollower, ReplicaFetch]]) -> FetchRequest:
        topics: dict[bytes, list[FetchPartition]] = {}
        for key, (_, fetch) in positions.items():
            fetched = self._partitions[key]
            if fetched.is_in_session and fetched.sent == fetch and self._session_id:
                continue
            fetched.is_in_session, fetched.sent = True, fetch
            topics.setdefault(key[0], []).append(
                FetchPartition(
                    partition=key[1],
                    current_leader_epoch=fetch.leader_epoch,
                    fetch_offset=fetch.offset,
                    last_fetched_epoch=fetch.last_epoch,
                    log_start_offset=fetch.log_start_offset,
                    partition_max_bytes=_PARTITION_BYTES_MAX,
                )
            )
        # Partitions that cannot be fetched now must not be in the session: the leader would send them again and again.
        for key, fetched in self._partitions.items():
            if fetched.is_in_session and key not in positions:
                self._forget(key, fetched)
        # A leader forgets before it adds, so that a partition that is in both lists begins anew.
        forgotten: dict[bytes, list[int]] = {}
        for key in self._forgotten:
            forgotten.setdefault(key[0], []).append(key[1])
        self._forgotten.clear()
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=self._broker_epoch_of_self()),
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=_BYTES_MAX if self._throttle is None else _CATCH_UP_BYTES_MAX,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=numbers) for topic_id, numbers in forgotten.items()
            ],
        )

    def _forget(self, key: tuple[bytes, int], fetched: _FetchedPartition) -> None:
        """Have the leader tell everything of a partition again when it is fetched next, not only what is new."""
        fetched.is_in_session = False
        self._forgotten[key] = None

    def _accept(
        self, response: FetchResponse, positions: dict[tuple[bytes, int], tuple[PartitionFollower, ReplicaFetch]]
    ) -> list[asyncio.Future[None]]:
        """Apply the response. Returns what is done when its records are synced."""
        appends: list[asyncio.Future[None]] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                fetched = self._partitions.get(key)
                if fetched is None or key not in positions:
                    continue
                follower, fetch = positions[key]
                replica, log = fetched.replica, fetched.replica.log
                if replica.follower is not follower or log is None or log.log_end_offset != fetch.offset:
                    # It has another leader, or other records, by now.
                    self._forget(key, fetched)
                    continue
                try:
                    self._accept_partition(replica, log, follower, data, appends)
                except LogbrookError as error:
                    self._warnings.warn(
                        "partition",
                        "replica fetch failed",
                        partition=replica.partition,
                        leader=self.leader,
                        error=error,
                    )
                    fetched.blocked_until_s = self._clock.monotonic_s() + _FAILED_S
                    self._forget(key, fetched)
                    if isinstance(error, DiskFullError):
                        self._owner.on_disk_full(log)
                if data.error_code:
                    fetched.blocked_until_s = self._clock.monotonic_s() + _FAILED_S
        return appends

    def _accept_partition(
        self,
        replica: Replica,
        log: Log,
        follower: PartitionFollower,
        data: PartitionData,
        appends: list["asyncio.Future[None]"],
    ) -> None:
        """Raises LogbrookError."""
        effects: list[FollowerEffect] = []
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            effects = follower.on_out_of_range(Offset(data.log_start_offset), log.log_start_offset, log.log_end_offset)
        elif data.error_code:
            return
        elif data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
            divergence = EpochEnd(LeaderEpoch(data.diverging_epoch.epoch), Offset(data.diverging_epoch.end_offset))
            end = log.epochs.end_offset(divergence.epoch, log.log_end_offset)
            own_end = None if end is None else EpochEnd(end.epoch, end.start_offset)
            effects = follower.on_divergence(
                divergence, own_end, log.log_start_offset, log.log_end_offset, Offset(data.log_start_offset)
            )
        else:
            if data.records:
                assert isinstance(data.records, memoryview)
                if not self._prepare_append(replica, log, follower, data.records):
                    return
                assert replica.log is not None
                log = replica.log
                appends.append(self._append(log, data.records))
            effects = follower.on_response(
                has_records=bool(data.records),
                leader_high_watermark=Offset(data.high_watermark),
                leader_log_start_offset=Offset(data.log_start_offset),
                high_watermark=log.high_watermark,
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
            )
        for effect in effects:
            self._carry_out(replica, log, effect)

    def _prepare_append(self, replica: Replica, log: Log, follower: PartitionFollower, records: memoryview) -> bool:
        """Change or replace the log if it cannot take the first batch at its end.

        Returns False if the records have to be fetched again. Raises LogbrookError.
        """
        if (throttle := self._throttle_of(replica)) is not None:
            throttle.record(len(records))
        for _, first in islice(iter_headers(records), 1):
            start, end = log.log_start_offset, log.log_end_offset
            for effect in follower.before_append(first.base_offset, first.next_offset, start, end):
                self._carry_out(replica, log, effect)
                return replica.log is not log
        return True

    def _carry_out(self, replica: Replica, log: Log, effect: FollowerEffect) -> None:
        """Raises LogbrookError."""
        match effect:
            case TruncateLog(offset):
                before = log.log_end_offset
                truncate(log, offset)
                _logger.info("replica truncated", partition=replica.partition, offset=offset, log_end_offset=before)
            case StartAt(offset):
                if log.synced_end_offset != log.log_end_offset:
                    # The log is replaced after a later fetch, when the appends to it are done.
                    return
                _logger.info("replica restarted", partition=replica.partition, offset=offset)
                self._owner.replace_log(replica, offset)
            case MoveHighWatermark(offset):
                self._owner.move_high_watermark(replica, offset)
            case MoveLogStart(offset):
                log.raise_start(offset)
            case _:
                # The records are appended already.
                pass

    def _append(self, log: Log, records: memoryview) -> "asyncio.Future[None]":
        """Append fetched records. The future is done when they are synced, or have failed. Raises StorageError."""
        done: asyncio.Future[None] = self._loop.create_future()

        def finish(_: PendingAppend) -> None:
            if not done.done():
                done.set_result(None)

        self._appender.append_fetched(log, records, finish)
        self._owner.probe.bytes_fetched += len(records)
        return done

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(error)

    def _report(self, error: BaseException) -> None:
        message = f"the replica fetcher of broker {self.leader} failed"
        self._loop.call_exception_handler({"message": message, "exception": error, "task": self.task})


def _last_epoch(log: Log) -> LeaderEpoch:
    """Return the latest leader epoch of the log. A log that retention has emptied keeps it."""
    return log.epochs.latest
