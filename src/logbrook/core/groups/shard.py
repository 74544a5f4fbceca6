"""The group coordinator of one partition of `__consumer_offsets`: Kafka's classic group protocol as a state machine.

It has no clock, disk or socket. A request returns the records to append and the replies to send (`core.coordinator` has
the rules for the caller); time is an argument, and `next_deadline_ms` is when to call `tick`. Offsets and group
metadata change in `replay` and `replay_marker` only. Membership is soft state and changes with the requests.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from logbrook.config import GroupConfig
from logbrook.core.coordinator import CoordinatorNotAvailableError, ProducerIdentity
from logbrook.core.groups.errors import (
    GroupError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidGroupIdError,
    RebalanceInProgressError,
    TooManyGroupsError,
    UnknownMemberIdError,
)
from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.membership import check_join, join_group, leave_group, sync_group
from logbrook.core.groups.messages import (
    NO_OFFSET,
    CommitRequest,
    FetchedOffset,
    GroupDescription,
    GroupListing,
    GroupOutcome,
    GroupWrite,
    JoinRequest,
    LeavingMember,
    MemberLeft,
    OffsetDecision,
    SyncRequest,
)
from logbrook.core.groups.offset_rules import (
    RetentionSweep,
    commit_offsets,
    delete_group,
    delete_offsets,
    delete_topic_offsets,
    expire_offsets,
)
from logbrook.core.groups.operation import GroupOperation, PendingReplies
from logbrook.core.groups.rebalance import expire, prepare_rebalance
from logbrook.core.groups.records import GroupKey, OffsetKey, decode_group_metadata, decode_key, decode_offset_value
from logbrook.core.timers import Timers
from logbrook.model import TopicPartition
from logbrook.ports import Random
from logbrook.records.fields import STRING_BYTES_MAX


class GroupCoordinatorShard:
    """The groups of one shard.

    `count_groups` returns the number of groups of all shards, for the limit `groups_max`, and `count_bytes` the sum of
    their `state_bytes`, for the limit `state_bytes_max`.

    `reply_to` is a token of the caller, hashable, not None, and unique for each request.
    """

    def __init__(
        self,
        config: GroupConfig,
        random: Random,
        count_groups: Callable[[], int] | None = None,
        count_bytes: Callable[[], int] | None = None,
    ) -> None:
        self._config = config
        # Memory of all groups, about.
        self.state_bytes = 0
        self._random = random
        self._count_groups = count_groups or self.__len__
        self._count_bytes = count_bytes or (lambda: self.state_bytes)
        self._is_loading = True
        self._groups: dict[str, Group] = {}
        # By producer id, the groups in which it may have pending offsets.
        self._groups_in_transaction: dict[int, set[str]] = {}
        self._pending_replies: PendingReplies = {}
        self._timers = Timers()
        self._sweep = RetentionSweep()

    def __len__(self) -> int:
        """The number of groups."""
        return len(self._groups)

    # Requests that may be answered later

    def join(self, request: JoinRequest, reply_to: object, now_ms: int) -> GroupOutcome:
        operation = self._operation(now_ms)
        group = self._groups.get(request.group_id)
        try:
            check_group_id(request.group_id)
            check_join(request, self._config)
            if group is None:
                if request.member_id:
                    raise UnknownMemberIdError(request.group_id, request.member_id)
                group = self._create(request.group_id)
            join_group(group, request, reply_to, self._random, operation)
        except GroupError as error:
            operation.outcome.reply(reply_to, error)
        return self._finish(group, operation)

    def sync(self, request: SyncRequest, reply_to: object, now_ms: int) -> GroupOutcome:
        operation = self._operation(now_ms)
        group = self._groups.get(request.group_id)
        try:
            check_group_id(request.group_id)
            if group is None:
                raise UnknownMemberIdError(request.group_id, request.member_id)
            sync_group(group, request, reply_to, operation)
        except GroupError as error:
            operation.outcome.reply(reply_to, error)
        return self._finish(group, operation)

    def disconnect(self, reply_to: object, now_ms: int) -> None:
        """Drop a pending request whose client has disconnected. Unknown tokens are ignored.

        The member no longer counts as joined or synced, and must send another request within its session timeout.
        """
        pending = self._pending_replies.pop(reply_to, None)
        if pending is None:
            return
        group, member = pending
        if member.join_reply_to == reply_to:
            member.join_reply_to = None
        else:
            member.sync_reply_to = None
        member.touch(now_ms)
        self._timers.queue(group.group_id, group.next_deadline_ms())

    # Requests that are decided at once

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, group_instance_id: str | None, now_ms: int
    ) -> None:
        """Restart the member's session timeout. Raises a GroupError, RebalanceInProgressError during a rebalance."""
        check_group_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownMemberIdError(group_id, member_id)
        member = group.current_member(member_id, group_instance_id)
        if generation != group.generation:
            raise IllegalGenerationError(group_id, generation, group.generation)
        member.touch(now_ms)
        self._timers.queue(group_id, member.session_deadline_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(group_id)

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], now_ms: int
    ) -> tuple[list[MemberLeft], GroupOutcome]:
        """Remove members, each with its own result. Raises InvalidGroupIdError."""
        check_group_id(group_id)
        operation = self._operation(now_ms)
        group = self._groups.get(group_id)
        results: list[MemberLeft] = []
        for leaving in members:
            error: GroupError | None = None
            try:
                leave_group(group, group_id, leaving, operation)
            except GroupError as refused:
                error = refused
            results.append(MemberLeft(leaving.member_id, leaving.group_instance_id, error))
        return results, self._finish(group, operation)

    def commit_offsets(self, request: CommitRequest, now_ms: int) -> OffsetDecision:
        """Return the records of the offsets. Raises the GroupError that rejects the whole request."""
        check_group_id(request.group_id, may_be_empty=True)
        group = self._groups.get(request.group_id)
        if group is None:
            if request.generation >= 0:
                raise IllegalGenerationError(request.group_id, request.generation, generation_current=-1)
            group = self._create(request.group_id)
        decision = commit_offsets(group, request, self._config, self._free_bytes(), now_ms)
        if not self._remove_if_vacant(group) and request.member_id in group.members:
            self._timers.queue(group.group_id, group.members[request.member_id].session_deadline_ms)
        return decision

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return the offsets of these partitions, `NO_OFFSET` for none; of all partitions with an offset if None."""
        check_group_id(group_id, may_be_empty=True)
        group = self._groups.get(group_id)
        if group is None:
            return dict.fromkeys(partitions or (), NO_OFFSET)
        return group.offsets.fetch(partitions)

    def unstable_partitions(self, group_id: str) -> frozenset[TopicPartition]:
        """Return the partitions whose offset an open transaction may change (KIP-447)."""
        check_group_id(group_id, may_be_empty=True)
        group = self._groups.get(group_id)
        return frozenset() if group is None else group.offsets.unstable

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> OffsetDecision:
        """Return the tombstones of these offsets (KIP-496). Raises the GroupError that rejects the whole request."""
        check_group_id(group_id)
        return delete_offsets(self._existing(group_id), partitions)

    def delete_group(self, group_id: str) -> GroupWrite:
        """Return the tombstones of the group. Raises GroupIdNotFoundError or NonEmptyGroupError."""
        check_group_id(group_id, may_be_empty=True)
        return delete_group(self._existing(group_id))

    def delete_topic_offsets(self, topics: Collection[str]) -> list[GroupWrite]:
        """Return the tombstones of all offsets of deleted topics, so that new topics of these names have none."""
        writes = [delete_topic_offsets(group, topics) for group in self._groups.values()]
        return [write for write in writes if write.records]

    def list_groups(self, states: Collection[str] = ()) -> list[GroupListing]:
        """Return the groups in these states (case-insensitive); all groups if there are none."""
        wanted = {state.lower() for state in states}
        return [
            GroupListing(group.group_id, group.protocol_type or "", group.state)
            for group in self._groups.values()
            if not wanted or group.state.lower() in wanted
        ]

    def describe(self, group_id: str) -> GroupDescription:
        """Describe a group; one that does not exist is `Dead`.

        Protocol, metadata and assignments are shown for a Stable group only: otherwise they are of no one generation.
        """
        check_group_id(group_id, may_be_empty=True)
        group = self._groups.get(group_id)
        if group is None:
            return GroupDescription(group_id, GroupState.DEAD, protocol_type="", protocol_name="", members=())
        is_stable = group.state is GroupState.STABLE
        members = tuple(member.to_metadata(group.protocol_name) for member in group.members.values())
        if not is_stable:
            members = tuple(replace(member, subscription=b"", assignment=b"") for member in members)
        protocol_name = group.protocol_name if is_stable else None
        return GroupDescription(group_id, group.state, group.protocol_type or "", protocol_name or "", members)

    # Timers

    def begin_grace(self, until_ms: int) -> None:
        """Let no member time out before `until_ms`."""
        for group in self._groups.values():
            group.extend_deadlines(until_ms)
            self._timers.queue(group.group_id, group.next_deadline_ms())

    def next_deadline_ms(self) -> int | None:
        """Return the earliest time at which `tick` may have work."""
        times_ms = [time_ms for time_ms in (self._timers.next_ms(), self._sweep.next_ms) if time_ms is not None]
        return min(times_ms, default=None)

    def tick(self, now_ms: int) -> GroupOutcome:
        """Process the timers that are due."""
        outcome = GroupOutcome()
        for group_id in self._timers.take_due(now_ms):
            group = self._groups[group_id]
            operation = self._operation(now_ms)
            expire(group, operation)
            outcome.extend(self._finish(group, operation))
        for group_id in self._sweep.take_due(self._groups, now_ms):
            swept = self._groups.get(group_id)
            if swept is not None:
                write = expire_offsets(swept, self._config, now_ms)
                outcome.writes += [] if write is None else [write]
        return outcome

    # Replay

    def replay(self, key: bytes, value: bytes | None, producer: ProducerIdentity | None = None) -> None:
        """Apply an appended record. An offset that is part of a transaction is pending until its marker.

        Raises CorruptCoordinatorRecordError, before any change.
        """
        decoded_key = decode_key(key)
        if decoded_key is None:
            return
        if isinstance(decoded_key, GroupKey):
            metadata = None if value is None else decode_group_metadata(value)
            group = self._groups.setdefault(decoded_key.group_id, Group(decoded_key.group_id))
            group.written_metadata = metadata
            group.written_bytes = len(value or b"")
        else:
            group = self._replay_offset(decoded_key, value, producer)
        if self._is_loading or not self._remove_if_vacant(group):
            self._count(group)

    def _replay_offset(self, key: OffsetKey, value: bytes | None, producer: ProducerIdentity | None) -> Group:
        offset = None if value is None else decode_offset_value(value)
        group = self._groups.setdefault(key.group_id, Group(key.group_id))
        if producer is None or offset is None:
            # As in Kafka, a tombstone takes effect at once.
            group.offsets.replay(key.partition, offset)
        else:
            group.offsets.replay_pending(producer.producer_id, key.partition, offset)
            self._groups_in_transaction.setdefault(producer.producer_id, set()).add(key.group_id)
        return group

    def replay_marker(self, producer: ProducerIdentity, *, is_commit: bool) -> None:
        """Apply a transaction marker: the producer's pending offsets are committed, or dropped.

        A commit that is later in the log than a pending offset is not undone by it.
        """
        for group_id in sorted(self._groups_in_transaction.pop(producer.producer_id, ())):
            group = self._groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer.producer_id, is_commit=is_commit)
                if self._is_loading or not self._remove_if_vacant(group):
                    self._count(group)

    def append_refused(self, write: GroupWrite, now_ms: int) -> GroupOutcome:
        """Handle a write that could not be appended: its replies fail.

        A Stable group whose assignment it was rebalances; otherwise a restart would restore another generation.
        """
        operation = self._operation(now_ms)
        for reply in write.replies:
            operation.outcome.reply(reply.reply_to, CoordinatorNotAvailableError(write.group_id))
        group = self._groups.get(write.group_id)
        if group is None:
            return operation.outcome
        has_assignment = any(
            value is not None and isinstance(decode_key(key), GroupKey) for key, value in write.records
        )
        if has_assignment and group.state is GroupState.STABLE:
            prepare_rebalance(group, operation)
        return self._finish(group, operation)

    def finish_loading(self, now_ms: int) -> None:
        """Open the shard for requests. Restored members get full session timeouts."""
        assert self._is_loading
        self._is_loading = False
        for group in list(self._groups.values()):
            group.restore(now_ms)
            operation = self._operation(now_ms)
            if len(group.members) > self._config.members_max:
                prepare_rebalance(group, operation)
            outcome = self._finish(group, operation)
            assert not outcome.writes, "the members that have to join again are not removed yet"
            assert not outcome.replies, "no request can be pending yet"
        self._sweep.start(now_ms)

    def validate(self) -> None:
        """Assert the invariants that hold when all writes so far are replayed or refused. For tests."""
        pending: dict[object, str] = {}
        for group_id, group in self._groups.items():
            assert group_id == group.group_id
            if self._is_loading:
                continue
            group.validate()
            assert not group.is_vacant
            assert group.counted_bytes == group.size
            deadline_ms = group.next_deadline_ms()
            next_ms = self.next_deadline_ms()
            assert deadline_ms is None or (next_ms is not None and next_ms <= deadline_ms)
            for member in group.members.values():
                for reply_to in (member.join_reply_to, member.sync_reply_to):
                    if reply_to is not None:
                        pending[reply_to] = member.member_id
                        assert deadline_ms is not None, "the request could wait for ever"
        assert self.state_bytes == sum(group.counted_bytes for group in self._groups.values())
        assert pending == {reply_to: member.member_id for reply_to, (_, member) in self._pending_replies.items()}

    def _operation(self, now_ms: int) -> GroupOperation:
        return GroupOperation(self._config, now_ms, self._pending_replies, self._free_bytes)

    def _free_bytes(self) -> int:
        return self._config.state_bytes_max - self._count_bytes()

    def _count(self, group: Group) -> None:
        size = group.size
        self.state_bytes += size - group.counted_bytes
        group.counted_bytes = size

    def _finish(self, group: Group | None, operation: GroupOperation) -> GroupOutcome:
        """Update the timers of the one group that the operation changed, or remove it if it holds no state.

        A group whose write is not replayed yet stays, also if nothing of it was written before: the record has its
        generation, from which the next one continues. It is removed when the write is refused.
        """
        if group is not None and (operation.outcome.writes or not self._remove_if_vacant(group)):
            self._timers.queue(group.group_id, group.next_deadline_ms())
            self._count(group)
        return operation.outcome

    def _remove_if_vacant(self, group: Group) -> bool:
        if not group.is_vacant:
            return False
        del self._groups[group.group_id]
        self.state_bytes -= group.counted_bytes
        group.counted_bytes = 0
        self._timers.forget(group.group_id)
        return True

    def _create(self, group_id: str) -> Group:
        if self._count_groups() >= self._config.groups_max:
            raise TooManyGroupsError(group_id, "groups_max", self._config.groups_max)
        group = Group(group_id)
        if group.size > self._free_bytes():
            raise TooManyGroupsError(group_id, "state_bytes_max", self._config.state_bytes_max)
        self._groups[group_id] = group
        return group

    def _existing(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise GroupIdNotFoundError(group_id)
        return group


def check_group_id(group_id: str, *, may_be_empty: bool = False) -> None:
    """Raises InvalidGroupIdError. As in Kafka, offsets may be committed under the empty group id."""
    if (not group_id and not may_be_empty) or len(group_id.encode()) > STRING_BYTES_MAX:
        raise InvalidGroupIdError(group_id)
