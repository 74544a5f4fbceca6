"""DescribeProducers."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from tests.unit.server.handlers.kit import Peer, Producer


def describe(peer: Peer, topic: str, *partitions: int) -> list[PartitionResponse]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=partitions)])
    (answer,) = peer.ask(request, DescribeProducersResponse).topics
    assert answer.name == topic
    return list(answer.partitions)


def test_a_log_remembers_the_producers_that_have_an_id(peer: Peer) -> None:
    name = peer.create(partitions=2)
    assert peer.produce(name, b"a", b"b", timestamp=5_000, producer=Producer(8, 3, 0)).error_code == ErrorCode.NONE
    assert peer.produce(name, b"c", timestamp=6_000, producer=Producer(8, 3, 2)).error_code == ErrorCode.NONE
    assert peer.produce(name, b"d", timestamp=4_000, producer=Producer(7, 0, 0)).error_code == ErrorCode.NONE
    peer.produce(name, b"nobody's")
    first, second = describe(peer, name, 0, 1)
    assert [
        (producer.producer_id, producer.producer_epoch, producer.last_sequence, producer.last_timestamp)
        for producer in first.active_producers
    ] == [(7, 0, 0, 4_000), (8, 3, 2, 6_000)]
    assert all(
        producer.current_txn_start_offset == producer.coordinator_epoch == -1 for producer in first.active_producers
    )
    assert second.active_producers == []


@pytest.mark.parametrize("partition", [1, -1])
def test_a_partition_that_does_not_exist_is_refused(peer: Peer, partition: int) -> None:
    (response,) = describe(peer, peer.create(), partition)
    assert response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.error_message
    (response,) = describe(peer, "nobody", 0)
    assert response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_is_described_once_in_a_request(peer: Peer) -> None:
    responses = describe(peer, peer.create(), 0, 0)
    assert [response.error_code for response in responses] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
