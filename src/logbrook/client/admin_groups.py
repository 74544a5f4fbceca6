"""Consumer groups: who is in them, how far they are and how much is left; putting them elsewhere, and removing them."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from logbrook.client.admin_results import GroupInfo, GroupMemberInfo, GroupPartition, GroupSummary, OffsetChange
from logbrook.client.client import EARLIEST, LATEST, Client
from logbrook.client.cluster import Cluster
from logbrook.client.connection import Connection
from logbrook.client.coordinators import CommittedOffset, CoordinatorKind, Coordinators, check
from logbrook.client.errors import BrokerError
from logbrook.client.group_protocol import PROTOCOL_TYPE, GroupProtocolError, decode_assignment
from logbrook.client.positions import Position, Positions
from logbrook.model import TopicPartition
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
from logbrook.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

DEAD = "Dead"
EMPTY = "Empty"
# As ListGroups has them.
CLASSIC = "classic"
NEWER = "consumer"

# The last that is about one group.
_OFFSETS_VERSION_MAX = 7


class Shift(NamedTuple):
    """So many offsets ahead of where the group is, or back."""

    by: int


class GroupAdmin:
    """Every call may raise ClientError. A group that is not there is GROUP_ID_NOT_FOUND."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cluster = Cluster(client)
        self._coordinators = Coordinators(client)

    def all(self) -> list[GroupSummary]:
        """The groups that the brokers coordinate, by name."""
        found = []
        for broker in self._client.metadata([]).brokers:
            connection = self._client.connection((broker.host, broker.port))
            answer = connection.request(ListGroupsRequest(), ListGroupsResponse)
            check(answer.error_code, f"listing the groups of broker {broker.node_id}")
            found += [
                GroupSummary(one.group_id, one.group_state, one.protocol_type, one.group_type) for one in answer.groups
            ]
        return sorted(found, key=lambda one: one.group_id)

    def describe(self, group_id: str) -> GroupInfo:
        """Its members, and for each partition how far it is."""
        described = self._described(group_id)
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

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed, everywhere. What a transaction may still commit is not counted."""
        what = f"asking how far group {group_id} is"
        request = OffsetFetchRequest(group_id=group_id, topics=None)
        with self._coordinators.connection(CoordinatorKind.GROUP, group_id) as connection:
            version = min(connection.version_of(OffsetFetchRequest), _OFFSETS_VERSION_MAX)
            answer = connection.request(request, OffsetFetchResponse, version)
            check(answer.error_code, what)
        return {
            TopicPartition(topic.name, one.partition_index): CommittedOffset(one.committed_offset, one.metadata or "")
            for topic in answer.topics
            for one in topic.partitions
            if not one.error_code and one.committed_offset >= 0
        }

    def plan_reset(
        self, group_id: str, to: Position | Shift, topics: Iterable[str] = (), partitions: Iterable[int] = ()
    ) -> Sequence[OffsetChange]:
        """What a reset would do, partition by partition: of these topics, or of all to which the group has committed;
        and of these partitions of theirs, if any are named.

        A group that is not there can be reset too, to where it is to begin, if topics are named.
        """
        committed = self.committed(group_id)
        wanted = sorted(set(topics) or {one.topic for one in committed})
        found = self._cluster.topics(wanted) if wanted else {}
        for topic in wanted:
            if topic not in found:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"looking up topic {topic}")
        numbers = set(partitions)
        chosen = [
            TopicPartition(topic, number)
            for topic in wanted
            for number in found[topic].partitions
            if not numbers or number in numbers
        ]
        positions = Positions(self._cluster, chosen)
        if isinstance(to, Shift):
            moved = {one: committed[one].offset + to.by for one in chosen if one in committed}
            after = {one: positions.within(one, offset) for one, offset in moved.items()}
        else:
            after = positions.offsets(to)
        known = {one: committed[one].offset if one in committed else None for one in after}
        return [OffsetChange(one, known[one], after[one]) for one in sorted(after)]

    def reset(self, group_id: str, changes: Iterable[OffsetChange]) -> None:
        """Do what was planned. NON_EMPTY_GROUP while the group has members."""
        described = self._described(group_id)
        if described.members or described.state not in (EMPTY, DEAD):
            message = f"it has {len(described.members)} active members and is {described.state}"
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP, f"resetting group {group_id}", message)
        self._cluster.commit(group_id, {one.partition: one.after for one in changes})

    def delete(self, group_ids: Sequence[str]) -> None:
        """The first that cannot be deleted is raised, NON_EMPTY_GROUP while it has members; others may be gone."""
        for group_id in group_ids:
            with self._coordinators.connection(CoordinatorKind.GROUP, group_id) as connection:
                answer = connection.request(DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse)
                for one in answer.results:
                    check(one.error_code, f"deleting group {group_id}")

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget how far the group is in these."""
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for partition in partitions:
            asked = OffsetDeleteRequestPartition(partition_index=partition.partition)
            by_topic.setdefault(partition.topic, []).append(asked)
        topics = [OffsetDeleteRequestTopic(name=name, partitions=asked) for name, asked in by_topic.items()]
        with self._coordinators.connection(CoordinatorKind.GROUP, group_id) as connection:
            answer = connection.request(OffsetDeleteRequest(group_id=group_id, topics=topics), OffsetDeleteResponse)
            check(answer.error_code, f"deleting offsets of group {group_id}")
            for topic in answer.topics:
                for one in topic.partitions:
                    what = f"deleting the offset of group {group_id} in {topic.name}-{one.partition_index}"
                    check(one.error_code, what)

    def _described(self, group_id: str) -> "_Described":
        """A group that is not there is `Dead`, as brokers up to Kafka 3.7 say it themselves (KIP-1043).

        To those who ask for a classic group, one of the newer protocol is not there either.
        """
        with self._coordinators.connection(CoordinatorKind.GROUP, group_id) as connection:
            answer = connection.request(DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse)
            (one,) = answer.groups
            if one.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                check(one.error_code, f"looking up group {group_id}", one.error_message)
                if one.group_state != DEAD:
                    return _classic(one)
            return _described_newer(connection, group_id) or _Described(CLASSIC, DEAD, "", "", ())

    def _partitions(
        self, committed: Mapping[TopicPartition, CommittedOffset], members: Sequence[GroupMemberInfo]
    ) -> tuple[GroupPartition, ...]:
        readers = {partition: member for member in members for partition in member.partitions}
        partitions = sorted(set(committed) | set(readers))
        starts = self._offsets(partitions, EARLIEST)
        ends = self._offsets(partitions, LATEST)
        return tuple(
            GroupPartition(
                one,
                committed[one].offset if one in committed else None,
                starts.get(one),
                ends.get(one),
                committed[one].metadata if one in committed else "",
                readers.get(one),
            )
            for one in partitions
        )

    def _offsets(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """A topic may be gone to which a group has committed: its partitions are left out."""
        names = sorted({one.topic for one in partitions})
        if not names:
            return {}
        self._client.learn(self._client.metadata(names))
        found: dict[TopicPartition, int] = {}
        by_topic = {name: [one for one in partitions if one.topic == name] for name in names}
        for some in by_topic.values():
            with suppress(BrokerError):
                found |= self._cluster.list_offsets(dict.fromkeys(some, timestamp_ms))
        return found


class _Described(NamedTuple):
    type: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMemberInfo, ...]


