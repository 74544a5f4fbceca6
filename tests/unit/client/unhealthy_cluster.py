"""A cluster of two brokers with all that `check_health` reports. Broker 1 is scripted, broker 2 is down."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.framing import read_request_start
from logbrook.protocol.messages.api_versions import ApiVersionsRequest
from logbrook.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from logbrook.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from logbrook.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.client.scripted_broker import Respond, ScriptedBroker, answer, request_in, responds, supports

NO_LEADER = -1
READABLE, UNREADABLE, OF_BROKER_2, LEADERLESS, QUARANTINED = range(5)


@contextmanager
def unhealthy_cluster() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        metadata = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=1, host=broker.host, port=broker.port),
                MetadataResponseBroker(node_id=2, host="127.0.0.1", port=1),
            ],
            controller_id=2,
            topics=[
                MetadataResponseTopic(
                    name="t",
                    partitions=[
                        partition(READABLE, leader_id=1, in_sync=[1, 2]),
                        partition(UNREADABLE, leader_id=1, in_sync=[1, 2]),
                        partition(OF_BROKER_2, leader_id=2, in_sync=[2]),
                        partition(LEADERLESS, leader_id=NO_LEADER, in_sync=[1, 2]),
                        partition(QUARANTINED, leader_id=1, in_sync=[1, 2], offline=[1]),
                    ],
                )
            ],
        )
        log_dirs = DescribeLogDirsResponse(
            results=[DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/data")]
        )
        by_api: dict[int, Respond] = {
            ApiVersionsRequest.API_KEY: supports(MetadataRequest, DescribeLogDirsRequest, ListOffsetsRequest),
            MetadataRequest.API_KEY: responds(metadata),
            DescribeLogDirsRequest.API_KEY: responds(log_dirs),
            ListOffsetsRequest.API_KEY: list_offsets,
        }
        broker.responses = (lambda frame: by_api[read_request_start(frame).api_key](frame),)
        yield broker


def partition(
    number: int, *, leader_id: int, in_sync: list[int], offline: Sequence[int] = ()
) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=number,
        leader_id=leader_id,
        replica_nodes=[1, 2],
        isr_nodes=in_sync,
        offline_replicas=offline,
    )


def list_offsets(frame: memoryview) -> bytes:
    (topic,) = request_in(frame, ListOffsetsRequest).topics
    partitions = [
        ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index,
            error_code=ErrorCode.KAFKA_STORAGE_ERROR if wanted.partition_index == UNREADABLE else ErrorCode.NONE,
            offset=7,
        )
        for wanted in topic.partitions
    ]
    return answer(frame, ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=partitions)]))
