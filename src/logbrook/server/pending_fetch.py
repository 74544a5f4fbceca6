"""A fetch in flight: it reads, and reads again whenever it is woken, until it has enough records or its time is over.

The bytes of a segment go to the socket as they are, not decoded; large slices are read when they are sent. The first
batch of a response is returned whatever its size, so that no consumer gets stuck before it (KIP-74). Records that are
not in the page cache are loaded in a thread first, and the fetch reads again when they are; if other partitions have
records, those are returned without waiting.

While responses hold all memory that they may (`response_memory`), a fetch reads no records, and waits for a second at
most.

A response above the client's quota is sent without records, with the time after which the client may ask again
(KIP-219). Followers have no quota.

A fetch that waits keeps the results of empty partitions. When it is woken it reads again only the partitions that
changed and those that had records; the records themselves are not kept in memory while it waits.
"""

import asyncio
from collections.abc import Collection, Sequence

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.fetch_sessions import FetchContext
from logbrook.core.session_partitions import NO_OFFSET, CachedPartition
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from logbrook.server.api import DeferredResponse, HandlerResult, RequestContext
from logbrook.server.cluster.errors import NotLeaderError, OffsetNotAvailableError
from logbrook.server.cluster.leading import NO_REPLICA
from logbrook.server.cold_reads import CacheMisses
from logbrook.server.errors import error_code
from logbrook.server.fetch_purgatory import DelayedFetch
from logbrook.server.leader_epoch import check_leader_epoch
from logbrook.server.security.quotas import FetchQuota
from logbrook.server.services import Services
from logbrook.storage.errors import NotCachedError, OffsetOutOfRangeError, ReadFailedError
from logbrook.storage.log import Log

_READ_COMMITTED = 1
# KIP-392: consumers may read from followers.
_FOLLOWERS_SINCE = 11
# Longest wait of a fetch that may not read because responses hold all memory.
EXHAUSTED_WAIT_S = 1.0


class PartitionRead:
    """The last read of one partition. `data` is None if the partition has to be read again."""

    __slots__ = (
        "data",
        "high_watermark",
        "is_at_end",
        "log_start_offset",
        "next_offset",
        "partition",
        "size",
        "wanted",
    )

    def __init__(self, wanted: CachedPartition) -> None:
        self.wanted = wanted
        self.data: PartitionData | None = None
        # Those of `data`, which has them as integers.
        self.high_watermark = self.log_start_offset = NO_OFFSET
        # None if it cannot be read.
        self.partition: TopicPartition | None = None
        self.next_offset = wanted.fetch_offset
        self.size = 0
        # True if there are no records before the log changes.
        self.is_at_end = False