def _classic(one: DescribedGroup) -> _Described:
    members = tuple(_member(member, one.protocol_type) for member in one.members)
    return _Described(CLASSIC, one.group_state, one.protocol_type, one.protocol_data, members)


def _described_newer(connection: Connection, group_id: str) -> _Described | None:
    """A group of the protocol of KIP-848; None if there is none, or the broker knows of none."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    try:
        (one,) = connection.request(request, ConsumerGroupDescribeResponse).groups
    except (UnsupportedApiError, UnsupportedVersionError):
        return None
    # A broker may know the request, and have the protocol turned off.
    if one.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check(one.error_code, f"looking up group {group_id}", one.error_message)
    members = tuple(
        GroupMemberInfo(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(
                TopicPartition(topic.topic_name, number)
                for topic in (member.assignment.topic_partitions if member.assignment else ())
                for number in topic.partitions
            ),
        )
        for member in one.members
    )
    return _Described(NEWER, one.group_state, PROTOCOL_TYPE, one.assignor_name, members)


def _member(one: DescribedGroupMember, protocol_type: str) -> GroupMemberInfo:
    partitions: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        # Members may use a format of their own, and are members all the same.
        with suppress(GroupProtocolError):
            partitions = decode_assignment(one.member_assignment)
    return GroupMemberInfo(one.member_id, one.group_instance_id, one.client_id, one.client_host, partitions)
