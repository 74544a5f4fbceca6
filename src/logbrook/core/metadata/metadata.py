"""The cluster's metadata as a state machine: decisions are records, and `replay` is all that changes it.

    records = metadata.create_topic("orders", 3, {}, topic_id)     # decides, or raises
    ...                                                            # the records are appended to the metadata log
    for key, value in records: metadata.replay(key, value)         # and only now are they true

A record is a key with a value, and the newest per key counts, so the metadata log is compacted like any other.
A topic is deleted in two steps: the first says that it is going, and survives a crash until the second says it is gone.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from logbrook.core.metadata.errors import (
    InvalidPartitionsError,
    TopicCollisionError,
    TopicExistsError,
    TopicNotFoundError,
    UnknownTopicIdError,
)
from logbrook.model import TopicPartition, check_topic_name

MetadataRecord: TypeAlias = tuple[bytes, bytes | None]

_CLUSTER = "cluster"
_EPOCH = "epoch"
_PRODUCER_IDS = "producer-ids"
_BROKER_SETTINGS = "broker-settings"
_TOPIC = "topic:"


@dataclass(frozen=True)
class Topic:
    """`settings` has what was set for this topic, by Kafka's names and in its notation."""

    name: str
    id: bytes
    partition_count: int
    settings: Mapping[str, str] = field(default_factory=dict)
    is_deleting: bool = False

    @property
    def partitions(self) -> Iterator[TopicPartition]:
        return (TopicPartition(self.name, number) for number in range(self.partition_count))


class ClusterMetadata:
    """`epoch` counts the broker's starts, and is the leader epoch of all it writes."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.epoch = -1
        self.next_producer_id = 0
        self.broker_settings: Mapping[str, str] = {}
        self._topics: dict[str, Topic] = {}
        self._names: dict[bytes, str] = {}
        self._collisions: dict[str, str] = {}
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._topics)

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._topics

    def topic(self, name: str) -> Topic:
        """Raises TopicNotFoundError."""
        topic = self._topics.get(name)
        if topic is None or topic.is_deleting:
            raise TopicNotFoundError(name)
        return topic

    def topic_with_id(self, topic_id: bytes) -> Topic:
        """Raises UnknownTopicIdError."""
        topic = self._topics.get(self._names.get(topic_id, ""))
        if topic is None or topic.is_deleting:
            raise UnknownTopicIdError(topic_id)
        return topic

    def found_cluster(self, cluster_id: str) -> list[MetadataRecord]:
        return [_record(_CLUSTER, {"id": cluster_id})]

    def begin_epoch(self) -> list[MetadataRecord]:
        return [_record(_EPOCH, {"epoch": self.epoch + 1})]

    def reserve_producer_ids(self, count: int) -> list[MetadataRecord]:
        """Ids below the new `next_producer_id` are never given out again, whatever becomes of them."""
        return [_record(_PRODUCER_IDS, {"next": self.next_producer_id + count})]

    def configure_broker(self, settings: Mapping[str, str]) -> list[MetadataRecord]:
        return [_record(_BROKER_SETTINGS, dict(settings))]

    def create_topic(
        self, name: str, partition_count: int, settings: Mapping[str, str], topic_id: bytes
    ) -> list[MetadataRecord]:
        """Raises InvalidTopicNameError, TopicExistsError, TopicCollisionError or InvalidPartitionsError."""
        check_topic_name(name)
        if name in self._topics:
            raise TopicExistsError(name)
        other = self._collisions.get(_without_dots(name))
        if other is not None:
            raise TopicCollisionError(name, other)
        if partition_count < 1:
            raise InvalidPartitionsError(f"a topic has at least one partition, not {partition_count}")
        return [_topic_record(Topic(name, topic_id, partition_count, settings))]

    def add_partitions(self, name: str, partition_count: int) -> list[MetadataRecord]:
        """Raises TopicNotFoundError or InvalidPartitionsError."""
        topic = self.topic(name)
        if partition_count <= topic.partition_count:
            raise InvalidPartitionsError(
                f"topic {name!r} has {topic.partition_count} partitions, and {partition_count} would not be more"
            )
        return [_topic_record(Topic(name, topic.id, partition_count, topic.settings))]

    def configure_topic(self, name: str, settings: Mapping[str, str]) -> list[MetadataRecord]:
        """Raises TopicNotFoundError."""
        topic = self.topic(name)
        return [_topic_record(Topic(name, topic.id, topic.partition_count, settings))]

    def begin_delete(self, name: str) -> list[MetadataRecord]:
        """Raises TopicNotFoundError."""
        topic = self.topic(name)
        return [_topic_record(Topic(name, topic.id, topic.partition_count, topic.settings, is_deleting=True))]

    def finish_delete(self, name: str) -> list[MetadataRecord]:
        assert self._topics[name].is_deleting, "a topic that is not going cannot be gone"
        return [(_key(f"{_TOPIC}{name}"), None)]

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Make a record true. Raises ValueError for one that was never written by `ClusterMetadata`."""
        kind = json.loads(key)
        content: Any = None if value is None else json.loads(value)
        if kind.startswith(_TOPIC):
            self._replay_topic(kind.removeprefix(_TOPIC), content)
        elif kind == _CLUSTER:
            self.cluster_id = content["id"]
        elif kind == _EPOCH:
            self.epoch = content["epoch"]
        elif kind == _PRODUCER_IDS:
            self.next_producer_id = content["next"]
        elif kind == _BROKER_SETTINGS:
            self.broker_settings = content
        else:
            raise ValueError(f"the metadata log has a record of the kind {kind!r}, which this version does not know")

    def _replay_topic(self, name: str, content: Any) -> None:
        known = self._topics.pop(name, None)
        if known is not None:
            self.partition_count -= known.partition_count
            self._names.pop(known.id, None)
            self._collisions.pop(_without_dots(name), None)
        if content is not None:
            topic_id = bytes.fromhex(content["id"])
            self._topics[name] = Topic(
                name, topic_id, content["partitions"], content["settings"], content.get("deleting", False)
            )
            self.partition_count += content["partitions"]
            self._names[topic_id] = name
            self._collisions[_without_dots(name)] = name

    def validate(self) -> None:
        """Assert what must always hold."""
        assert len(self._names) == len(self._topics) == len(self._collisions)
        assert self.partition_count == sum(topic.partition_count for topic in self._topics.values())
        for name, topic in self._topics.items():
            assert topic.name == name
            assert self._names[topic.id] == name
            assert topic.partition_count > 0


def _key(kind: str) -> bytes:
    return json.dumps(kind).encode()


def _record(kind: str, content: Mapping[str, Any]) -> MetadataRecord:
    return _key(kind), json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _topic_record(topic: Topic) -> MetadataRecord:
    content: dict[str, Any] = {
        "id": topic.id.hex(),
        "partitions": topic.partition_count,
        "settings": dict(topic.settings),
    }
    if topic.is_deleting:
        content["deleting"] = True
    return _record(f"{_TOPIC}{topic.name}", content)


def _without_dots(name: str) -> str:
    return name.replace(".", "_")
