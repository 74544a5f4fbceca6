"""What a client is told of something that was refused."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.server.services import Services
from logbrook.testing.broker import Broker
from tests.unit.server.handlers.kit import Peer


def services_of(broker: Broker) -> Services:
    return broker._running.services


def test_refusals_are_counted_by_api_and_code() -> None:
    with Broker() as broker, Peer(broker.bootstrap_servers) as peer:
        peer.ask(FindCoordinatorRequest(key_type=7, coordinator_keys=["a", "b"]), FindCoordinatorResponse)
        partitions = [OffsetCommitRequestPartition(partition_index=number) for number in range(3)]
        topic = OffsetCommitRequestTopic(name="nobody", partitions=partitions)
        peer.ask(OffsetCommitRequest(group_id="group", topics=[topic]), OffsetCommitResponse, 9)
        assert dict(services_of(broker).probe.errors) == {
            ("FindCoordinator", ErrorCode.INVALID_REQUEST.name): 2,
            ("OffsetCommit", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name): 3,
        }
