"""FindCoordinator: who looks after a group or a transactional id. There is one broker, and it is this one.

Up to version 3 a request names one key, later ones name several and are answered for each.
"""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.server.api import Api, Call
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services

GROUP = 0
TRANSACTION = 1
_SEVERAL_KEYS_SINCE = 4
_NOBODY = -1


def handle(services: Services, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    if call.version >= _SEVERAL_KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=[_find(services, request, key) for key in request.coordinator_keys])
    found = _find(services, request, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


API = Api(FindCoordinatorRequest, FindCoordinatorResponse, handle)


def _find(services: Services, request: FindCoordinatorRequest, key: str) -> Coordinator:
    try:
        _check_key_type(request.key_type)
    except RefusedError as error:
        code, message = refuse(services, request, error)
        return Coordinator(key=key, node_id=_NOBODY, port=_NOBODY, error_code=code, error_message=message)
    endpoint = services.endpoint
    return Coordinator(key=key, node_id=services.config.node_id, host=endpoint.host, port=endpoint.port)


def _check_key_type(key_type: int) -> None:
    if key_type not in (GROUP, TRANSACTION):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"there are no coordinators of the type {key_type}")
