"""DescribeQuorum on a single node."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ResponsePartitionData,
    TopicData,
)
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import NODE_ID, Peer, distinct_versions

NODES_SINCE = 2


def describe(
    peer: Peer, topic: str, version: int | None = None
) -> tuple[DescribeQuorumResponse, ResponsePartitionData]:
    request = DescribeQuorumRequest(topics=[TopicData(topic_name=topic, partitions=[PartitionData(partition_index=0)])])
    response = peer.ask(request, DescribeQuorumResponse, version)
    (described,) = response.topics
    assert described.topic_name == topic
    (partition,) = described.partitions
    return response, partition


@distinct_versions(DescribeQuorumRequest)
def test_this_broker_is_the_only_voter_and_leads(broker: HandlerShell, peer: Peer, version: int) -> None:
    response, partition = describe(peer, "__cluster_metadata", version)
    assert (response.error_code, partition.error_code, partition.observers) == (ErrorCode.NONE, ErrorCode.NONE, [])
    assert (partition.leader_id, partition.leader_epoch) == (NODE_ID, broker.services.topics.metadata.epoch)
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (NODE_ID, partition.high_watermark)
    assert partition.high_watermark > 0
    if version >= NODES_SINCE:
        (node,) = response.nodes
        assert [(listener.host, listener.port) for listener in node.listeners] == [broker.address]


def test_topics_have_no_quorum(peer: Peer) -> None:
    _, partition = describe(peer, peer.create())
    assert (partition.error_code, partition.current_voters) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
