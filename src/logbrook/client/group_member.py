"""A member of a consumer group (the classic protocol): joins, heartbeats, commits offsets and leaves.

There is no thread: the caller invokes `heartbeat` between reads, which sends a request no more often than needed. When
another member joins or leaves, the group rebalances: `heartbeat` returns False, and the caller commits the offsets that
it has processed, so that other members do not read them again, and calls `join`. A member that sends no heartbeat for
longer than its session timeout is removed from the group; its next heartbeat fails.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TypeVar

from logbrook.client.client import Client
from logbrook.client.connection import Connection
from logbrook.client.coordinators import NO_GENERATION, CoordinatorKind, Coordinators
from logbrook.client.errors import BrokerError, ClientError, check_code
from logbrook.client.group_protocol import (
    PROTOCOL_TYPE,
    RANGE,
    GroupProtocolError,
    assign_by_range,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from logbrook.client.partition_requests import PartitionRequests
from logbrook.client.retry import RetryPolicy
from logbrook.model import TopicPartition
from logbrook.protocol.error_classes import REJOIN_GROUP
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from logbrook.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from logbrook.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

T = TypeVar("T")

SESSION_TIMEOUT_S = 45.0
REBALANCE_TIMEOUT_S = 60.0
HEARTBEAT_S = 3.0


class GroupMember:
    """Works through `client`, which the caller owns. Belongs to one thread, as the client does.

    Every call may raise ClientError or ProtocolError. Leaving a `with` block leaves the group.
    """

    def __init__(
        self,
        client: Client,
        group_id: str,
        topics: Sequence[str],
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        rebalance_timeout_s: float = REBALANCE_TIMEOUT_S,
        heartbeat_s: float = HEARTBEAT_S,
        retry: RetryPolicy | None = None,
    ) -> None:
        """`retry` is the policy of each request; by default it is retried for as long as the client's timeout."""
        self.group_id = group_id
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.assignment: tuple[TopicPartition, ...] = ()
        # The leader assigns partitions, and so has to rejoin when a topic gets more of them.
        self.is_leader = False
        self._client = client
        self._topics = tuple(topics)
        self._coordinators = Coordinators(client)
        self._session_timeout_s = session_timeout_s
        self._rebalance_timeout_s = rebalance_timeout_s
        self._heartbeat_s = heartbeat_s
        self._next_heartbeat_s = 0.0
        self._retry = retry or RetryPolicy(timeout_s=client.timeout_s)

    def __enter__(self) -> "GroupMember":
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Change the topics. The next `join` announces them to the group."""
        self._topics = tuple(topics)

    def join(self) -> tuple[TopicPartition, ...]:
        """Join the next generation, and return the partitions assigned to this member."""
        # The coordinator paces the members, which wait for each other in JoinGroup; no backoff is needed.
        rejoin = RetryPolicy(timeout_s=self._join_timeout_s, backoff_s=0.0, retriable=_must_rejoin)
        self.assignment = rejoin.run(lambda: self._retry.run(self._join_once))
        self._next_heartbeat_s = monotonic() + self._heartbeat_s
        return self.assignment

    def heartbeat(self) -> bool:
        """Send a heartbeat if one is due. Return False if the member has to `join` again."""
        now_s = monotonic()
        if now_s < self._next_heartbeat_s:
            return True
        self._next_heartbeat_s = now_s + self._heartbeat_s
        request = HeartbeatRequest(group_id=self.group_id, generation_id=self.generation_id, member_id=self.member_id)

        def send(connection: Connection) -> None:
            response = connection.request(request, HeartbeatResponse)
            check_code(response.error_code, f"staying in group {self.group_id}")

        try:
            self._retry.run(lambda: self._with_coordinator(send))
        except BrokerError as error:
            if error.code not in REJOIN_GROUP:
                raise
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._reset()
            return False
        return True

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit offsets. Return False if the group has rebalanced without this member and refuses them."""
        if not offsets:
            return True

        def commit() -> None:
            self._coordinators.commit(
                self.group_id, offsets, member_id=self.member_id, generation_id=self.generation_id
            )

        try:
            self._retry.run(commit)
        except BrokerError as error:
            if error.code in REJOIN_GROUP:
                return False
            raise
        return True

    def leave(self) -> None:
        """Leave the group, so that it rebalances at once. On an error the session timeout removes the member."""
        if not self.member_id:
            return
        member = MemberIdentity(member_id=self.member_id, reason="the reader is done")
        request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id, members=[member])
        self._reset()
        with suppress(ClientError):
            self._with_coordinator(lambda connection: connection.request(request, LeaveGroupResponse))

    @property
    def _join_timeout_s(self) -> float:
        """The coordinator may take the rebalance timeout to answer JoinGroup and SyncGroup."""
        return self._rebalance_timeout_s + self._client.timeout_s

    def _join_once(self) -> tuple[TopicPartition, ...]:
        try:
            joined = self._join_group()
            return self._sync_group(joined)
        except BrokerError as error:
            if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            raise

    def _join_group(self) -> JoinGroupResponse:
        joined = self._with_coordinator(self._request_join)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            # KIP-394: a new member is given an id, and joins with it.
            self.member_id = joined.member_id
            joined = self._with_coordinator(self._request_join)
        check_code(joined.error_code, f"joining group {self.group_id}")
        self.member_id, self.generation_id = joined.member_id, joined.generation_id
        self.is_leader = joined.leader == joined.member_id
        return joined

    def _request_join(self, connection: Connection) -> JoinGroupResponse:
        protocol = JoinGroupRequestProtocol(name=RANGE, metadata=encode_subscription(self._topics))
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=round(self._session_timeout_s * 1000),
            rebalance_timeout_ms=round(self._rebalance_timeout_s * 1000),
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        response = connection.request(request, JoinGroupResponse, timeout_s=self._join_timeout_s)
        if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            check_code(response.error_code, f"joining group {self.group_id}")
        return response

    def _sync_group(self, joined: JoinGroupResponse) -> tuple[TopicPartition, ...]:
        assignments: dict[str, list[TopicPartition]] = {}
        if self.is_leader and not joined.skip_assignment:
            assignments = self._assign(joined)
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
                for member, partitions in assignments.items()
            ],
        )

        def send(connection: Connection) -> SyncGroupResponse:
            response = connection.request(request, SyncGroupResponse, timeout_s=self._join_timeout_s)
            check_code(response.error_code, f"joining group {self.group_id}")
            return response

        return decode_assignment(self._with_coordinator(send).assignment)

    def _assign(self, joined: JoinGroupResponse) -> dict[str, list[TopicPartition]]:
        subscriptions: dict[str, list[str]] = {}
        for member in joined.members:
            try:
                subscriptions[member.member_id] = decode_subscription(member.metadata)
            except GroupProtocolError:
                # A member with another metadata format is assigned nothing.
                subscriptions[member.member_id] = []
        names = {topic for topics in subscriptions.values() for topic in topics}
        topics = PartitionRequests(self._client).topics(sorted(names))
        return assign_by_range(subscriptions, {name: topic.partitions for name, topic in topics.items()})

    def _with_coordinator(self, send: Callable[[Connection], T]) -> T:
        with self._coordinators.connection(CoordinatorKind.GROUP, self.group_id) as connection:
            return send(connection)

    def _reset(self) -> None:
        self.member_id, self.generation_id, self.assignment = "", NO_GENERATION, ()


def _must_rejoin(error: ClientError) -> bool:
    return isinstance(error, BrokerError) and error.code in REJOIN_GROUP
