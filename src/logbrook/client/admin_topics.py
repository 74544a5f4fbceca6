"""Topics: what there is, where it is, how much of it; making, changing and removing them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from logbrook.client.admin_results import PartitionInfo, TopicInfo
from logbrook.client.client import EARLIEST, LATEST, Client
from logbrook.client.cluster import Cluster
from logbrook.client.coordinators import check
from logbrook.client.errors import BrokerError
from logbrook.model import TopicPartition
from logbrook.protocol.errors import UnsupportedApiError
from logbrook.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from logbrook.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from logbrook.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from logbrook.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition
from logbrook.protocol.schema import ApiMessage

R = TypeVar("R", bound=ApiMessage)

# What stands for the cluster's default in CreateTopics, for the partitions and the replication factor alike (KIP-464).
CLUSTER_DEFAULT = -1
_NO_LEADER = -1


class TopicAdmin:
    """Every call may raise ClientError. A topic that is not there is UNKNOWN_TOPIC_OR_PARTITION."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cluster = Cluster(client)

    def names(self, *, with_internal: bool = True) -> list[str]:
        """What topics there are, in one request."""
        topics = self._client.metadata().topics
        return sorted(one.name for one in topics if one.name and (with_internal or not one.is_internal))

    def all(self) -> list[TopicInfo]:
        """All topics, with sizes and offsets. A few requests to each broker, however many topics there are."""
        return self._described(self._client.metadata())

    def describe(self, name: str) -> TopicInfo:
        """One of them."""
        answer = self._client.metadata([name])
        for topic in answer.topics:
            check(topic.error_code, f"looking up topic {name}")
        return self._described(answer)[0]

    def create(
        self,
        name: str,
        partitions: int = CLUSTER_DEFAULT,
        replication_factor: int = CLUSTER_DEFAULT,
        settings: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Raises TOPIC_ALREADY_EXISTS, as the other BrokerErrors, with the broker's own words."""
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication_factor, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only)
        for one in self._request_controller(request, CreateTopicsResponse).topics:
            check(one.error_code, f"creating topic {name}", one.error_message)

    def delete(self, names: Sequence[str]) -> None:
        """The first that cannot be deleted is raised; the others may be gone."""
        topics = [DeleteTopicState(name=name) for name in names]
        request = DeleteTopicsRequest(topics=topics, topic_names=names, timeout_ms=self._timeout_ms)
        answers = self._request_controller(request, DeleteTopicsResponse).responses
        for name in names:
            self._client.forget(name)
        for one in answers:
            check(one.error_code, f"deleting topic {one.name}", one.error_message)

    def set_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Let a topic have `count` partitions, which have to be more than it has."""
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only)
        for one in self._request_controller(request, CreatePartitionsResponse).results:
            check(one.error_code, f"adding partitions to topic {name}", one.error_message)
        self._client.forget(name)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Let logs start at the given offsets. Returns where they start now."""
        found: dict[TopicPartition, int] = {}
        for leader, partitions in self._cluster.by_leader(before).items():
            by_topic: dict[str, list[DeleteRecordsPartition]] = {}
            for one in partitions:
                asked = DeleteRecordsPartition(partition_index=one.partition, offset=before[one])
                by_topic.setdefault(one.topic, []).append(asked)
            topics = [DeleteRecordsTopic(name=name, partitions=asked) for name, asked in by_topic.items()]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=self._timeout_ms)
            for topic in self._client.connection(leader).request(request, DeleteRecordsResponse).topics:
                for answer in topic.partitions:
                    partition = TopicPartition(topic.name, answer.partition_index)
                    check(answer.error_code, f"deleting records of {partition}")
                    found[partition] = answer.low_watermark
        return found

    def _described(self, answer: MetadataResponse) -> list[TopicInfo]:
        self._client.learn(answer)
        topics = [one for one in answer.topics if one.name is not None and not one.error_code]
        brokers = {one.node_id for one in answer.brokers}
        led = [
            TopicPartition(topic.name or "", one.partition_index)
            for topic in topics
            for one in topic.partitions
            if one.leader_id in brokers
        ]
        starts = self._offsets(led, EARLIEST)
        ends = self._offsets(led, LATEST)
        sizes = self._sizes(led)

        def partition_of(name: str, one: MetadataResponsePartition) -> PartitionInfo:
            partition = TopicPartition(name, one.partition_index)
            return PartitionInfo(
                partition=one.partition_index,
                leader=None if one.leader_id == _NO_LEADER else one.leader_id,
                leader_epoch=one.leader_epoch,
                replicas=tuple(one.replica_nodes),
                in_sync_replicas=tuple(one.isr_nodes),
                start_offset=starts.get(partition),
                end_offset=ends.get(partition),
                size_bytes=sizes.get(partition),
            )

        found = []
        for topic in topics:
            name = topic.name or ""
            partitions = sorted((partition_of(name, one) for one in topic.partitions), key=lambda one: one.partition)
            found.append(TopicInfo(name, topic.topic_id, topic.is_internal, tuple(partitions)))
        return sorted(found, key=lambda one: one.name)

    def _offsets(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """Partitions that are just being moved or removed are left out, not an error of all the others."""
        try:
            return self._cluster.list_offsets(dict.fromkeys(partitions, timestamp_ms))
        except BrokerError:
            found: dict[TopicPartition, int] = {}
            for one in partitions:
                try:
                    found |= self._cluster.list_offsets({one: timestamp_ms})
                except BrokerError:
                    continue
            return found

    def _sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Empty where a cluster does not tell: an old one, or one that keeps it from this user."""
        try:
            return self._cluster.sizes(partitions)
        except (BrokerError, UnsupportedApiError):
            return {}

    def _request_controller(self, request: ApiMessage, response: type[R]) -> R:
        """Brokers that keep their metadata in ZooKeeper leave changes to one of them; others pass them on."""
        answer = self._client.metadata([])
        for broker in answer.brokers:
            if broker.node_id == answer.controller_id:
                return self._client.connection((broker.host, broker.port)).request(request, response)
        return self._client.request(request, response)

    @property
    def _timeout_ms(self) -> int:
        return round(self._client.timeout_s * 1000)
