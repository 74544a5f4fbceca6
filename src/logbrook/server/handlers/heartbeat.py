"""Heartbeat: restart a member's session timeout. During a rebalance it returns REBALANCE_IN_PROGRESS."""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import errors_in
from logbrook.server.services import Services


def handle(services: Services, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    response = HeartbeatResponse()
    with errors_in(response):
        services.authorizer.check(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
        services.groups.heartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
    return response


API = Api(HeartbeatRequest, HeartbeatResponse, handle)
