"""Requests about many partitions at once: topics, offsets, sizes, and offsets to commit.

Each is sent once to every broker that leads one of the partitions, however many partitions there are.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from logbrook.client.client import CONSUMER_REPLICA_ID, Address, Client, group_by_topic
from logbrook.client.coordinators import Coordinators
from logbrook.client.errors import check_code
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from logbrook.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from logbrook.protocol.schema import ApiMessage

R = TypeVar("R", bound=ApiMessage)


class TopicMetadata(NamedTuple):
    id: bytes
    partitions: tuple[int, ...]
    is_internal: bool


class PartitionRequests:
    """Works through `client`, which the caller owns. Every call may raise ClientError or ProtocolError."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.coordinators = Coordinators(client)

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicMetadata]:
        """Return these topics, or all of them, by name. Topics that do not exist are left out."""
        response = self.client.metadata(None if names is None else list(names))
        self.client.update_metadata(response)
        topics: dict[str, TopicMetadata] = {}
        for topic in response.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            check_code(topic.error_code, f"looking up topic {topic.name}")
            partitions = tuple(sorted(partition.partition_index for partition in topic.partitions))
            topics[topic.name] = TopicMetadata(topic.topic_id, partitions, topic.is_internal)
        return topics

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, Offset]:
        """Return for each partition the first offset at or after a timestamp in ms (-1 if there is none), or EARLIEST
        or LATEST."""
        offsets: dict[TopicPartition, Offset] = {}
        for leader, partitions in self.by_leader(timestamps).items():
            by_topic = group_by_topic(
                (partition, ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamps[partition]))
                for partition in partitions
            )
            request = ListOffsetsRequest(
                replica_id=CONSUMER_REPLICA_ID,
                isolation_level=int(committed_only),
                topics=[ListOffsetsTopic(name=name, partitions=entries) for name, entries in by_topic.items()],
                timeout_ms=self.client.timeout_ms,
            )
            with self.client.invalidating(*by_topic):
                for topic in self.client.connection(leader).request(request, ListOffsetsResponse).topics:
                    for listed in topic.partitions:
                        partition = TopicPartition(topic.name, listed.partition_index)
                        check_code(listed.error_code, f"listing the offsets of {partition}")
                        offsets[partition] = Offset(listed.offset)
        return offsets

    def sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the bytes that the leaders' replicas take, without partitions that a broker does not list."""
        sizes: dict[TopicPartition, int] = {}
        for leader, led in self.by_leader(partitions).items():
            by_topic = group_by_topic((partition, partition.partition) for partition in led)
            topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in by_topic.items()]
            request = DescribeLogDirsRequest(topics=topics)
            with self.client.invalidating(*by_topic):
                response = self.client.connection(leader).request(request, DescribeLogDirsResponse)
            for directory in response.results:
                for topic in directory.topics:
                    for replica in topic.partitions:
                        if not replica.is_future_key:
                            sizes[TopicPartition(topic.name, replica.partition_index)] = replica.partition_size
        return sizes

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Address, list[TopicPartition]]:
        """Group the partitions by the address of their leader."""
        by_leader: dict[Address, list[TopicPartition]] = {}
        for partition in partitions:
            by_leader.setdefault(self.client.leader(*partition), []).append(partition)
        return by_leader
