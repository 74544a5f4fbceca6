"""Administration of consumer groups: members, committed offsets and lag, resetting offsets, deleting groups."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from logbrook.client.admin_results import (
    GroupInfo,
    GroupMemberInfo,
    GroupPartition,
    GroupSummary,
    OffsetChange,
)
from logbrook.client.client import EARLIEST, LATEST, Client, group_by_topic
from logbrook.client.connection import Connection
from logbrook.client.coordinators import CoordinatorKind, OffsetAndMetadata
from logbrook.client.errors import BrokerError, check_code
from logbrook.client.group_protocol import PROTOCOL_TYPE, GroupProtocolError, decode_assignment
from logbrook.client.offset_specs import LogBounds, OffsetSpec
from logbrook.client.partition_requests import PartitionRequests
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import UnsupportedApiError, UnsupportedVersionError
from logbrook.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from logbrook.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from logbrook.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from logbrook.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from logbrook.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

DEAD = "Dead"
EMPTY = "Empty"
# Group types, as ListGroups has them.
CLASSIC = "classic"
CONSUMER = "consumer"


class Shift(NamedTuple):
    """A reset relative to the committed offset: forward by `by`, or back if it is negative."""

    by: int


class GroupAdmin:
    """Every call may raise ClientError. A group that does not exist is GROUP_ID_NOT_FOUND."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cluster = PartitionRequests(client)
        self._coordinators = self._cluster.coordinators

    def all(self) -> list[GroupSummary]:
        """Return the groups of all coordinators, by name."""
        groups = []
        for broker in self._client.metadata([]).brokers:
            connection = self._client.connection((broker.host, broker.port))
            response = connection.request(ListGroupsRequest(), ListGroupsResponse)
            check_code(response.error_code, f"listing the groups of broker {broker.node_id}")
            groups += [
                GroupSummary(group.group_id, group.group_state, group.protocol_type, group.group_type)
                for group in response.groups
            ]
        return sorted(groups, key=lambda group: group.group_id)

    def describe(self, group_id: str) -> GroupInfo:
        """Return a group with its members and its progress in each partition."""
        described = self._describe(group_id)
        committed = self.committed(group_id)
        if described.state == DEAD and not committed:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"looking up group {group_id}")
        with self._coordinators.connection(CoordinatorKind.GROUP, group_id) as connection:
            coordinator = connection.host, connection.port
        return GroupInfo(
            group_id,
            described.type,
            described.state,
            described.protocol_type,
            described.assignor,
            coordinator,
            described.members,
            self._partitions(committed, described.members),
        )

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of a group, without those of open transactions."""
        return self._coordinators.committed(group_id, require_stable=False)

    def plan_reset(
        self, group_id: str, to: OffsetSpec | Shift, topics: Iterable[str] = (), partitions: Iterable[int] = ()
    ) -> Sequence[OffsetChange]:
        """Return the changes that a reset would make, without making them.

        `topics` defaults to all that the group has committed to, and `partitions` to all of these topics. A group that
        does not exist yet can be reset if topics are given.
        """
        committed = self.committed(group_id)
        names = sorted(set(topics) or {partition.topic for partition in committed})
        existing = self._cluster.topics(names) if names else {}
        for name in names:
            if name not in existing:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"looking up topic {name}")
        indexes = set(partitions)
        chosen = [
            TopicPartition(name, index)
            for name in names
            for index in existing[name].partitions
            if not indexes or index in indexes
        ]
        bounds = LogBounds(self._cluster, chosen)
        if isinstance(to, Shift):
            after = {
                partition: bounds.clamp(partition, Offset(committed[partition].offset + to.by))
                for partition in chosen
                if partition in committed
            }
        else:
            after = bounds.resolve(to)
        return [
            OffsetChange(partition, committed[partition].offset if partition in committed else None, after[partition])
            for partition in sorted(after)
        ]

    def reset(self, group_id: str, changes: Iterable[OffsetChange]) -> None:
        """Commit the planned offsets. NON_EMPTY_GROUP while the group has members."""
        described = self._describe(group_id)
        if described.members or described.state not in (EMPTY, DEAD):
            message = f"it has {len(described.members)} active members and is {described.state}"
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP, f"resetting group {group_id}", message)
        self._coordinators.commit(group_id, {change.partition: change.after for change in changes})

    def delete(self, group_ids: Sequence[str]) -> None:
        """Delete groups in order. Stops at the first error: NON_EMPTY_GROUP while the group has members."""
        for group_id in group_ids:
            with self._coordinators.connection(CoordinatorKind.GROUP, group_id) as connection:
                response = connection.request(DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse)
                for result in response.results:
                    check_code(result.error_code, f"deleting group {group_id}")

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the committed offsets of these partitions."""
        by_topic = group_by_topic(
            (partition, OffsetDeleteRequestPartition(partition_index=partition.partition)) for partition in partitions
        )
        topics = [OffsetDeleteRequestTopic(name=name, partitions=entries) for name, entries in by_topic.items()]
        with self._coordinators.connection(CoordinatorKind.GROUP, group_id) as connection:
            response = connection.request(OffsetDeleteRequest(group_id=group_id, topics=topics), OffsetDeleteResponse)
            check_code(response.error_code, f"deleting offsets of group {group_id}")
            for topic in response.topics:
                for result in topic.partitions:
                    operation = f"deleting the offset of group {group_id} in {topic.name}-{result.partition_index}"
                    check_code(result.error_code, operation)

    def _describe(self, group_id: str) -> "_GroupState":
        """Return a group's state; `Dead` if it does not exist, as brokers up to Kafka 3.7 answer (KIP-1043).

        DescribeGroups finds classic groups only, so one that it does not find may be of the consumer protocol.
        """
        with self._coordinators.connection(CoordinatorKind.GROUP, group_id) as connection:
            response = connection.request(DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse)
            (group,) = response.groups
            if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                check_code(group.error_code, f"looking up group {group_id}", group.error_message)
                if group.group_state != DEAD:
                    return _classic_group(group)
            return _consumer_group(connection, group_id) or _GroupState(CLASSIC, DEAD, "", "", ())

    def _partitions(
        self, committed: Mapping[TopicPartition, OffsetAndMetadata], members: Sequence[GroupMemberInfo]
    ) -> tuple[GroupPartition, ...]:
        assigned_to = {partition: member for member in members for partition in member.partitions}
        partitions = sorted(set(committed) | set(assigned_to))
        starts = self._offsets(partitions, EARLIEST)
        ends = self._offsets(partitions, LATEST)
        return tuple(
            GroupPartition(
                partition,
                committed[partition].offset if partition in committed else None,
                starts.get(partition),
                ends.get(partition),
                committed[partition].metadata if partition in committed else "",
                assigned_to.get(partition),
            )
            for partition in partitions
        )

    def _offsets(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, Offset]:
        """Return the offsets, without topics that have been deleted since the group committed to them."""
        names = sorted({partition.topic for partition in partitions})
        if not names:
            return {}
        self._client.update_metadata(self._client.metadata(names))
        offsets: dict[TopicPartition, Offset] = {}
        for name in names:
            of_topic = [partition for partition in partitions if partition.topic == name]
            with suppress(BrokerError):
                offsets |= self._cluster.list_offsets(dict.fromkeys(of_topic, timestamp_ms))
        return offsets


