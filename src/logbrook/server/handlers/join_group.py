"""JoinGroup: add a member to a group. Answered with the generation when all members have joined."""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.coordinator import CoordinatorError
from logbrook.core.groups.errors import MemberIdRequiredError
from logbrook.core.groups.messages import JoinRequest, JoinResult
from logbrook.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from logbrook.server.api import Api, HandlerResult, RequestContext
from logbrook.server.coordinators.responses import respond_when_done
from logbrook.server.errors import error_code
from logbrook.server.services import Services

_REBALANCE_TIMEOUT_SINCE = 1
# KIP-394: a new member first gets an id, so that a client that misses the reply does not remain as a member.
_MEMBER_ID_FIRST_SINCE = 4
_NO_PROTOCOL_IS_NULL_SINCE = 7
# KIP-814.
_SKIP_ASSIGNMENT_SINCE = 9


def handle(services: Services, request: JoinGroupRequest, context: RequestContext) -> HandlerResult:
    version = context.version
    refusal = services.authorizer.refusal(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if refusal is not None:
        no_protocol = None if version >= _NO_PROTOCOL_IS_NULL_SINCE else ""
        return JoinGroupResponse(error_code=refusal.code, protocol_name=no_protocol)
    has_rebalance_timeout = version >= _REBALANCE_TIMEOUT_SINCE
    join = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        client_id=context.client_id,
        client_host=context.host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=[(protocol.name, protocol.metadata) for protocol in request.protocols],
        group_instance_id=request.group_instance_id,
        requires_known_member_id=version >= _MEMBER_ID_FIRST_SINCE,
        supports_skip_assignment=version >= _SKIP_ASSIGNMENT_SINCE,
    )

    def respond(result: JoinResult | CoordinatorError) -> JoinGroupResponse:
        response = _refused(services, request, result) if isinstance(result, CoordinatorError) else _joined(result)
        if response.protocol_name is None and version < _NO_PROTOCOL_IS_NULL_SINCE:
            response.protocol_name = ""
        return response

    return respond_when_done(lambda: services.groups.join(join), respond)


API = Api(JoinGroupRequest, JoinGroupResponse, handle)


def _joined(result: JoinResult) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.subscription
            )
            for member in result.members
        ],
    )


def _refused(services: Services, request: JoinGroupRequest, error: CoordinatorError) -> JoinGroupResponse:
    member_id = error.member_id if isinstance(error, MemberIdRequiredError) else request.member_id
    return JoinGroupResponse(error_code=error_code(error), protocol_name=None, member_id=member_id)
