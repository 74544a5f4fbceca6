"""A client for the tests of the handlers: any message in any version, over a real socket."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple, TypeVar

import pytest

from logbrook.client.connection import Connection, Sent
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from logbrook.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from logbrook.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from logbrook.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from logbrook.protocol.schema import ApiMessage
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

R = TypeVar("R", bound=ApiMessage)

NODE_ID = 1
DEFAULT = -1
TOPIC = 2
BROKER = 4
EARLIEST = -2
LATEST = -1
# The last in which topics go by name.
FETCH_VERSION = 12
_numbers = count(1)


def fresh(word: str = "topic") -> str:
    """A name that no other test has."""
    return f"{word}-{next(_numbers)}"


def every_version(message: type[ApiMessage], first: int = 0) -> pytest.MarkDecorator:
    """Run a test with each version of a request, from `first` on."""
    versions = message.VERSIONS
    return pytest.mark.parametrize("version", range(max(first, versions.first), versions.last + 1))


class Producer(NamedTuple):
    id: int
    epoch: int
    sequence: int


class Peer:
    """A client with one connection."""

    def __init__(self, bootstrap_servers: str, client_id: str = "peer") -> None:
        host, port = bootstrap_servers.rsplit(":", 1)
        self.connection = Connection(host, int(port), client_id=client_id)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def ask(self, message: ApiMessage, response: type[R], version: int | None = None) -> R:
        """Without a version, in the newest."""
        return self.connection.request(message, response, type(message).VERSIONS.last if version is None else version)

    def send(self, message: ApiMessage, response: type[R], version: int | None = None) -> Sent[R]:
        return self.connection.send(message, response, type(message).VERSIONS.last if version is None else version)

    def receive(self, sent: Sent[R]) -> R:
        return self.connection.receive(sent)

    def create(self, name: str | None = None, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        """A new topic; its name."""
        name = name or fresh()
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=DEFAULT, configs=configs)
        (result,) = self.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics
        assert result.error_code == ErrorCode.NONE, result.error_message
        return name

    def metadata(self, name: str) -> MetadataResponseTopic:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        (topic,) = self.ask(request, MetadataResponse).topics
        return topic

    def topic_id(self, name: str) -> bytes:
        return self.metadata(name).topic_id

    def partition_count(self, name: str) -> int:
        return len(self.metadata(name).partitions)

    def produce(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        timestamp: int = 1_000,
        producer: Producer | None = None,
        acks: int = -1,
    ) -> PartitionProduceResponse:
        records = [Record(key=b"k", value=value, timestamp=timestamp) for value in values or (b"v",)]
        if producer is None:
            batch = build_batch(records)
        else:
            batch = build_batch(
                records, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=producer.sequence
            )
        data = TopicProduceData(
            name=topic,
            topic_id=self.topic_id(topic),
            partition_data=[PartitionProduceData(index=partition, records=batch)],
        )
        request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
        (response,) = self.ask(request, ProduceResponse).responses
        (answer,) = response.partition_responses
        return answer

    def offset(self, topic: str, timestamp: int = LATEST, partition: int = 0) -> int:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        (answer,) = self.ask(request, ListOffsetsResponse).topics
        (found,) = answer.partitions
        assert found.error_code == ErrorCode.NONE
        return found.offset

    def configs(
        self, name: str, resource_type: int = TOPIC, keys: Sequence[str] | None = None
    ) -> dict[str, DescribeConfigsResourceResult]:
        resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (result,) = self.ask(request, DescribeConfigsResponse).results
        assert result.error_code == ErrorCode.NONE, result.error_message
        return {entry.name: entry for entry in result.configs}

    def config(self, name: str, key: str, resource_type: int = TOPIC) -> str | None:
        return self.configs(name, resource_type, [key])[key].value


def fetch_request(topic: str, offset: int, *, wait_ms: int) -> FetchRequest:
    """One that waits for more bytes than anybody writes; to be sent in `FETCH_VERSION`."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1 << 20,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
