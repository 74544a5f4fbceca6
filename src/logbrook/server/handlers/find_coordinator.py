"""FindCoordinator: the broker that coordinates a group or a transactional id, which is always this one.

Up to version 3 a request has one key, later several.
"""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services

GROUP = 0
TRANSACTION = 1
_SEVERAL_KEYS_SINCE = 4
_NO_NODE = -1


def handle(services: Services, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.version >= _SEVERAL_KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=[_find(services, request, key) for key in request.coordinator_keys])
    coordinator = _find(services, request, request.key)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


API = Api(FindCoordinatorRequest, FindCoordinatorResponse, handle)


def _find(services: Services, request: FindCoordinatorRequest, key: str) -> Coordinator:
    if request.key_type not in (GROUP, TRANSACTION):
        code = ErrorCode.INVALID_REQUEST
        message = f"coordinator type {request.key_type} is not supported; use 0 (group) or 1 (transaction)"
        return Coordinator(key=key, node_id=_NO_NODE, port=_NO_NODE, error_code=code, error_message=message)
    endpoint = services.endpoint
    return Coordinator(key=key, node_id=services.config.node_id, host=endpoint.host, port=endpoint.port)
