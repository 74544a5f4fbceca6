"""The admin client of aiokafka. Most of its answers are the responses themselves, with error codes in them."""

from collections.abc import Coroutine, Mapping
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.interop.clients.aiokafka_settings import QUICK, refusals
from tests.interop.clients.interface import Admin, GroupState, RefusedError
from tests.interop.clients.loop_thread import LoopThread
from tests.interop.waiting import WITHIN_S


class AiokafkaAdmin(Admin):
    def __init__(self, loop: LoopThread, servers: str) -> None:
        self._loop = loop

        async def start() -> Any:
            admin = AIOKafkaAdminClient(**QUICK, bootstrap_servers=servers)
            await admin.start()
            return admin

        self._admin = self._run(start())

    def close(self) -> None:
        self._run(self._admin.close())

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        wanted = NewTopic(name, partitions, 1, topic_configs=dict(settings))
        for topic, code, message in self._run(self._admin.create_topics([wanted])).topic_errors:
            _check(code, f"{topic}: {message}")

    def delete_topic(self, name: str) -> None:
        for topic, code in self._run(self._admin.delete_topics([name])).topic_error_codes:
            _check(code, topic)

    def topics(self) -> dict[str, int]:
        return {topic["topic"]: len(topic["partitions"]) for topic in self._run(self._admin.describe_topics())}

    def create_partitions(self, topic: str, count: int) -> None:
        self._run(self._admin.create_partitions({topic: NewPartitions(count)}))

    def configs(self, topic: str) -> dict[str, str]:
        return self._describe(ConfigResource(ConfigResourceType.TOPIC, topic))

    def broker_configs(self) -> dict[str, str]:
        return self._describe(ConfigResource(ConfigResourceType.BROKER, "1"))

    def alter_configs(self, topic: str, settings: Mapping[str, str]) -> None:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic, dict(settings))
        for response in self._run(self._admin.alter_configs([wanted])):
            for code, message, *_ in response.resources:
                _check(code, message)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        low_watermark: int = self._run(self._admin.delete_records({place: RecordsToDelete(before)}))[place]
        return low_watermark

    def groups(self) -> set[str]:
        return {name for name, *_ in self._run(self._admin.list_consumer_groups())}

    def describe_group(self, group: str) -> GroupState:
        (response,) = self._run(self._admin.describe_consumer_groups([group]))
        ((code, _, state, _, _, members, *_),) = response.groups
        _check(code, group)
        return GroupState(state.lower(), len(members))

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        offsets = self._run(self._admin.list_consumer_group_offsets(group))
        return {place.partition: committed.offset for place, committed in offsets.items() if place.topic == topic}

    def brokers(self) -> dict[int, str]:
        brokers = self._run(self._admin.describe_cluster())["brokers"]
        return {broker["node_id"]: f"{broker['host']}:{broker['port']}" for broker in brokers}

    def _describe(self, resource: Any) -> dict[str, str]:
        configs: dict[str, str] = {}
        for response in self._run(self._admin.describe_configs([resource])):
            for code, message, _, _, entries in response.resources:
                _check(code, message)
                configs.update((name, value) for name, value, *_ in entries)
        return configs

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        with refusals():
            return self._loop.run(work, WITHIN_S)


def _check(code: int, message: str) -> None:
    if code:
        raise RefusedError(code, message)
