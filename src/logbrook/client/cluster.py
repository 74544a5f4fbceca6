"""Questions about many partitions at once: what there is, how far it goes, how large it is, and how far a group is.

Each question is asked of every broker that leads one of the partitions, once, whatever their number.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from logbrook.client.client import Address, Client
from logbrook.client.errors import BrokerError, ClientError
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from logbrook.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.protocol.schema import ApiMessage

R = TypeVar("R", bound=ApiMessage)

_CONSUMER = -1
_GROUP = 0
_NO_GENERATION = -1
_COORDINATOR_VERSION = 3
# The last in which topics go by their names.
_COMMIT_VERSION = 9


class TopicInfo(NamedTuple):
    id: bytes
    partitions: tuple[int, ...]
    is_internal: bool


class Cluster:
    """A client's view of a cluster. Every call may raise ClientError."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """These topics, or all of them. One that is not there is left out."""
        wanted = None if names is None else list(names)
        found: dict[str, TopicInfo] = {}
        answer = self.client.metadata(wanted)
        self.client.learn(answer)
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            if topic.error_code:
                raise BrokerError(topic.error_code, f"looking up topic {topic.name}")
            partitions = tuple(sorted(one.partition_index for one in topic.partitions))
            found[topic.name] = TopicInfo(topic.topic_id, partitions, topic.is_internal)
        return found

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, int]:
        """For each partition the first offset at or after a time in ms (-1 if there is none), or EARLIEST or LATEST."""
        found: dict[TopicPartition, int] = {}
        for leader, partitions in self.by_leader(wanted).items():
            by_topic: dict[str, list[ListOffsetsPartition]] = {}
            for one in partitions:
                asked = ListOffsetsPartition(partition_index=one.partition, timestamp=wanted[one])
                by_topic.setdefault(one.topic, []).append(asked)
            request = ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=int(committed_only),
                topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in by_topic.items()],
                timeout_ms=30_000,
            )
            for topic in self._ask(leader, partitions, request, ListOffsetsResponse).topics:
                for answer in topic.partitions:
                    self._check(topic.name, answer.partition_index, answer.error_code, "listing the offsets of")
                    found[TopicPartition(topic.name, answer.partition_index)] = answer.offset
        return found

    def sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The bytes that partitions take on the disks of their leaders, as far as those tell."""
        found: dict[TopicPartition, int] = {}
        for leader, led in self.by_leader(partitions).items():
            by_topic: dict[str, list[int]] = {}
            for one in led:
                by_topic.setdefault(one.topic, []).append(one.partition)
            topics = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in by_topic.items()]
            request = DescribeLogDirsRequest(topics=topics)
            for directory in self._ask(leader, led, request, DescribeLogDirsResponse).results:
                for topic in directory.topics:
                    for partition in topic.partitions:
                        if not partition.is_future_key:
                            found[TopicPartition(topic.name, partition.partition_index)] = partition.partition_size
        return found

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Say how far a group has read that nobody joins."""
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for one, offset in offsets.items():
            partition = OffsetCommitRequestPartition(
                partition_index=one.partition, committed_offset=offset, committed_metadata=""
            )
            by_topic.setdefault(one.topic, []).append(partition)
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=_NO_GENERATION,
            topics=[OffsetCommitRequestTopic(name=name, partitions=asked) for name, asked in by_topic.items()],
        )
        connection = self.client.connection(self._coordinator(group_id))
        for topic in connection.request(request, OffsetCommitResponse, _COMMIT_VERSION).topics:
            for answer in topic.partitions:
                what = f"committing for group {group_id} to"
                self._check(topic.name, answer.partition_index, answer.error_code, what)

    def _coordinator(self, group_id: str) -> Address:
        request = FindCoordinatorRequest(key=group_id, key_type=_GROUP)
        answer = self.client.request(request, FindCoordinatorResponse, _COORDINATOR_VERSION)
        if answer.error_code:
            raise BrokerError(answer.error_code, f"finding the coordinator of group {group_id}", answer.error_message)
        return answer.host, answer.port

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Address, list[TopicPartition]]:
        """Which of the partitions each broker leads."""
        by_leader: dict[Address, list[TopicPartition]] = {}
        for one in partitions:
            by_leader.setdefault(self.client.leader(one.topic, one.partition), []).append(one)
        return by_leader

    def _ask(self, leader: Address, partitions: Iterable[TopicPartition], request: ApiMessage, response: type[R]) -> R:
        """The leader's answer. One that cannot be asked may not be the leader any more, and is forgotten."""
        try:
            return self.client.connection(leader).request(request, response)
        except ClientError:
            for topic in {one.topic for one in partitions}:
                self.client.forget(topic)
            raise

    def _check(self, topic: str, partition: int, code: int, what: str) -> None:
        if code:
            self.client.forget(topic)
            raise BrokerError(code, f"{what} {topic}-{partition}")


def retriable(error: ClientError) -> bool:
    """Whether the same question may well be answered a little later."""
    return not isinstance(error, BrokerError) or error.is_retriable
