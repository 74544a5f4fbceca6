"""The admin client of confluent-kafka."""

import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.interop.clients.confluent_settings import QUICK, checked, refused
from tests.interop.clients.interface import Admin, GroupState
from tests.interop.waiting import WITHIN_S

T = TypeVar("T")

_SPECS: list[OffsetSpec] = [getattr(OffsetSpec, name)() for name in ("earliest", "latest", "max_timestamp")]


class ConfluentAdmin(Admin):
    def __init__(self, servers: str) -> None:
        self._admin = AdminClient({**QUICK, "bootstrap.servers": servers})

    def close(self) -> None:
        # It is closed with its last reference.
        del self._admin

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        _result(self._admin.create_topics([NewTopic(name, partitions, 1, config=dict(settings))]))

    def delete_topic(self, name: str) -> None:
        _result(self._admin.delete_topics([name]))

    def topics(self) -> dict[str, int]:
        listed = self._admin.list_topics(timeout=WITHIN_S).topics
        described = self._admin.describe_topics(TopicCollection(list(listed)))
        return {name: len(_wait(future).partitions) for name, future in described.items()}

    def create_partitions(self, topic: str, count: int) -> None:
        _result(self._admin.create_partitions([NewPartitions(topic, count)]))

    def configs(self, topic: str) -> dict[str, str]:
        return self._describe(ConfigResource(ResourceType.TOPIC, topic))

    def broker_configs(self) -> dict[str, str]:
        return self._describe(ConfigResource(ResourceType.BROKER, "1"))

    def alter_configs(self, topic: str, settings: Mapping[str, str]) -> None:
        wanted = ConfigResource(ResourceType.TOPIC, topic, set_config=dict(settings))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*alter_configs.* deprecated", DeprecationWarning)
            _result(self._admin.alter_configs([wanted]))

    def alter_configs_incrementally(self, topic: str, settings: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                name,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in settings.items()
        ]
        _result(
            self._admin.incremental_alter_configs(
                [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)]
            )
        )

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        deleted = _result(self._admin.delete_records([TopicPartition(topic, partition, before)]))
        low_watermark: int = deleted.low_watermark
        return low_watermark

    def groups(self) -> set[str]:
        listing = _wait(self._admin.list_consumer_groups())
        assert not listing.errors, listing.errors
        return {listed.group_id for listed in listing.valid}

    def describe_group(self, group: str) -> GroupState:
        description = _result(self._admin.describe_consumer_groups([group]))
        return GroupState(description.state.name.replace("_", "").lower(), len(description.members))

    def delete_group(self, group: str) -> None:
        _result(self._admin.delete_consumer_groups([group]))

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        offsets = _result(self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return {
            partition.partition: checked(partition).offset
            for partition in offsets.topic_partitions
            if partition.topic == topic
        }

    def alter_group_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        wanted = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
        altered = _result(self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]))
        for partition in altered.topic_partitions:
            checked(partition)

    def brokers(self) -> dict[int, str]:
        cluster = _wait(self._admin.describe_cluster())
        return {node.id: f"{node.host}:{node.port}" for node in cluster.nodes}

    def earliest_latest_newest(self, topic: str, partition: int) -> tuple[int, int, int]:
        place = TopicPartition(topic, partition)
        first, following, newest = (_result(self._admin.list_offsets({place: spec})).offset for spec in _SPECS)
        return first, following, newest

    def _describe(self, resource: ConfigResource) -> dict[str, str]:
        return {name: entry.value for name, entry in _result(self._admin.describe_configs([resource])).items()}


def _result(futures: Mapping[Any, "Future[T]"]) -> T:
    """Return the result of a request for a single item. Raises RefusedError."""
    (future,) = futures.values()
    return _wait(future)


def _wait(future: "Future[T]") -> T:
    try:
        return future.result(WITHIN_S)
    except KafkaException as error:
        raise refused(error.args[0]) from error
