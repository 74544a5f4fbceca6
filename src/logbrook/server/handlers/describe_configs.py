"""DescribeConfigs: what is set for topics and for this broker, and where each value is from."""

from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from logbrook.server.api import Api, Call
from logbrook.server.config_changes import ResourceType, find_resource
from logbrook.server.config_entries import ConfigEntries, ConfigEntry
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services


def handle(services: Services, request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    description = _Description(services, request)
    return DescribeConfigsResponse(results=[description.describe(resource) for resource in request.resources])


API = Api(DescribeConfigsRequest, DescribeConfigsResponse, handle)


class _Description:
    def __init__(self, services: Services, request: DescribeConfigsRequest) -> None:
        self._services = services
        self._request = request
        self._entries = ConfigEntries(services)
        self._described: set[tuple[int, str]] = set()

    def describe(self, wanted: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
        try:
            result.configs = [self._describe_entry(entry) for entry in self._entries_of(wanted)]
        except LogbrookError as error:
            result.error_code, result.error_message = refuse(self._services, self._request, error)
        return result

    def _entries_of(self, wanted: DescribeConfigsResource) -> list[ConfigEntry]:
        """Raises InvalidTopicNameError, TopicNotFoundError or RefusedError."""
        identity = wanted.resource_type, wanted.resource_name
        if identity in self._described:
            # A resource that is named over and over would make a small request a huge answer.
            raise RefusedError(ErrorCode.INVALID_REQUEST, "each resource may be named once in a request")
        self._described.add(identity)
        resource = find_resource(self._services, wanted.resource_type, wanted.resource_name)
        if resource.type is ResourceType.TOPIC:
            entries = self._entries.of_topic(self._services.topics.metadata.topic(resource.name).settings)
        else:
            entries = self._entries.of_broker()
        # As in Kafka, an empty list of names asks for all of them, like none at all.
        names = set(wanted.configuration_keys or ())
        return [entry for entry in entries if not names or entry.name in names]

    def _describe_entry(self, entry: ConfigEntry) -> DescribeConfigsResourceResult:
        synonyms = entry.synonyms if self._request.include_synonyms else []
        return DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            synonyms=[DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source) for one in synonyms],
            config_type=entry.config_type,
            documentation=entry.doc if self._request.include_documentation else None,
        )
