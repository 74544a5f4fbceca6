"""Administration of topics: listing, describing, creating, changing and deleting them."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from logbrook.client.admin_results import PartitionInfo, TopicDescription
from logbrook.client.client import EARLIEST, LATEST, Client, group_by_topic
from logbrook.client.errors import BrokerError, check_code
from logbrook.client.partition_requests import PartitionRequests
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId, LeaderEpoch, Offset
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

# The cluster's default number of partitions or replication factor in CreateTopics (KIP-464).
CLUSTER_DEFAULT = -1
_NO_LEADER = -1


class TopicAdmin:
    """Every call may raise ClientError. A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cluster = PartitionRequests(client)

    def names(self, *, with_internal: bool = True) -> list[str]:
        """Return the names of all topics, with one request."""
        topics = self._client.metadata().topics
        return sorted(topic.name for topic in topics if topic.name and (with_internal or not topic.is_internal))

    def all(self) -> list[TopicDescription]:
        """Return all topics with sizes and offsets, with a few requests to each broker."""
        return self._describe(self._client.metadata())

    def describe(self, name: str) -> TopicDescription:
        """Return one topic with sizes and offsets."""
        response = self._client.metadata([name])
        for topic in response.topics:
            check_code(topic.error_code, f"looking up topic {name}")
        return self._describe(response)[0]

    def create(
        self,
        name: str,
        partitions: int = CLUSTER_DEFAULT,
        replication_factor: int = CLUSTER_DEFAULT,
        settings: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Create a topic. A BrokerError, for example TOPIC_ALREADY_EXISTS, carries the broker's message."""
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication_factor, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._client.timeout_ms, validate_only=validate_only)
        for result in self._client.request_controller(request, CreateTopicsResponse).topics:
            check_code(result.error_code, f"creating topic {name}", result.error_message)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics. Raises the first error; the other topics may have been deleted."""
        topics = [DeleteTopicState(name=name) for name in names]
        request = DeleteTopicsRequest(topics=topics, topic_names=names, timeout_ms=self._client.timeout_ms)
        results = self._client.request_controller(request, DeleteTopicsResponse).responses
        for name in names:
            self._client.invalidate(name)
        for result in results:
            check_code(result.error_code, f"deleting topic {result.name}", result.error_message)

    def set_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Increase the number of partitions to `count`."""
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(
            topics=[topic], timeout_ms=self._client.timeout_ms, validate_only=validate_only
        )
        for result in self._client.request_controller(request, CreatePartitionsResponse).results:
            check_code(result.error_code, f"adding partitions to topic {name}", result.error_message)
        self._client.invalidate(name)

    def delete_records(self, before: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
        """Delete the records before the given offsets. Return the log start offsets."""
        log_starts: dict[TopicPartition, Offset] = {}
        for leader, partitions in self._cluster.by_leader(before).items():
            by_topic = group_by_topic(
                (partition, DeleteRecordsPartition(partition_index=partition.partition, offset=before[partition]))
                for partition in partitions
            )
            topics = [DeleteRecordsTopic(name=name, partitions=entries) for name, entries in by_topic.items()]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=self._client.timeout_ms)
            for topic in self._client.connection(leader).request(request, DeleteRecordsResponse).topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    check_code(result.error_code, f"deleting records of {partition}")
                    log_starts[partition] = Offset(result.low_watermark)
        return log_starts

    def _describe(self, response: MetadataResponse) -> list[TopicDescription]:
        self._client.update_metadata(response)
        topics = [topic for topic in response.topics if topic.name is not None and not topic.error_code]
        brokers = {broker.node_id for broker in response.brokers}
        led = [
            TopicPartition(topic.name or "", partition.partition_index)
            for topic in topics
            for partition in topic.partitions
            if partition.leader_id in brokers
        ]
        starts = self._offsets(led, EARLIEST)
        ends = self._offsets(led, LATEST)
        sizes = self._sizes(led)

        def partition_info(name: str, metadata: MetadataResponsePartition) -> PartitionInfo:
            partition = TopicPartition(name, metadata.partition_index)
            return PartitionInfo(
                partition=metadata.partition_index,
                leader=None if metadata.leader_id == _NO_LEADER else BrokerId(metadata.leader_id),
                leader_epoch=LeaderEpoch(metadata.leader_epoch),
                replicas=tuple(map(BrokerId, metadata.replica_nodes)),
                in_sync_replicas=tuple(map(BrokerId, metadata.isr_nodes)),
                start_offset=starts.get(partition),
                end_offset=ends.get(partition),
                size_bytes=sizes.get(partition),
            )

        descriptions = []
        for topic in topics:
            name = topic.name or ""
            partitions = [partition_info(name, metadata) for metadata in topic.partitions]
            partitions.sort(key=lambda partition: partition.partition)
            descriptions.append(TopicDescription(name, topic.topic_id, topic.is_internal, tuple(partitions)))
        return sorted(descriptions, key=lambda topic: topic.name)

    def _offsets(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, Offset]:
        """Return the offsets of those partitions that answer. One that is being deleted does not fail the others."""
        try:
            return self._cluster.list_offsets(dict.fromkeys(partitions, timestamp_ms))
        except BrokerError:
            offsets: dict[TopicPartition, Offset] = {}
            for partition in partitions:
                with suppress(BrokerError):
                    offsets |= self._cluster.list_offsets({partition: timestamp_ms})
            return offsets

    def _sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the sizes; none if the brokers lack DescribeLogDirs or do not authorize it."""
        try:
            return self._cluster.sizes(partitions)
        except (BrokerError, UnsupportedApiError):
            return {}
