"""Heartbeat: a member is alive, and learns from the error code what else it has to do."""

from logbrook.core.groups.errors import GroupError
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.server.api import Api, Call
from logbrook.server.refusals import refuse
from logbrook.server.services import Services


def handle(services: Services, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    groups = services.groups
    try:
        groups.coordinator.heartbeat(
            request.group_id, request.generation_id, request.member_id, request.group_instance_id, groups.now_ms
        )
    except GroupError as error:
        return HeartbeatResponse(error_code=refuse(services, request, error).code)
    return HeartbeatResponse()


API = Api(HeartbeatRequest, HeartbeatResponse, handle)
