"""The fetch of a follower, on its leader: it says what the follower has, and returns what it lacks."""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.fetch_sessions import FetchContext
from logbrook.core.replication.follower import ReplicaFetch
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import BrokerEpoch, BrokerId, Offset
from logbrook.protocol.messages.fetch import EpochEndOffset, FetchRequest, FetchResponse, PartitionData
from logbrook.server.api import RequestContext
from logbrook.server.leader_epoch import check_leader_epoch
from logbrook.server.pending_fetch import PartitionRead, PendingFetch
from logbrook.server.security.authorizer import AuthorizationFailedError
from logbrook.server.services import Services
from logbrook.storage.errors import OffsetOutOfRangeError
from logbrook.storage.log import Log


class FollowerFetch(PendingFetch):
    """A fetch of a follower: it reads up to the log end offset, and reports that it has what is below its own."""

    # What is not committed may be truncated and overwritten before it is sent.
    _is_read_to_memory = True
    # Every fetch reports what the follower has of every partition.
    _may_be_idle = False

    def __init__(
        self, services: Services, request: FetchRequest, session: FetchContext, context: RequestContext
    ) -> None:
        super().__init__(services, request, session, context)
        self._may_follow = False
        assert services.replicas is not None
        assert request.replica_state is not None
        self._leading = services.replicas.leading
        self._purgatory = services.replicas.leading.replica_fetches
        self._is_read_committed = False
        self._replica_id = BrokerId(request.replica_state.replica_id)
        self._broker_epoch = BrokerEpoch(request.replica_state.replica_epoch)
        self._leading.liveness.on_heard(self._replica_id)
        for read in self._reads:
            self._report(read)

    def _stop_waiting(self) -> None:
        """The follower has closed the connection: its process may have ended."""
        super()._stop_waiting()
        self._leading.liveness.try_address(self._replica_id)

    def _report(self, read: PartitionRead) -> None:
        """Tell the leader's state what the follower has. An error or a divergence is the result of the partition."""
        wanted = read.wanted
        topic_id, number = wanted.key
        assert isinstance(topic_id, bytes)
        try:
            partition = TopicPartition(self._services.topics.metadata.topic_with_id(topic_id).name, number)
            check_leader_epoch(partition, wanted.current_leader_epoch, self._leading.leader_of(partition).leader_epoch)
            fetch = ReplicaFetch(
                wanted.fetch_offset,
                wanted.last_fetched_epoch,
                wanted.current_leader_epoch,
                wanted.follower_log_start_offset,
            )
            session_id = self._session.session_id
            divergence = self._leading.on_fetch(partition, fetch, self._replica_id, self._broker_epoch, session_id)
        except LogbrookError as error:
            self._fail(read, error)
            return
        if divergence is not None:
            log = self._services.topics.log(partition)
            read.high_watermark, read.log_start_offset = log.high_watermark, log.log_start_offset
            read.data = PartitionData(
                partition_index=number,
                high_watermark=read.high_watermark,
                log_start_offset=read.log_start_offset,
                diverging_epoch=EpochEndOffset(epoch=divergence.epoch, end_offset=divergence.end_offset),
                records=b"",
            )

    def _end_offset(self, log: Log) -> Offset | None:
        return log.log_end_offset

    def _authorize(self, topic: str) -> None:
        """A follower needs no rights on topics."""

    def _read_partition(self, read: PartitionRead, remaining_bytes: int, *, is_first: bool) -> None:
        if self._leading.throttle.is_exceeded() and self._is_throttled(read):
            remaining_bytes, is_first = 0, False
        super()._read_partition(read, remaining_bytes, is_first=is_first)

    def _is_throttled(self, read: PartitionRead) -> bool:
        topic_id, number = read.wanted.key
        assert isinstance(topic_id, bytes)
        topic = self._services.topics.metadata.topic_with_any_state(topic_id)
        return topic is not None and self._leading.is_throttled(TopicPartition(topic.name, number), self._replica_id)

    def _respond(self) -> FetchResponse:
        throttle = self._leading.throttle
        if throttle.rate is not None:
            throttle.record(sum(read.size for read in self._reads if read.size and self._is_throttled(read)))
        return super()._respond()

    def _is_enough(self, size: int) -> bool:
        """A higher high watermark is sent at once: consumers of the follower wait for it."""
        return size > 0 or any(read.partition is None or self._has_news(read) for read in self._reads)

    def _has_news(self, read: PartitionRead) -> bool:
        assert read.data is not None
        return read.wanted.has_news(read.high_watermark, read.log_start_offset, has_records=False, has_error=False)

    def _fail(self, read: PartitionRead, error: LogbrookError) -> None:
        super()._fail(read, error)
        if isinstance(error, OffsetOutOfRangeError) and read.data is not None:
            # The follower continues at the start of this log.
            read.log_start_offset = read.data.log_start_offset = error.log_start_offset


class RefusedFollowerFetch(PendingFetch):
    """A fetch of a follower that may not act as a broker. As in Kafka, every partition has the error."""

    def _authorize(self, topic: str) -> None:
        raise AuthorizationFailedError(self._context.principal, AclOperation.CLUSTER_ACTION, ResourceType.TOPIC, topic)
