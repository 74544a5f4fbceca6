"""LeaveGroup: members go. Up to version 2 one goes by itself; later ones may also be sent away, several at once."""

from logbrook.core.groups import LeavingMember, MemberLeft
from logbrook.core.groups.errors import GroupError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from logbrook.server.api import Api, Call
from logbrook.server.refusals import refuse
from logbrook.server.services import Services

# KIP-345.
_SEVERAL_SINCE = 3


def handle(services: Services, request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    leaving = [LeavingMember(member.member_id, member.group_instance_id) for member in request.members]
    if call.version < _SEVERAL_SINCE:
        leaving = [LeavingMember(request.member_id)]
    groups = services.groups
    try:
        left, outcome = groups.coordinator.leave(request.group_id, leaving, groups.now_ms)
    except GroupError as error:
        return LeaveGroupResponse(error_code=refuse(services, request, error).code)
    groups.carry_out(outcome)
    members = [_response(services, request, member) for member in left]
    if call.version < _SEVERAL_SINCE:
        return LeaveGroupResponse(error_code=members[0].error_code)
    return LeaveGroupResponse(members=members)


API = Api(LeaveGroupRequest, LeaveGroupResponse, handle)


def _response(services: Services, request: LeaveGroupRequest, left: MemberLeft) -> MemberResponse:
    code = ErrorCode.NONE if left.error is None else refuse(services, request, left.error).code
    return MemberResponse(member_id=left.member_id, group_instance_id=left.group_instance_id, error_code=code)
