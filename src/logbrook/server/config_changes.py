"""Changes to the settings of a resource, which is a topic or this broker.

A change is a function of what was set to what is set from now on, so that of two changes at the same time neither
undoes the other. What is set is written in one notation, however it was typed.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from logbrook.config import LogConfig
from logbrook.config.kafka_settings import KafkaSetting, broker_settings, in_one_notation, topic_settings
from logbrook.model import check_topic_name
from logbrook.protocol.error_codes import ErrorCode
from logbrook.server.refusals import RefusedError
from logbrook.server.services import Services


class ResourceType(IntEnum):
    """Kafka's numbers, of those that can be described and changed."""

    TOPIC = 2
    BROKER = 4


class Resource(NamedTuple):
    """`names` are the settings it may have, `inherited` is what it has when it sets nothing."""

    type: ResourceType
    name: str
    names: Mapping[str, KafkaSetting]
    inherited: LogConfig


# What was set, to what is set from now on.
Change: TypeAlias = Callable[[Resource, Mapping[str, str]], Mapping[str, str]]


def find_resource(services: Services, resource_type: int, name: str) -> Resource:
    """Raises InvalidTopicNameError, TopicNotFoundError or RefusedError."""
    if resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        services.topics.metadata.topic(name)
        return Resource(ResourceType.TOPIC, name, topic_settings(), services.topics.defaults)
    if resource_type != ResourceType.BROKER:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"resources of the type {resource_type} are not supported")
    node_id = services.config.node_id
    # Kafka keeps a default for all brokers, under no name. There is one broker, so it is the same.
    if name not in ("", str(node_id)):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}, this is broker {node_id}")
    return Resource(ResourceType.BROKER, name, broker_settings(), services.config.log)


async def change_resource(services: Services, resource: Resource, change: Change, *, only_check: bool) -> None:
    """Raises RefusedError, TopicNotFoundError, InvalidSettingError or StorageError."""

    def apply(current: Mapping[str, str]) -> Mapping[str, str]:
        settings = change(resource, current)
        for name, value in settings.items():
            known = resource.names.get(name)
            if known is not None and not known.dynamic and current.get(name) != value:
                raise RefusedError(ErrorCode.INVALID_REQUEST, f"{name} cannot be changed while the broker runs")
        return in_one_notation(settings, resource.names)

    if resource.type is ResourceType.TOPIC:
        await services.topics.change_topic(resource.name, apply, only_check=only_check)
    else:
        await services.topics.change_broker(apply, only_check=only_check)
