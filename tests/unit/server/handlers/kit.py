"""A client for the tests of the handlers: any message in any version, without a socket."""

import inspect
import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

import pytest

from logbrook.model.identifiers import ProducerEpoch, ProducerId
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
from logbrook.protocol.schema import ApiMessage, Message
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.api import Api
from logbrook.server.handlers import all_apis
from tests.unit.server.handler_kit import DispatchedRequest, HandlerShell

R = TypeVar("R", bound=ApiMessage)

NODE_ID = 1
DEFAULT = -1
TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
GROUP = 32
EARLIEST = -2
LATEST = -1
NOT_REQUESTED = -(2**31)
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(
    3, 13
)
# The last version that identifies topics by name.
FETCH_VERSION = 12
_numbers = count(1)


def fresh(word: str = "topic") -> str:
    """Return a unique name."""
    return f"{word}-{next(_numbers)}"


def operations(bits: int) -> list[int]:
    """Return the numbers of the operations in a bit field of authorized operations."""
    return [number for number in range(32) if bits >> number & 1]


def distinct_versions(message: type[ApiMessage], first: int = 0) -> pytest.MarkDecorator:
    """Run a test with the versions of a request that a handler can tell apart, from `first` on.

    They are the oldest and the newest, each that adds or removes a field of the request or the response, and those
    around a version number in the handler's source. The codec's tests have the versions in between.
    """
    api = next(api for api in all_apis() if api.request is message)
    oldest, newest = max(first, message.VERSIONS.first), message.VERSIONS.last
    chosen = {oldest, newest}
    chosen |= {version for version in range(oldest + 1, newest) if _has_new_shape(api, version)}
    source = inspect.getsource(inspect.getmodule(api.handle) or api.handle)
    for threshold in map(int, _THRESHOLD.findall(source)):
        chosen |= {version for version in (threshold - 1, threshold) if oldest < version < newest}
    return pytest.mark.parametrize("version", sorted(chosen))


# As in `_TOPIC_IDS_SINCE = 10` and `fenced_since=2`.
_THRESHOLD = re.compile(r"_since ?= ?(\d+)", re.IGNORECASE)


def _has_new_shape(api: Api[Any], version: int) -> bool:
    return any(_shape(part, version) != _shape(part, version - 1) for part in (api.request, api.response))


def _shape(message: type[Message], version: int) -> tuple[object, ...]:
    return tuple(
        (
            field.name,
            field.nullable is not None and version in field.nullable,
            () if isinstance(field.kind, str) else _shape(field.kind, version),
        )
        for field in message.FIELDS
        if version in field.versions
    )


class Producer(NamedTuple):
    id: int
    epoch: int
    sequence: int


class Peer:
    """A client, with methods for common requests."""

    def __init__(self, shell: HandlerShell, client_id: str = "peer") -> None:
        self.client = shell.client(client_id)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def ask(self, message: ApiMessage, response: type[R], version: int | None = None) -> R:
        """Send a request, by default in the newest version, and return the response."""
        return self.client.request(message, response, version)

    def send(self, message: ApiMessage, response: type[R], version: int | None = None) -> DispatchedRequest[R]:
        return self.client.send(message, response, version)

    def receive(self, sent: DispatchedRequest[R]) -> R:
        return self.client.receive(sent)

    def create(self, name: str | None = None, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        """Create a topic and return its name."""
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
                records,
                producer_id=ProducerId(producer.id),
                producer_epoch=ProducerEpoch(producer.epoch),
                base_sequence=producer.sequence,
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
        (listed,) = answer.partitions
        assert listed.error_code == ErrorCode.NONE
        return listed.offset

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
    """Return a fetch that waits for more bytes than any test writes; to be sent in `FETCH_VERSION`."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1 << 20,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
