"""ListConfigResources: the names of the resources that DescribeConfigs describes (KIP-1142).

Version 0 has no list of types; it lists client metrics subscriptions, of which there are none (KIP-714).
"""

from collections.abc import Iterator

from logbrook.core.acls import AclOperation
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.config_resources import ConfigResourceType
from logbrook.server.services import Services

_TYPES_SINCE = 1
_CLIENT_METRICS = 16


def handle(
    services: Services, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    if not services.authorizer.allows_cluster(context, AclOperation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, config_resources=[])
    if context.version < _TYPES_SINCE:
        return ListConfigResourcesResponse(config_resources=[])
    supported = {*ConfigResourceType, _CLIENT_METRICS}
    wanted = set(request.resource_types) or supported
    if not wanted <= supported:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in ConfigResourceType
            if resource_type in wanted
            for name in _names(services, resource_type)
        ]
    )


API = Api(ListConfigResourcesRequest, ListConfigResourcesResponse, handle)


def _names(services: Services, resource_type: ConfigResourceType) -> Iterator[str]:
    if resource_type is ConfigResourceType.TOPIC:
        topics = services.topics.metadata.topics.values()
        yield from (topic.name for topic in topics if not topic.is_hidden)
    elif resource_type is ConfigResourceType.GROUP:
        yield from services.topics.metadata.group_settings
    else:
        yield str(services.config.node_id)
