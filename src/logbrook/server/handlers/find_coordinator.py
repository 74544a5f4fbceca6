"""FindCoordinator: the broker that coordinates a group or a transactional id.

It is the leader of the id's partition of `__consumer_offsets` or `__transaction_state`, which a cluster creates with
the first request. A single node coordinates everything itself. Up to version 3 a request has one key, later several.
"""

from collections.abc import Sequence

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.server.api import Api, HandlerResult, RequestContext
from logbrook.server.coordinators.internal_topic import InternalTopic
from logbrook.server.errors import report_error
from logbrook.server.security.authorizer import DENIED_CODES
from logbrook.server.services import Services

GROUP = 0
TRANSACTION = 1
_RESOURCE_TYPES = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_SEVERAL_KEYS_SINCE = 4
_NO_NODE = -1


def handle(services: Services, request: FindCoordinatorRequest, context: RequestContext) -> HandlerResult:
    keys = request.coordinator_keys if context.version >= _SEVERAL_KEYS_SINCE else [request.key]
    topic = _topic(services, request.key_type)
    is_refused = services.authorizer.is_enabled and not any(_may_find(services, request, key, context) for key in keys)
    if topic is None or services.replicas is None or topic.exists or is_refused:
        return _respond([_find(services, topic, request, key, context) for key in keys], context.version)
    return _create_and_respond(services, topic, request, keys, context)


API = Api(FindCoordinatorRequest, FindCoordinatorResponse, handle)


async def _create_and_respond(
    services: Services,
    topic: InternalTopic,
    request: FindCoordinatorRequest,
    keys: Sequence[str],
    context: RequestContext,
) -> FindCoordinatorResponse:
    try:
        await topic.create()
    except LogbrookError as error:
        failed = Coordinator(node_id=_NO_NODE, port=_NO_NODE)
        report_error(error, failed)
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, failed.error_message
        return _respond([_failed(key, code, message) for key in keys], context.version)
    return _respond([_find(services, topic, request, key, context) for key in keys], context.version)


def _respond(coordinators: Sequence[Coordinator], version: int) -> FindCoordinatorResponse:
    if version >= _SEVERAL_KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=coordinators)
    coordinator = coordinators[0]
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _topic(services: Services, key_type: int) -> InternalTopic | None:
    """Return the internal topic of a type of coordinator, None for an unknown type."""
    if key_type == GROUP:
        return services.groups.runtime.topic
    return services.transactions.runtime.topic if key_type == TRANSACTION else None


def _may_find(
    services: Services, request: FindCoordinatorRequest, key: str, context: RequestContext, *, is_audited: bool = False
) -> bool:
    resource_type = _RESOURCE_TYPES.get(request.key_type)
    return resource_type is None or services.authorizer.allows(
        context, AclOperation.DESCRIBE, resource_type, key, is_audited=is_audited
    )


def _find(
    services: Services, topic: InternalTopic | None, request: FindCoordinatorRequest, key: str, context: RequestContext
) -> Coordinator:
    if topic is None:
        message = f"coordinator type {request.key_type} is not supported; use 0 (group) or 1 (transaction)"
        return _failed(key, ErrorCode.INVALID_REQUEST, message)
    if services.authorizer.is_enabled and not _may_find(services, request, key, context, is_audited=True):
        resource_type = _RESOURCE_TYPES[request.key_type]
        return _failed(key, DENIED_CODES[resource_type], f"not authorized to describe {resource_type.name} {key!r}")
    # A single node does not need the partition, and an id of any length may be asked for.
    number = 0 if services.replicas is None else topic.partition_for(key)
    broker = services.view.leader_address(TopicPartition(topic.name, number), context.listener)
    if broker is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic.name}-{number} has no leader; try again")
    return Coordinator(key=key, node_id=broker.broker_id, host=broker.host, port=broker.port)


def _failed(key: str, code: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=_NO_NODE, port=_NO_NODE, error_code=code, error_message=message)