class _GroupState(NamedTuple):
    type: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMemberInfo, ...]


def _classic_group(group: DescribedGroup) -> _GroupState:
    members = tuple(_classic_member(member, group.protocol_type) for member in group.members)
    return _GroupState(CLASSIC, group.group_state, group.protocol_type, group.protocol_data, members)


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> GroupMemberInfo:
    partitions: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        # An assignment in another format is shown as empty.
        with suppress(GroupProtocolError):
            partitions = decode_assignment(member.member_assignment)
    return GroupMemberInfo(member.member_id, member.group_instance_id, member.client_id, member.client_host, partitions)


def _consumer_group(connection: Connection, group_id: str) -> _GroupState | None:
    """Return a group of KIP-848's protocol; None if there is none or the broker does not support the protocol."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    try:
        (group,) = connection.request(request, ConsumerGroupDescribeResponse).groups
    except (UnsupportedApiError, UnsupportedVersionError):
        return None
    # UNSUPPORTED_VERSION: the broker supports the API, but KIP-848's protocol is disabled.
    if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check_code(group.error_code, f"looking up group {group_id}", group.error_message)
    members = tuple(
        GroupMemberInfo(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(
                TopicPartition(topic.topic_name, index)
                for topic in (member.assignment.topic_partitions if member.assignment else ())
                for index in topic.partitions
            ),
        )
        for member in group.members
    )
    return _GroupState(CONSUMER, group.group_state, PROTOCOL_TYPE, group.assignor_name, members)
