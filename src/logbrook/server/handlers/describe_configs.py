"""DescribeConfigs: the settings of topics, brokers, loggers and groups, with the source of each value."""

from collections.abc import Iterator

from logbrook.core.acls import AclOperation
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.config_resources import (
    ConfigEntries,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    check_config_right,
    find_resource,
)
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.services import Services


def handle(services: Services, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    description = _Description(services, request, context)
    return DescribeConfigsResponse(results=[description.describe(resource) for resource in request.resources])


API = Api(DescribeConfigsRequest, DescribeConfigsResponse, handle)


class _Description:
    """The response to one request."""

    def __init__(self, services: Services, request: DescribeConfigsRequest, context: RequestContext) -> None:
        self._services = services
        self._request = request
        self._context = context
        self._entries = ConfigEntries(services)
        self._described: set[tuple[int, str]] = set()

    def describe(self, wanted: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
        with errors_in(result):
            result.configs = [self._describe_entry(entry) for entry in self._entries_of(wanted)]
        return result

    def _entries_of(self, wanted: DescribeConfigsResource) -> list[ConfigEntry]:
        """Raises AuthorizationFailedError, InvalidTopicNameError, TopicNotFoundError or RequestRefusedError."""
        identity = wanted.resource_type, wanted.resource_name
        if identity in self._described:
            # Repeated resources would let a small request produce a huge response.
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "a resource may be named only once in a request")
        self._described.add(identity)
        check_config_right(self._services, self._context, AclOperation.DESCRIBE_CONFIGS, *identity)
        resource = find_resource(self._services, wanted.resource_type, wanted.resource_name)
        entries = self._all_entries(resource)
        # As in Kafka, an empty list of names means all settings, like a null list.
        names = set(wanted.configuration_keys or ())
        return [entry for entry in entries if not names or entry.name in names]

    def _all_entries(self, resource: ConfigResource) -> Iterator[ConfigEntry]:
        metadata = self._services.topics.metadata
        if resource.type is ConfigResourceType.TOPIC:
            return self._entries.of_topic(metadata.topic(resource.name).settings)
        if resource.type is ConfigResourceType.GROUP:
            return self._entries.of_group(metadata.group_settings.get(resource.name, {}))
        if resource.type is ConfigResourceType.BROKER_LOGGER:
            return self._entries.of_loggers()
        return self._entries.of_broker() if resource.name else self._entries.of_all_brokers()

    def _describe_entry(self, entry: ConfigEntry) -> DescribeConfigsResourceResult:
        synonyms = entry.synonyms if self._request.include_synonyms else []
        return DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            synonyms=[
                DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
                for synonym in synonyms
            ],
            config_type=entry.config_type,
            documentation=entry.doc if self._request.include_documentation else None,
        )
