"""Cluster id, leader epoch, topics and dynamic settings as a state machine: only `replay` changes the state.

    records = metadata.create_topic("orders", 3, {}, topic_id)     # decides, or raises
    ...                                                            # the records are written to the metadata store
    for key, value in records: metadata.replay(key, value)         # now the topic has its name

A record is a key of the store and its new value, or None if the key is deleted.

A topic is created in two steps: a record that marks it as creating, and, when its logs are created, one without that
mark. It is deleted in two steps too: a record that marks it as deleting, and, when its logs are deleted, a tombstone.
In between it is hidden from clients and keeps its name. After a crash the next start undoes a creation and finishes a
deletion.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from logbrook.config.accepted_settings import CORDONED_LOG_DIRS
from logbrook.model import LogbrookError, TopicPartition, check_topic_name
from logbrook.model.identifiers import BrokerId, LeaderEpoch

MetadataRecord: TypeAlias = tuple[str, bytes | None]

CLUSTER_KEY = "cluster"
_EPOCH = "epoch"
_PRODUCER_IDS = "producer-ids"
# More than are assigned between a backup and its restore. There are 2 ** 63.
PRODUCER_IDS_SKIPPED = 1_000_000_000
_BROKER_SETTINGS = "broker-settings"
_BROKER_DEFAULTS = "broker-defaults"
TOPIC_PREFIX = "topics/"
_GROUP = "settings/groups/"
_OF_BROKERS = "settings/brokers/"


@dataclass(frozen=True)
class Topic:
    """A topic. `settings` has the topic's own settings, with Kafka's names and value formats."""

    name: str
    id: bytes
    partition_count: int
    settings: Mapping[str, str] = field(default_factory=dict)
    # Its logs are being created or deleted.
    is_creating: bool = False
    is_deleting: bool = False

    @cached_property
    def is_hidden(self) -> bool:
        """True if clients do not see the topic yet, or not any more."""
        return self.is_creating or self.is_deleting

    @property
    def partitions(self) -> Iterator[TopicPartition]:
        return (TopicPartition(self.name, number) for number in range(self.partition_count))


class ClusterMetadata:
    """`epoch` counts the broker's starts, and is the leader epoch of its appends."""

    def __init__(self, broker_id: BrokerId | None = None) -> None:
        """`broker_id` is that of the broker in a cluster, whose own settings these are."""
        self._own_settings_key = _BROKER_SETTINGS if broker_id is None else broker_settings_key(broker_id)
        # The brokers of a cluster that set `cordoned.log.dirs` themselves, and whether they are cordoned.
        self._cordoned: dict[BrokerId, bool] = {}
        self.cluster_id = ""
        # Finalized levels of features; empty on a single node.
        self.feature_levels: Mapping[str, int] = {}
        self.epoch = LeaderEpoch(-1)
        self.next_producer_id = 0
        # The history of the store in which producer ids were reserved last; empty if unknown, and on a single node.
        self.producer_ids_history = ""
        # Returns the history of a cluster's store, and whether this broker knows that it was restored from a backup.
        self.store_history: Callable[[], tuple[str, bool]] = lambda: ("", False)
        # Dynamic settings of this broker, and of all brokers that do not set them.
        self.broker_settings: Mapping[str, str] = {}
        self.broker_defaults: Mapping[str, str] = {}
        self._group_settings: dict[str, Mapping[str, str]] = {}
        self._topics: dict[str, Topic] = {}
        self._names: dict[bytes, str] = {}
        self._collisions: dict[str, str] = {}
        self.partition_count = 0
        # Called with the name of a topic whenever a record of it was applied.
        self.on_topic_changed: Callable[[str], None] = lambda _: None

    def __len__(self) -> int:
        return len(self._topics)

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._topics

    @property
    def dynamic_settings(self) -> dict[str, str]:
        """The dynamic settings in force on this broker: its own, then the defaults of all brokers."""
        return {**self.broker_defaults, **self.broker_settings}

    @property
    def group_settings(self) -> Mapping[str, Mapping[str, str]]:
        """The settings of groups that have any, by group id. The groups themselves need not exist."""
        return self._group_settings

    def topic(self, name: str) -> Topic:
        """Raises TopicNotFoundError."""
        topic = self._topics.get(name)
        if topic is None or topic.is_hidden:
            raise TopicNotFoundError(name)
        return topic

    def topic_with_id(self, topic_id: bytes) -> Topic:
        """Raises UnknownTopicIdError."""
        topic = self._topics.get(self._names.get(topic_id, ""))
        if topic is None or topic.is_hidden:
            raise UnknownTopicIdError(topic_id)
        return topic

    def topic_with_any_state(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id, also while it is created or deleted."""
        return self._topics.get(self._names.get(topic_id, ""))

    def found_cluster(self, cluster_id: str, feature_levels: Mapping[str, int] | None = None) -> list[MetadataRecord]:
        return [_cluster_record(cluster_id, feature_levels or {})]

    def set_feature_levels(self, levels: Mapping[str, int]) -> list[MetadataRecord]:
        return [_cluster_record(self.cluster_id, levels)]

    def adoption(self, broker_id: BrokerId, feature_levels: Mapping[str, int]) -> list[MetadataRecord]:
        """Return the records that give a new cluster the topics and settings of this single node, as that broker.

        Topics that are hidden are left out. The last record is that of the cluster id and of the feature levels.
        """
        own_settings = [_record(broker_settings_key(broker_id), self.broker_settings)] if self.broker_settings else []
        return [
            *self.reserve_producer_ids(0),
            *own_settings,
            *self.configure_all_brokers(self.broker_defaults),
            *(_record(f"{_GROUP}{group_id}", settings) for group_id, settings in self._group_settings.items()),
            *(_topic_record(topic) for topic in self._topics.values() if not topic.is_hidden),
            *self.found_cluster(self.cluster_id, feature_levels),
        ]

    def begin_epoch(self) -> list[MetadataRecord]:
        return [_record(_EPOCH, {"epoch": self.epoch + 1})]

    @property
    def unassigned_producer_id(self) -> int:
        """The first producer id that was never assigned, also if a restored store lacks some reservations."""
        known = self.producer_ids_history
        history_id, store_was_restored = self.store_history()
        is_restored = known != history_id if known else store_was_restored
        return self.next_producer_id + (PRODUCER_IDS_SKIPPED if is_restored else 0)

    def reserve_producer_ids(self, count: int) -> list[MetadataRecord]:
        """Reserve the ids from `unassigned_producer_id` on: they are never reserved again."""
        history_id, _ = self.store_history()
        content: dict[str, Any] = {"next": self.unassigned_producer_id + count}
        return [_record(_PRODUCER_IDS, content | ({"history": history_id} if history_id else {}))]

    def configure_broker(self, settings: Mapping[str, str]) -> list[MetadataRecord]:
        return [_record(self._own_settings_key, dict(settings))]

    def configure_all_brokers(self, settings: Mapping[str, str]) -> list[MetadataRecord]:
        return [_record(_BROKER_DEFAULTS, dict(settings))]

    def configure_group(self, group_id: str, settings: Mapping[str, str]) -> list[MetadataRecord]:
        key = f"{_GROUP}{group_id}"
        return [_record(key, dict(settings)) if settings else (key, None)]

    def create_topic(
        self,
        name: str,
        partition_count: int,
        settings: Mapping[str, str],
        topic_id: bytes,
        *,
        is_creating: bool = True,
    ) -> list[MetadataRecord]:
        """Begin to create a topic, hidden until `finish_create` unless it is created in one step.

        Raises InvalidTopicNameError, TopicExistsError, TopicCollisionError or InvalidPartitionsError.
        """
        check_topic_name(name)
        if name in self._topics:
            raise TopicExistsError(name)
        other = self._collisions.get(_without_dots(name))
        if other is not None:
            raise TopicCollisionError(name, other)
        if partition_count < 1:
            raise InvalidPartitionsError(f"a topic has at least one partition, not {partition_count}")
        return [_topic_record(Topic(name, topic_id, partition_count, settings, is_creating=is_creating))]

    def finish_create(self, name: str) -> list[MetadataRecord]:
        assert self._topics[name].is_creating, "create_topic comes first"
        return [_topic_record(replace(self._topics[name], is_creating=False))]

    def undo_create(self, name: str) -> list[MetadataRecord]:
        """Turn the creation of a topic that its broker has not finished into a deletion."""
        assert self._topics[name].is_creating, "only a creation can be undone"
        return [_topic_record(replace(self._topics[name], is_creating=False, is_deleting=True))]

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
        """Remove a topic that is being deleted, or whose creation is undone."""
        assert self._topics[name].is_hidden, "begin_delete comes first"
        return [(f"{TOPIC_PREFIX}{name}", None)]

    def is_cordoned(self, broker_id: BrokerId) -> bool:
        """True if a broker of a cluster gets no further replicas (KIP-1066)."""
        return self._cordoned.get(broker_id, bool(self.broker_defaults.get(CORDONED_LOG_DIRS)))

    def is_broker_setting(self, key: str) -> bool:
        """True if the key has dynamic settings that are in force on this broker."""
        return key in (self._own_settings_key, _BROKER_DEFAULTS)

    def replay(self, key: str, value: bytes | None) -> None:
        """Apply a record. Raises ValueError for a record that `ClusterMetadata` has not written."""
        content: Any = None if value is None else json.loads(value)
        if key.startswith(TOPIC_PREFIX):
            self._replay_topic(key.removeprefix(TOPIC_PREFIX), content)
        elif key.startswith(_GROUP):
            self._replay_group(key.removeprefix(_GROUP), content)
        elif key == CLUSTER_KEY:
            self.cluster_id = content["id"]
            self.feature_levels = content.get("features", {})
        elif key == _EPOCH:
            self.epoch = LeaderEpoch(content["epoch"])
        elif key == _PRODUCER_IDS:
            self.next_producer_id = content["next"]
            self.producer_ids_history = content.get("history", "")
        elif key == self._own_settings_key or key.startswith(_OF_BROKERS):
            self._replay_broker_settings(key, content or {})
        elif key == _BROKER_DEFAULTS:
            self.broker_defaults = content
        else:
            raise ValueError(
                f"the metadata has a record with the unknown key {key!r}; it was written by a newer version"
            )

    def _replay_topic(self, name: str, content: Any) -> None:
        before = self._topics.pop(name, None)
        if before is not None:
            self.partition_count -= before.partition_count
            self._names.pop(before.id, None)
            self._collisions.pop(_without_dots(name), None)
        if content is not None:
            topic_id = bytes.fromhex(content["id"])
            self._topics[name] = Topic(
                name,
                topic_id,
                content["partitions"],
                content["settings"],
                is_creating=content.get("creating", False),
                is_deleting=content.get("deleting", False),
            )
            self.partition_count += content["partitions"]
            self._names[topic_id] = name
            self._collisions[_without_dots(name)] = name
        self.on_topic_changed(name)

    def _replay_broker_settings(self, key: str, settings: Mapping[str, str]) -> None:
        """Keep all settings of this broker, and of other brokers those that concern it."""
        if key == self._own_settings_key:
            self.broker_settings = settings
        if key.startswith(_OF_BROKERS):
            broker_id = BrokerId(int(key.removeprefix(_OF_BROKERS)))
            if CORDONED_LOG_DIRS in settings:
                self._cordoned[broker_id] = bool(settings[CORDONED_LOG_DIRS])
            else:
                self._cordoned.pop(broker_id, None)

    def _replay_group(self, group_id: str, settings: Any) -> None:
        if settings is None:
            self._group_settings.pop(group_id, None)
        else:
            self._group_settings[group_id] = settings

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls."""
        assert len(self._names) == len(self._topics) == len(self._collisions)
        assert self.partition_count == sum(topic.partition_count for topic in self._topics.values())
        for name, topic in self._topics.items():
            assert topic.name == name
            assert self._names[topic.id] == name
            assert topic.partition_count > 0


def broker_settings_key(broker_id: BrokerId) -> str:
    """Return the key of the dynamic settings of a broker of a cluster."""
    return f"{_OF_BROKERS}{broker_id}"


def _record(key: str, content: Mapping[str, Any]) -> MetadataRecord:
    return key, json.dumps(dict(content), sort_keys=True, separators=(",", ":")).encode()


def decode_feature_levels(cluster: bytes) -> dict[str, int]:
    """Return the levels in the value of `CLUSTER_KEY`."""
    levels: dict[str, int] = json.loads(cluster).get("features", {})
    return levels


def _cluster_record(cluster_id: str, feature_levels: Mapping[str, int]) -> MetadataRecord:
    content: dict[str, Any] = {"id": cluster_id}
    if feature_levels:
        content["features"] = dict(feature_levels)
    return _record(CLUSTER_KEY, content)


def _topic_record(topic: Topic) -> MetadataRecord:
    content: dict[str, Any] = {
        "id": topic.id.hex(),
        "partitions": topic.partition_count,
        "settings": dict(topic.settings),
    }
    if topic.is_creating:
        content["creating"] = True
    if topic.is_deleting:
        content["deleting"] = True
    return _record(f"{TOPIC_PREFIX}{topic.name}", content)


def _without_dots(name: str) -> str:
    return name.replace(".", "_")


class MetadataError(LogbrookError):
    """The metadata does not permit the request."""


class TopicExistsError(MetadataError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} exists already")


class TopicNotFoundError(MetadataError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"there is no topic {topic!r}")


class UnknownTopicIdError(MetadataError):
    def __init__(self, topic_id: bytes) -> None:
        super().__init__(f"there is no topic with the id {topic_id.hex()}")


class TopicCollisionError(MetadataError):
    """Kafka's metrics replace '.' by '_', so two topic names may not differ in that only."""

    def __init__(self, topic: str, other: str) -> None:
        super().__init__(f"topic {topic!r} would collide with {other!r}: '.' and '_' count as the same")


class InvalidPartitionsError(MetadataError):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
