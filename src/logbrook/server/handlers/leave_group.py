"""LeaveGroup: remove members from a group. Up to version 2 a request has one member, later several."""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.coordinator import CoordinatorError
from logbrook.core.groups.messages import LeavingMember, MemberLeft
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from logbrook.server.api import Api, HandlerResult, RequestContext
from logbrook.server.coordinators.responses import respond_when_done
from logbrook.server.errors import error_code
from logbrook.server.services import Services

# KIP-345.
_SEVERAL_SINCE = 3


def handle(services: Services, request: LeaveGroupRequest, context: RequestContext) -> HandlerResult:
    refusal = services.authorizer.refusal(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if refusal is not None:
        return LeaveGroupResponse(error_code=refusal.code)
    leaving = [LeavingMember(member.member_id, member.group_instance_id) for member in request.members]
    if context.version < _SEVERAL_SINCE:
        leaving = [LeavingMember(request.member_id)]

    def respond(result: list[MemberLeft] | CoordinatorError) -> LeaveGroupResponse:
        if isinstance(result, CoordinatorError):
            return LeaveGroupResponse(error_code=error_code(result))
        members = [_response(member) for member in result]
        if context.version < _SEVERAL_SINCE:
            return LeaveGroupResponse(error_code=members[0].error_code)
        return LeaveGroupResponse(members=members)

    return respond_when_done(lambda: services.groups.leave(request.group_id, leaving), respond)


API = Api(LeaveGroupRequest, LeaveGroupResponse, handle)


def _response(left: MemberLeft) -> MemberResponse:
    code = ErrorCode.NONE if left.error is None else error_code(left.error)
    return MemberResponse(member_id=left.member_id, group_instance_id=left.group_instance_id, error_code=code)