class PendingFetch:
    """One request in flight. It reads when it begins, and again whenever it is woken. Followers have no quota."""

    # Large slices of committed records are read when they are sent.
    _is_read_to_memory = False
    # Partitions without anything new need not be read by the next fetch of the session.
    _may_be_idle = True

    def __init__(
        self,
        services: Services,
        request: FetchRequest,
        session: FetchContext,
        context: RequestContext,
        quota: FetchQuota | None = None,
    ) -> None:
        self._services = services
        self._purgatory = services.fetch_purgatory
        self._quota = quota
        if quota is not None:
            request.max_bytes = min(request.max_bytes, quota.bytes_max)
            request.min_bytes = min(request.min_bytes, request.max_bytes)
        self._context = context
        self._may_follow = context.version >= _FOLLOWERS_SINCE
        # The leaders of partitions that other brokers lead.
        self._leaders: dict[int, NodeEndpoint] = {}
        self._request = request
        self._session = session
        self._is_read_committed = request.isolation_level == _READ_COMMITTED
        self._reads = [PartitionRead(wanted) for wanted in session]
        # The replica in a consumer's rack may change without a change of the log: then no partition becomes idle.
        self._may_watch = self._may_be_idle and not (services.replicas is not None and request.rack_id)
        self._deadline_s = 0.0
        self._response: DeferredResponse | None = None
        self._delayed: DelayedFetch | None = None
        # The range that the last read lacked in the page cache, and all those of the reads in a row that lacked one.
        self._missing: NotCachedError | None = None
        self._misses: CacheMisses | None = None
        # True if the last read could return no records, because responses hold all memory.
        self._is_exhausted = False
        self._loading: asyncio.Task[None] | None = None

    def begin(self) -> HandlerResult:
        size = self._read()
        is_final = self._request.max_wait_ms <= 0
        if self._missing is None and (is_final or self._is_enough(size)):
            return self._respond()
        self._deadline_s = fetch_deadline_s(self._services, self._request.max_wait_ms)
        self._response = DeferredResponse(self._stop_waiting)
        if self._missing is not None:
            self._load(is_final)
        else:
            self._wait(size)
        return self._response

    def _is_enough(self, size: int) -> bool:
        if size >= self._request.min_bytes:
            return True
        is_any_readable = False
        for read in self._reads:
            if read.partition is None:
                return True
            is_any_readable = True
            # Batches are returned whole, so a response may be full although it is smaller than `min_bytes`.
            if size and self._has_more(read):
                return True
        return not is_any_readable and not self._session.has_idle

    def _has_more(self, read: PartitionRead) -> bool:
        """True if there are records that did not fit into the response."""
        assert read.data is not None
        end_offset = read.data.last_stable_offset if self._is_read_committed else read.data.high_watermark
        return read.next_offset < end_offset

    def _wait(self, size: int) -> None:
        partitions = [
            read.partition for read in self._reads if read.partition is not None and read.wanted.watched is None
        ]
        self._drop_records()
        missing_bytes = self._request.min_bytes - size
        deadline_s = self._deadline_s
        if self._is_exhausted:
            deadline_s = min(deadline_s, self._services.loop.time() + EXHAUSTED_WAIT_S)
            for read in self._reads:
                read.data = None
        self._delayed = self._purgatory.add(partitions, missing_bytes, deadline_s, self._wake, self._session.watching)

    def _wake(self, is_final: bool) -> None:
        assert self._response is not None
        if self._delayed is None:
            # The client has disconnected since the fetch was queued to be woken.
            return
        if self._may_watch and self._session.is_continued:
            self._add_activated()
        self._forget(self._delayed.changed)
        self._delayed = None
        self._continue(is_final)

    def _continue(self, is_final: bool) -> None:
        """Read, then load what is missing, respond or wait."""
        assert self._response is not None
        size = self._read()
        if self._missing is not None:
            self._load(is_final)
        elif is_final or self._is_enough(size):
            self._response.complete(self._respond())
        else:
            self._wait(size)

    def _load(self, is_final: bool) -> None:
        """Load what the last read lacked, then read again."""
        assert self._missing is not None
        missing, self._missing = self._missing, None
        self._misses = misses = self._misses or CacheMisses()
        misses.add(missing)

        async def load() -> None:
            try:
                await self._services.cold_reads.load(missing)
            except ReadFailedError as error:
                misses.add_failure(missing, error)
            self._loading = None
            self._forget_reported()
            self._continue(is_final)

        self._loading = self._services.loop.create_task(load())

    def _add_activated(self) -> None:
        """Read the partitions of the session, too, that were idle and have changed."""
        reads = {read.wanted: read for read in self._reads}
        self._reads = [reads.get(wanted) or PartitionRead(wanted) for wanted in self._session]

    def _forget(self, changed: Collection[TopicPartition]) -> None:
        for read in self._reads:
            if read.partition in changed:
                read.data = None

    def _forget_reported(self) -> None:
        """Read those partitions of the session again that had no records, and have changed while others were loaded."""
        if self._session.watching is not None:
            for read in self._reads:
                if read.is_at_end and read.wanted.watched is None:
                    read.data = None

    def _stop_waiting(self) -> None:
        if self._delayed is not None:
            self._delayed.cancel()
            self._delayed = None
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None

    def _read(self) -> int:
        """Read the partitions without a result, up to one that lacks something in the page cache.

        If there are enough records already, such partitions get none, and the range is loaded for the next fetch.
        Returns the size of all records, in bytes.
        """
        memory = self._services.response_memory
        self._is_exhausted = memory.is_exhausted
        bytes_max = remaining_bytes = 0 if self._is_exhausted else memory.fetch_bytes_max(self._request.max_bytes)
        with self._services.cold_reads.cached(self._misses):
            for read in self._reads:
                if read.data is None:
                    try:
                        is_first = remaining_bytes == bytes_max and not self._is_exhausted
                        self._read_partition(read, remaining_bytes, is_first=is_first)
                    except NotCachedError as missing:
                        size = bytes_max - remaining_bytes
                        if not size or size < self._request.min_bytes:
                            self._missing = missing
                            self._drop_records()
                            return 0
                        self._read_later(read, missing)
                    remaining_bytes -= read.size
        self._misses = None
        return bytes_max - remaining_bytes

    def _read_later(self, read: PartitionRead, missing: NotCachedError) -> None:
        """Return no records of this partition, and have them loaded for the next fetch."""
        try:
            self._services.cold_reads.load_for_later(missing)
        except ReadFailedError as error:
            self._fail(read, error)
        else:
            self._read_partition(read, 0, is_first=False)

    def _drop_records(self) -> None:
        """Drop the records that were read: they must not stay in memory while the fetch waits."""
        for read in self._reads:
            if read.size:
                read.data = None
                read.size = 0

    def _read_partition(self, read: PartitionRead, remaining_bytes: int, *, is_first: bool) -> None:
        wanted = read.wanted
        key, number = wanted.key
        preferred_replica = NO_REPLICA
        aborted: Sequence[AbortedTransaction] = ()
        read.size = 0
        read.is_at_end = False
        topics = self._services.topics
        try:
            name = key if isinstance(key, str) else topics.metadata.topic_with_id(key).name
            partition = TopicPartition(name, number)
            self._authorize(name)
            log, epoch = topics.readable_log(partition, may_follow=self._may_follow)
            check_leader_epoch(partition, wanted.current_leader_epoch, epoch)
            bytes_max = min(remaining_bytes, max(0, wanted.partition_max_bytes))
            result = log.read(
                wanted.fetch_offset,
                bytes_max,
                up_to=self._end_offset(log),
                at_least_one=is_first,
                in_memory=self._is_read_to_memory,
            )
            if self._is_read_committed:
                aborted = [
                    AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                    for producer_id, first_offset in log.aborted_between(wanted.fetch_offset, result.next_offset)
                ]
            if self._request.rack_id:
                preferred_replica = self._preferred_replica(partition)
        except OffsetOutOfRangeError as error:
            is_behind = error.offset > error.log_end_offset and self._may_be_behind(error.partition)
            self._fail(read, OffsetNotAvailableError(error.partition) if is_behind else error)
            return
        except LogbrookError as error:
            self._fail(read, error)
            if isinstance(error, NotLeaderError) and read.data is not None:
                self._refer(read.data, partition)
            return
        if preferred_replica != NO_REPLICA:
            result = result._replace(slices=[])
        read.high_watermark, read.log_start_offset = result.high_watermark, result.log_start_offset
        read.data = PartitionData(
            partition_index=number,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            aborted_transactions=aborted,
            preferred_read_replica=preferred_replica,
            records=[part.content for part in result.slices],
        )
        read.partition = partition
        if result.slices:
            read.size, read.next_offset = result.length, result.next_offset
        else:
            read.next_offset = wanted.fetch_offset
            if self._may_watch and not self._has_more(read):
                read.is_at_end = True
                self._session.watch(wanted, name)

    def _authorize(self, topic: str) -> None:
        """Raises AuthorizationFailedError. Asked for every read: a right may be revoked while a fetch waits."""
        authorizer = self._services.authorizer
        if authorizer.is_enabled:
            authorizer.check(self._context, AclOperation.READ, ResourceType.TOPIC, topic)

    def _may_be_behind(self, partition: TopicPartition) -> bool:
        """True if a leader may have records that this broker does not know of: it follows, or may have been deposed."""
        replicas = self._services.replicas
        if replicas is None:
            return False
        return not (self._services.topics.leads(partition) and replicas.membership.is_certain)

    def _preferred_replica(self, partition: TopicPartition) -> int:
        """Return the replica in the consumer's rack that it should read from, NO_REPLICA to read here (KIP-392)."""
        replicas, rack = self._services.replicas, self._request.rack_id
        if replicas is None or not rack or not self._may_follow:
            return NO_REPLICA
        return replicas.leading.replica_in_rack(partition, rack)

    def _refer(self, data: PartitionData, partition: TopicPartition) -> None:
        """Tell the client the leader of a partition, so that it need not ask for the metadata (KIP-951)."""
        leader = self._services.view.current_leader(partition, self._context.listener)
        if leader is not None:
            address = leader.address
            data.current_leader = LeaderIdAndEpoch(leader_id=address.broker_id, leader_epoch=leader.leader_epoch)
            self._leaders[address.broker_id] = NodeEndpoint(
                node_id=address.broker_id, host=address.host, port=address.port, rack=address.rack
            )

    def _end_offset(self, log: Log) -> Offset | None:
        """Return the offset up to which records are returned, None for the high watermark."""
        return log.last_stable_offset if self._is_read_committed else None

    def _fail(self, read: PartitionRead, error: LogbrookError) -> None:
        number = read.wanted.key[1]
        code = error_code(error)
        read.high_watermark = read.log_start_offset = NO_OFFSET
        read.data = PartitionData(partition_index=number, high_watermark=NO_OFFSET, records=b"", error_code=code)
        read.partition = None
        read.is_at_end = False

    def _respond(self) -> FetchResponse:
        if self._quota is not None and (throttle_ms := self._quota.take(sum(read.size for read in self._reads))):
            return self._throttled(throttle_ms)
        session = self._session
        topics: dict[bytes | str, FetchableTopicResponse] = {}
        for read in self._reads:
            wanted, data = read.wanted, read.data
            assert data is not None
            has_error = (
                bool(data.error_code) or data.diverging_epoch is not None or data.preferred_read_replica != NO_REPLICA
            )
            is_due = wanted.has_news(
                read.high_watermark, read.log_start_offset, has_records=read.size > 0, has_error=has_error
            )
            wanted.note_sent(read.high_watermark, read.log_start_offset, has_error=has_error)
            if read.is_at_end or wanted.is_swept:
                session.answered(wanted, has_news=is_due, is_at_end=read.is_at_end)
            if not (is_due or session.is_full):
                continue
            key = wanted.key[0]
            if key not in topics:
                topics[key] = _topic_response(key)
            topics[key].partitions.append(data)  # type: ignore[attr-defined]
            if read.size and read.partition is not None:
                session.served(wanted)
                # Counted by offsets, since batches are not decoded: records removed by compaction count too.
                messages = read.next_offset - wanted.fetch_offset
                self._services.probe.topics[read.partition.topic].gave(read.size, messages)
        return FetchResponse(
            session_id=session.session_id,
            responses=list(topics.values()),
            node_endpoints=list(self._leaders.values()),
        )

    def _throttled(self, throttle_ms: int) -> FetchResponse:
        """Return a response without partitions. A session continues; one that would begin now does not."""
        if not self._session.is_full:
            return FetchResponse(session_id=self._session.session_id, throttle_time_ms=throttle_ms)
        self._services.fetch_sessions.close(self._session.session_id)
        return FetchResponse(throttle_time_ms=throttle_ms)


def fetch_deadline_s(services: Services, max_wait_ms: int) -> float:
    """Return the event-loop time at which a fetch is answered at the latest.

    At most the idle timeout from now: that a client has disappeared is detected only by sending to it.
    """
    wait_ms = min(max_wait_ms, services.config.network.connection_idle_ms)
    return services.loop.time() + max(0, wait_ms) / 1000


def _topic_response(key: bytes | str) -> FetchableTopicResponse:
    if isinstance(key, bytes):
        return FetchableTopicResponse(topic_id=key, partitions=[])
    return FetchableTopicResponse(topic=key, partitions=[])
