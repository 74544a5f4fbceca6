"""A member of a consumer group: it joins, is given partitions, says now and then that it is still there, says how far
it is, and leaves.

There is no thread: whoever reads calls `heartbeat` between reads, which asks the coordinator no more often than needed.
A new member makes the others join again; `heartbeat` then says so, and what was read before has to be committed before
`join` is called, or somebody reads it again. If a member is silent for longer than its session, the group goes on
without it, which it learns by the next heartbeat.
"""

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TypeVar

from logbrook.client.client import Client
from logbrook.client.cluster import Cluster
from logbrook.client.connection import Connection
from logbrook.client.coordinators import CoordinatorKind, Coordinators, check
from logbrook.client.errors import BrokerError, ClientError
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
from logbrook.client.retrying import persist
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from logbrook.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

T = TypeVar("T")

SESSION_TIMEOUT_S = 45.0
REBALANCE_TIMEOUT_S = 60.0
HEARTBEAT_S = 3.0

# The last in which topics go by their names.
_COMMIT_VERSION_MAX = 9
_NO_GENERATION = -1
_JOIN_AGAIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})


class GroupMember:
    """Works through `client`, which stays the caller's. Belongs to one thread, as the client does.

    Every call may raise ClientError or ProtocolError. Leaving `with` leaves the group.
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
    ) -> None:
        self.group_id = group_id
        self.member_id = ""
        self.generation_id = _NO_GENERATION
        self.assignment: tuple[TopicPartition, ...] = ()
        # Whether it is this member that says who reads what, and so has to join again when there is more to read.
        self.is_leader = False
        self._client = client
        self._topics = tuple(topics)
        self._coordinators = Coordinators(client)
        self._session_timeout_s = session_timeout_s
        self._rebalance_timeout_s = rebalance_timeout_s
        self._heartbeat_s = heartbeat_s
        self._next_heartbeat_s = 0.0

    def __enter__(self) -> "GroupMember":
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def join(self) -> tuple[TopicPartition, ...]:
        """Become a member of the next generation. Returns the partitions that are this one's to read."""
        give_up_at_s = monotonic() + self._client.timeout_s + self._rebalance_timeout_s
        while True:
            try:
                self.assignment = self._persist(self._join_once)
            except BrokerError as error:
                if error.code not in _JOIN_AGAIN or monotonic() > give_up_at_s:
                    raise
                if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                continue
            self._next_heartbeat_s = monotonic() + self._heartbeat_s
            return self.assignment

    def heartbeat(self) -> bool:
        """Whether the member may go on as it is; if not, it is time to `join` again."""
        now_s = monotonic()
        if now_s < self._next_heartbeat_s:
            return True
        self._next_heartbeat_s = now_s + self._heartbeat_s
        request = HeartbeatRequest(group_id=self.group_id, generation_id=self.generation_id, member_id=self.member_id)

        def ask(connection: Connection) -> None:
            answer = connection.request(request, HeartbeatResponse)
            check(answer.error_code, f"staying in group {self.group_id}")

        try:
            self._persist(lambda: self._ask(ask))
        except BrokerError as error:
            if error.code not in _JOIN_AGAIN:
                raise
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._forget()
            return False
        return True

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Say how far this member is. Whether the group takes its word; it does not if it went on without it."""
        if not offsets:
            return True
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for one, offset in offsets.items():
            asked = OffsetCommitRequestPartition(
                partition_index=one.partition, committed_offset=offset, committed_metadata=""
            )
            by_topic.setdefault(one.topic, []).append(asked)
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=asked) for name, asked in by_topic.items()],
        )
        try:
            self._persist(lambda: self._ask(lambda connection: self._commit_once(connection, request)))
        except BrokerError as error:
            if error.code in _JOIN_AGAIN:
                return False
            raise
        return True

    def leave(self) -> None:
        """Let the others go on at once. Who cannot say so leaves when the session ends."""
        if not self.member_id:
            return
        member = MemberIdentity(member_id=self.member_id, reason="the reader is done")
        request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id, members=[member])
        self._forget()
        try:
            self._ask(lambda connection: connection.request(request, LeaveGroupResponse))
        except ClientError:
            return

    def _commit_once(self, connection: Connection, request: OffsetCommitRequest) -> None:
        version = min(connection.version_of(OffsetCommitRequest), _COMMIT_VERSION_MAX)
        for topic in connection.request(request, OffsetCommitResponse, version).topics:
            for one in topic.partitions:
                check(one.error_code, f"committing for group {self.group_id} to {topic.name}-{one.partition_index}")

    def _join_once(self) -> tuple[TopicPartition, ...]:
        joined = self._ask(self._request_join)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            # KIP-394: whoever is given an id has shown that it reads its answers.
            self.member_id = joined.member_id
            joined = self._ask(self._request_join)
            check(joined.error_code, f"joining group {self.group_id}")
        self.member_id, self.generation_id = joined.member_id, joined.generation_id
        self.is_leader = joined.leader == joined.member_id
        assignments: dict[str, list[TopicPartition]] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
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
        wait_s = self._rebalance_timeout_s + self._client.timeout_s

        def ask(connection: Connection) -> SyncGroupResponse:
            answer = connection.request(request, SyncGroupResponse, timeout_s=wait_s)
            check(answer.error_code, f"joining group {self.group_id}")
            return answer

        return decode_assignment(self._ask(ask).assignment)

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
        # The coordinator answers when all members have joined, or had their time to.
        wait_s = self._rebalance_timeout_s + self._client.timeout_s
        answer = connection.request(request, JoinGroupResponse, timeout_s=wait_s)
        if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            check(answer.error_code, f"joining group {self.group_id}")
        return answer

    def _assign(self, joined: JoinGroupResponse) -> dict[str, list[TopicPartition]]:
        subscriptions: dict[str, list[str]] = {}
        for member in joined.members:
            try:
                subscriptions[member.member_id] = decode_subscription(member.metadata)
            except GroupProtocolError:
                # It joined with a format of its own, and gets nothing that it could not understand.
                subscriptions[member.member_id] = []
        topics = {topic for wanted in subscriptions.values() for topic in wanted}
        found = Cluster(self._client).topics(sorted(topics))
        return assign_by_range(subscriptions, {name: info.partitions for name, info in found.items()})

    def _ask(self, ask: Callable[[Connection], T]) -> T:
        with self._coordinators.connection(CoordinatorKind.GROUP, self.group_id) as connection:
            return ask(connection)

    def _persist(self, ask: Callable[[], T]) -> T:
        return persist(ask, self._client.timeout_s)

    def _forget(self) -> None:
        self.member_id, self.generation_id, self.assignment = "", _NO_GENERATION, ()
