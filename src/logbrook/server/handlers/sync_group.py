"""SyncGroup: the leader hands in who gets what, and each member is given its share."""

from logbrook.core.groups import SyncRequest, SyncResult
from logbrook.core.groups.errors import GroupError, InconsistentGroupProtocolError
from logbrook.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from logbrook.server.api import Api, Call, Handled
from logbrook.server.group_answers import answer_when_done
from logbrook.server.refusals import refuse
from logbrook.server.services import Services

# KIP-559: from here on members have to say what they believe the protocol is.
_PROTOCOL_SINCE = 5


def handle(services: Services, request: SyncGroupRequest, call: Call) -> Handled:
    def respond(result: SyncResult | GroupError) -> SyncGroupResponse:
        if isinstance(result, GroupError):
            return SyncGroupResponse(error_code=refuse(services, request, result).code)
        return SyncGroupResponse(
            protocol_type=result.protocol_type, protocol_name=result.protocol_name, assignment=result.assignment
        )

    protocol_type, protocol_name = request.protocol_type, request.protocol_name
    if call.version >= _PROTOCOL_SINCE and (protocol_type is None or protocol_name is None):
        return respond(InconsistentGroupProtocolError(request.group_id, protocol_type, (protocol_name or "none",)))
    sync = SyncRequest(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[(one.member_id, one.assignment) for one in request.assignments],
    )
    return answer_when_done(services.groups.sync(sync), respond)


API = Api(SyncGroupRequest, SyncGroupResponse, handle)
