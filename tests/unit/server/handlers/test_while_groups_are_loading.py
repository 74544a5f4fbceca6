"""While groups are loading, clients get a retriable error: "no offset" would make a consumer reset its position."""

from collections.abc import Iterator

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from logbrook.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from logbrook.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from logbrook.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from logbrook.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from logbrook.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from logbrook.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.server.coordinators.kit import make_loading
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.group_kit import join_request
from tests.unit.server.handlers.kit import Peer, distinct_versions

TOPIC_NAME = "orders"
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture(scope="module")
def loading() -> Iterator[Peer]:
    """A client of a broker that has not loaded its groups yet."""
    with HandlerShell() as broker, Peer(broker) as peer:
        broker.create(TOPIC_NAME)
        make_loading(broker.services.groups.runtime)
        yield peer


@distinct_versions(JoinGroupRequest)
def test_a_member_waits_to_join(loading: Peer, version: int) -> None:
    assert loading.ask(join_request("group"), JoinGroupResponse, version).error_code == LOADING


@distinct_versions(SyncGroupRequest)
def test_a_sync_is_sent_to_join_again(loading: Peer, version: int) -> None:
    request = SyncGroupRequest(group_id="group", member_id="m", protocol_type="consumer", protocol_name="range")
    assert loading.ask(request, SyncGroupResponse, version).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@distinct_versions(HeartbeatRequest)
def test_a_heartbeat_is_accepted_while_groups_are_loading(loading: Peer, version: int) -> None:
    request = HeartbeatRequest(group_id="group", member_id="m")
    assert loading.ask(request, HeartbeatResponse, version).error_code == ErrorCode.NONE


@distinct_versions(LeaveGroupRequest)
def test_a_member_waits_to_leave(loading: Peer, version: int) -> None:
    request = LeaveGroupRequest(group_id="group", member_id="m", members=[MemberIdentity(member_id="m")])
    assert loading.ask(request, LeaveGroupResponse, version).error_code == LOADING


@distinct_versions(OffsetCommitRequest)
def test_a_commit_waits(loading: Peer, version: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name=TOPIC_NAME, topic_id=loading.topic_id(TOPIC_NAME), partitions=[partition])
    answer = loading.ask(OffsetCommitRequest(group_id="group", topics=[topic]), OffsetCommitResponse, version)
    assert answer.topics[0].partitions[0].error_code == LOADING


@distinct_versions(OffsetFetchRequest)
@pytest.mark.parametrize("asks_for_all", [False, True])
def test_a_missing_offset_is_never_reported(loading: Peer, version: int, asks_for_all: bool) -> None:
    if version >= 8:
        topic = OffsetFetchRequestTopics(name=TOPIC_NAME, topic_id=loading.topic_id(TOPIC_NAME), partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id="group", topics=None if asks_for_all else [topic])
        (of_group,) = loading.ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, version).groups
        assert (of_group.error_code, of_group.topics) == (LOADING, [])
        return
    single = OffsetFetchRequestTopic(name=TOPIC_NAME, partition_indexes=[0])
    is_null = asks_for_all and version >= 2
    request = OffsetFetchRequest(group_id="group", topics=None if is_null else [single])
    answer = loading.ask(request, OffsetFetchResponse, version)
    if version >= 2:
        assert (answer.error_code, answer.topics) == (LOADING, [])
    else:
        (partition,) = answer.topics[0].partitions
        assert (partition.partition_index, partition.committed_offset, partition.error_code) == (0, -1, LOADING)


@distinct_versions(OffsetFetchRequest, first=2)
def test_an_offset_fetch_without_topics_is_answered_with_loading(loading: Peer, version: int) -> None:
    request = OffsetFetchRequest(group_id="group", groups=[OffsetFetchRequestGroup(group_id="group")])
    answer = loading.ask(request, OffsetFetchResponse, version)
    assert [answer.error_code, *(group.error_code for group in answer.groups)] in ([LOADING], [0, LOADING])


def test_offsets_wait_to_be_deleted(loading: Peer) -> None:
    topic = OffsetDeleteRequestTopic(name=TOPIC_NAME, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    answer = loading.ask(OffsetDeleteRequest(group_id="group", topics=[topic]), OffsetDeleteResponse)
    assert (answer.error_code, answer.topics) == (LOADING, [])


@distinct_versions(ListGroupsRequest)
def test_groups_are_not_listed_in_part(loading: Peer, version: int) -> None:
    answer = loading.ask(ListGroupsRequest(), ListGroupsResponse, version)
    assert (answer.error_code, answer.groups) == (LOADING, [])


@distinct_versions(DescribeGroupsRequest)
def test_a_loading_group_is_not_reported_as_dead(loading: Peer, version: int) -> None:
    (group,) = loading.ask(DescribeGroupsRequest(groups=["group"]), DescribeGroupsResponse, version).groups
    assert (group.error_code, group.group_state) == (LOADING, "")


@distinct_versions(DeleteGroupsRequest)
def test_groups_wait_to_be_deleted(loading: Peer, version: int) -> None:
    (result,) = loading.ask(DeleteGroupsRequest(groups_names=["group"]), DeleteGroupsResponse, version).results
    assert result.error_code == LOADING


@distinct_versions(FindCoordinatorRequest)
def test_the_coordinator_is_found_all_the_same(loading: Peer, version: int) -> None:
    request = FindCoordinatorRequest(key="group", coordinator_keys=["group"])
    answer = loading.ask(request, FindCoordinatorResponse, version)
    assert [answer.error_code, *(coordinator.error_code for coordinator in answer.coordinators)] in ([0], [0, 0])


def test_a_topic_is_deleted_all_the_same(loading: Peer) -> None:
    name = loading.create()
    (result,) = loading.ask(DeleteTopicsRequest(topic_names=[name]), DeleteTopicsResponse, 5).responses
    assert result.error_code == ErrorCode.NONE
