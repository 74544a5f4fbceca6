"""AlterPartitionReassignments and ListPartitionReassignments on a single node."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from logbrook.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.unit.server.handlers.kit import NODE_ID, Peer, distinct_versions


def reassign(
    peer: Peer, topic: str, replicas: list[int] | None, partition: int = 0, version: int | None = None
) -> ErrorCode:
    wanted = ReassignableTopic(
        name=topic, partitions=[ReassignablePartition(partition_index=partition, replicas=replicas)]
    )
    response = peer.ask(
        AlterPartitionReassignmentsRequest(topics=[wanted]), AlterPartitionReassignmentsResponse, version
    )
    assert response.error_code == ErrorCode.NONE
    (answered,) = response.responses
    (result,) = answered.partitions
    assert (answered.name, result.partition_index) == (topic, partition)
    assert bool(result.error_code) == bool(result.error_message)
    return ErrorCode(result.error_code)


@distinct_versions(AlterPartitionReassignmentsRequest)
def test_a_partition_can_be_assigned_to_this_broker_only(peer: Peer, version: int) -> None:
    topic = peer.create()
    assert reassign(peer, topic, [NODE_ID], version=version) == ErrorCode.NONE
    other = reassign(peer, topic, [NODE_ID, NODE_ID + 1], version=version)
    assert other == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("replicas", [[], [NODE_ID, NODE_ID], [NODE_ID + 1], [-1]])
def test_an_impossible_assignment_is_refused(peer: Peer, replicas: list[int]) -> None:
    assert reassign(peer, peer.create(), replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_there_is_nothing_to_cancel(peer: Peer) -> None:
    assert reassign(peer, peer.create(), None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_an_unknown_partition_is_named_as_such(peer: Peer) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(peer, "nobody", [NODE_ID]) == unknown
    assert reassign(peer, peer.create(), [NODE_ID], partition=7) == unknown


def test_there_are_no_reassignments(peer: Peer) -> None:
    wanted = ListPartitionReassignmentsTopics(name=peer.create(), partition_indexes=[0])
    for topics in (None, [wanted]):
        request = ListPartitionReassignmentsRequest(topics=topics)
        response = peer.ask(request, ListPartitionReassignmentsResponse)
        assert (response.error_code, response.topics) == (ErrorCode.NONE, [])
