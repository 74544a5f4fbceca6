"""SyncGroup: the leader sends the assignment, and every member gets its part of it."""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.coordinator import CoordinatorError
from logbrook.core.groups.errors import InconsistentGroupProtocolError
from logbrook.core.groups.messages import SyncRequest, SyncResult
from logbrook.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from logbrook.server.api import Api, HandlerResult, RequestContext
from logbrook.server.coordinators.responses import respond_when_done
from logbrook.server.errors import error_code
from logbrook.server.services import Services

# KIP-559: members have to send the protocol type and name.
_PROTOCOL_SINCE = 5


def handle(services: Services, request: SyncGroupRequest, context: RequestContext) -> HandlerResult:
    refusal = services.authorizer.refusal(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if refusal is not None:
        return SyncGroupResponse(error_code=refusal.code)

    def respond(result: SyncResult | CoordinatorError) -> SyncGroupResponse:
        if isinstance(result, CoordinatorError):
            return SyncGroupResponse(error_code=error_code(result))
        return SyncGroupResponse(
            protocol_type=result.protocol_type, protocol_name=result.protocol_name, assignment=result.assignment
        )

    protocol_type, protocol_name = request.protocol_type, request.protocol_name
    if context.version >= _PROTOCOL_SINCE and (protocol_type is None or protocol_name is None):
        return respond(InconsistentGroupProtocolError(request.group_id, protocol_type, (protocol_name or "none",)))
    sync = SyncRequest(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[(assignment.member_id, assignment.assignment) for assignment in request.assignments],
    )
    return respond_when_done(lambda: services.groups.sync(sync), respond)


API = Api(SyncGroupRequest, SyncGroupResponse, handle)
