"""Fetch: return batches from the given offsets, now or once `min_bytes` are available or `max_wait_ms` have passed.

`PendingFetch` reads and waits; a fetch of a follower is a `FollowerFetch`. Both belong to a fetch session (KIP-227).
"""

from collections.abc import Iterator

from logbrook.core.acls import AclOperation
from logbrook.core.fetch_sessions import FetchSessionError
from logbrook.core.session_partitions import CachedPartition, PartitionKey
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import FetchRequest, FetchResponse
from logbrook.server.api import Api, HandlerResult, RequestContext, may_act_as_broker
from logbrook.server.cluster.follower_fetch import FollowerFetch, RefusedFollowerFetch
from logbrook.server.errors import error_code
from logbrook.server.pending_fetch import PendingFetch
from logbrook.server.services import Services

_TOPIC_IDS_SINCE = 13

_logger = event_logger(__name__)


def handle(services: Services, request: FetchRequest, context: RequestContext) -> HandlerResult:
    replica_id = request.replica_state.replica_id if request.replica_state is not None else request.replica_id
    is_allowed = services.replicas is not None and request.replica_state is not None
    if replica_id >= 0 and not (is_allowed and may_act_as_broker(services, context)):
        # Follower fetches need cluster authorization (CVE-2018-1288); a single node has no followers.
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        session = services.fetch_sessions.begin(
            request.session_id,
            request.session_epoch,
            _wanted(request, context.version),
            _forgotten(request, context.version),
            services.clock.now_ms(),
            by_id=context.version >= _TOPIC_IDS_SINCE,
            conditions=_conditions(services, request, context),
        )
    except FetchSessionError as error:
        return FetchResponse(error_code=error_code(error))
    if session.missed:
        keys = [_name(services, partition.key) for partition in session.missed]
        _logger.error("changes of partitions not reported to a fetch session", partitions=keys, action="report a bug")
    if replica_id >= 0 and not services.authorizer.allows_cluster(context, AclOperation.CLUSTER_ACTION):
        return RefusedFollowerFetch(services, request, session, context).begin()
    if replica_id >= 0:
        return FollowerFetch(services, request, session, context).begin()
    return PendingFetch(services, request, session, context, services.quotas.fetch(context)).begin()


API = Api(FetchRequest, FetchResponse, handle)


def _conditions(services: Services, request: FetchRequest, context: RequestContext) -> tuple[object, ...]:
    """Return what the answer for a partition depends on, besides its log, its topic and its replicas."""
    client = context.session
    return (
        request.isolation_level,
        request.rack_id,
        context.version,
        client.principal,
        client.host,
        services.security.acls.version,
        services.appender.leader_epoch,
    )


def _name(services: Services, key: PartitionKey) -> str:
    topic_id, number = key
    if isinstance(topic_id, bytes):
        topic = services.topics.metadata.topic_with_any_state(topic_id)
        return f"{topic_id.hex() if topic is None else topic.name}-{number}"
    return f"{topic_id}-{number}"


def _wanted(request: FetchRequest, version: int) -> Iterator[CachedPartition]:
    for topic in request.topics:
        key = topic.topic_id if version >= _TOPIC_IDS_SINCE else topic.topic
        for partition in topic.partitions:
            yield CachedPartition(
                (key, partition.partition),
                Offset(partition.fetch_offset),
                partition.partition_max_bytes,
                LeaderEpoch(partition.current_leader_epoch),
                last_fetched_epoch=LeaderEpoch(partition.last_fetched_epoch),
                follower_log_start_offset=Offset(partition.log_start_offset),
            )


def _forgotten(request: FetchRequest, version: int) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if version >= _TOPIC_IDS_SINCE else topic.topic
        for partition in topic.partitions:
            yield key, partition
