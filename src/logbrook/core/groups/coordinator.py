"""The group coordinator: Kafka's classic group protocol as a state machine without a clock, a disk or a socket.

A request returns what is to be written and answered (`results` has the rules for whoever does that); time is an
argument, and `next_deadline_ms` says when to call `tick`. Offsets and group metadata change in `replay` alone, which
is fed the records of the log at start and, from then on, each record after it has become durable. What is committed
in transactions comes through `replay_transactional`, and counts when `end_transaction` says so.

Until `finish_loading` requests are refused as retriable, with two exceptions that are Kafka's: heartbeats are taken
on trust and a sync is sent to join again, because old clients take a "loading" there for a fatal error.
"""

from collections.abc import Collection, Sequence

from logbrook.config.groups import GroupConfig
from logbrook.core.fields import STRING_BYTES_MAX
from logbrook.core.groups.commits import commit_offsets
from logbrook.core.groups.deletion import delete_group, delete_offsets, delete_topic_offsets
from logbrook.core.groups.description import describe_group
from logbrook.core.groups.errors import (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    GroupError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidGroupIdError,
    RebalanceInProgressError,
    TooManyGroupsError,
    UnknownMemberIdError,
)
from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.joining import check_join, join_group
from logbrook.core.groups.leaving import leave_group
from logbrook.core.groups.rebalance import expire, prepare_rebalance
from logbrook.core.groups.records import GroupKey, OffsetKey, decode_group_metadata, decode_key, decode_offset_value
from logbrook.core.groups.requests import CommitRequest, JoinRequest, LeavingMember, SyncRequest
from logbrook.core.groups.results import (
    NO_OFFSET,
    CommitDecision,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    MemberLeft,
    OffsetDeletion,
    Outcome,
    Write,
)
from logbrook.core.groups.retention import RetentionSweep, expire_offsets
from logbrook.core.groups.syncing import sync_group
from logbrook.core.groups.turn import Turn, Waiting
from logbrook.core.timers import Timers
from logbrook.model import TopicPartition
from logbrook.ports import Random


class GroupCoordinator:
    """All groups of this broker.

    `reply_to` is a token of the caller's, hashable, not None, and another one for each request.
    """

    def __init__(self, config: GroupConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._loading = True
        self._groups: dict[str, Group] = {}
        # By producer, the groups in which it may have offsets that are pending.
        self._groups_in_transaction: dict[int, set[str]] = {}
        self._waiting: Waiting = {}
        self._timers = Timers()
        self._sweep = RetentionSweep()

    # Requests that may be answered later

    def join(self, request: JoinRequest, reply_to: object, now_ms: int) -> Outcome:
        turn = self._turn(now_ms)
        group = self._groups.get(request.group_id)
        try:
            self._check_ready(request.group_id)
            check_join(request, self._config)
            if group is None:
                if request.member_id:
                    raise UnknownMemberIdError(request.group_id, request.member_id)
                group = self._create(request.group_id)
            join_group(group, request, reply_to, self._random, turn)
        except GroupError as error:
            turn.outcome.reply(reply_to, error)
        return self._settle(group, turn)

    def sync(self, request: SyncRequest, reply_to: object, now_ms: int) -> Outcome:
        turn = self._turn(now_ms)
        group = self._groups.get(request.group_id)
        try:
            if self._loading:
                raise RebalanceInProgressError(request.group_id)
            self._check_ready(request.group_id)
            if group is None:
                raise UnknownMemberIdError(request.group_id, request.member_id)
            sync_group(group, request, reply_to, turn)
        except GroupError as error:
            turn.outcome.reply(reply_to, error)
        return self._settle(group, turn)

    def disconnect(self, reply_to: object, now_ms: int) -> None:
        """Nobody waits for this answer any more. The member is no longer counted as joined or synced, and has one
        session to come back. A token that is not waiting, or whose answer is held for a write, is ignored."""
        waiting = self._waiting.pop(reply_to, None)
        if waiting is None:
            return
        group, member = waiting
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
        """A member is alive. Raises the GroupError that tells it what else to do."""
        if self._loading:
            return
        self._check_ready(group_id)
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

    def leave(self, group_id: str, members: Sequence[LeavingMember], now_ms: int) -> tuple[list[MemberLeft], Outcome]:
        """Members go, each with its own result. Raises GroupError when nobody can be looked up."""
        self._check_ready(group_id)
        turn = self._turn(now_ms)
        group = self._groups.get(group_id)
        left: list[MemberLeft] = []
        for each in members:
            error: GroupError | None = None
            try:
                leave_group(group, group_id, each, turn)
            except GroupError as refused:
                error = refused
            left.append(MemberLeft(each.member_id, each.group_instance_id, error))
        return left, self._settle(group, turn)

    def commit_offsets(self, request: CommitRequest, now_ms: int) -> CommitDecision:
        """What to write. The offsets are visible, and may be acknowledged, once that is durable and replayed.
        Raises the GroupError that refuses the whole request."""
        self._check_ready(request.group_id, may_be_empty=True)
        group = self._groups.get(request.group_id)
        if group is None:
            if request.generation >= 0:
                raise IllegalGenerationError(request.group_id, request.generation, generation_current=-1)
            group = self._create(request.group_id)
        decision = commit_offsets(group, request, self._config, now_ms)
        if not self._forget_if_vacant(group) and request.member_id in group.members:
            self._timers.queue(group.group_id, group.members[request.member_id].session_deadline_ms)
        return decision

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The durable offsets of these partitions, `NO_OFFSET` for none; all that there are, for None."""
        self._check_ready(group_id, may_be_empty=True)
        group = self._groups.get(group_id)
        if group is None:
            return dict.fromkeys(partitions or (), NO_OFFSET)
        return group.offsets.fetch(partitions)

    def unstable(self, group_id: str) -> frozenset[TopicPartition]:
        """The partitions whose offset a transaction that is still open may change (KIP-447)."""
        self._check_ready(group_id, may_be_empty=True)
        group = self._groups.get(group_id)
        return frozenset() if group is None else group.offsets.unstable

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> OffsetDeletion:
        """What to write so that these offsets are gone (KIP-496). Raises GroupError for the whole request."""
        return delete_offsets(self._existing(group_id), partitions)

    def delete_group(self, group_id: str) -> Write:
        """What to write so that the group is gone. Raises GroupIdNotFoundError or NonEmptyGroupError."""
        return delete_group(self._existing(group_id, may_be_empty=True))

    def delete_topic_offsets(self, topics: Collection[str]) -> list[Write]:
        """What to write when topics are deleted, so that their offsets do not greet topics of the same names."""
        self._check_loaded()
        writes = [delete_topic_offsets(group, topics) for group in self._groups.values()]
        return [write for write in writes if write.records]

    def list_groups(self, states: Collection[str] = ()) -> list[GroupListing]:
        """The groups in one of these states, in any letter case; all groups if none is named."""
        self._check_loaded()
        wanted = {state.lower() for state in states}
        return [
            GroupListing(group.group_id, group.protocol_type or "", group.state)
            for group in self._groups.values()
            if not wanted or group.state.lower() in wanted
        ]

    def describe(self, group_id: str) -> GroupDescription:
        """What there is to know about a group. One that does not exist is `Dead`."""
        self._check_ready(group_id, may_be_empty=True)
        return describe_group(group_id, self._groups.get(group_id))

    # Time

    def next_deadline_ms(self) -> int | None:
        """When to call `tick`. Something may be due then; nothing is due before."""
        times_ms = [each for each in (self._timers.next_ms(), self._sweep.next_ms()) if each is not None]
        return min(times_ms, default=None)

    def tick(self, now_ms: int) -> Outcome:
        """Do what is due."""
        turn = self._turn(now_ms)
        if self._loading:
            return turn.outcome
        for group_id in self._timers.take_due(now_ms):
            group = self._groups[group_id]
            expire(group, turn)
            self._settle(group, turn)
        for group_id in self._sweep.take_due(self._groups, now_ms):
            swept = self._groups.get(group_id)
            if swept is not None:
                write = expire_offsets(swept, self._config, now_ms)
                turn.outcome.writes += [] if write is None else [write]
                self._forget_if_vacant(swept)
        return turn.outcome

    # Durable state

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take in a record that is durable. Kinds of records that are not ours are passed over.
        Raises CorruptGroupRecordError, before anything has changed."""
        what = decode_key(key)
        if what is None:
            return
        if isinstance(what, GroupKey):
            metadata = None if value is None else decode_group_metadata(value)
            group = self._groups.setdefault(what.group_id, Group(what.group_id))
            group.durable_metadata = metadata
            group.metadata_in_flight = max(group.metadata_in_flight - 1, 0)
        else:
            offset = None if value is None else decode_offset_value(value)
            group = self._groups.setdefault(what.group_id, Group(what.group_id))
            group.offsets.replay(what.partition, offset)
        if not self._loading:
            self._forget_if_vacant(group)

    def replay_transactional(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Take in a record that is durable, but part of a transaction that has not ended: the offset is pending.
        Raises CorruptGroupRecordError, before anything has changed."""
        what = decode_key(key)
        if not isinstance(what, OffsetKey) or value is None:
            # Nothing but offsets is committed in transactions. A tombstone counts at once, as it does in Kafka.
            self.replay(key, value)
            return
        offset = decode_offset_value(value)
        group = self._groups.setdefault(what.group_id, Group(what.group_id))
        group.offsets.replay_pending(producer_id, what.partition, offset)
        self._groups_in_transaction.setdefault(producer_id, set()).add(what.group_id)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker of a transaction is durable: its pending offsets become the groups' offsets, or are dropped. A
        commit that stands behind a pending one in the log, plain or of another transaction, is not undone by it."""
        for group_id in sorted(self._groups_in_transaction.pop(producer_id, ())):
            group = self._groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, is_commit=is_commit)
                if not self._loading:
                    self._forget_if_vacant(group)

    def write_failed(self, write: Write, now_ms: int) -> Outcome:
        """A write was refused, and is not in the log. Those who wait for it may try again; a group whose assignment
        it was must rebalance, or a restart would bring back another generation than the one it is in."""
        turn = self._turn(now_ms)
        for reply in write.replies:
            turn.outcome.reply(reply.reply_to, CoordinatorNotAvailableError(write.group_id))
        group = self._groups.get(write.group_id)
        if group is None:
            return turn.outcome
        for key, value in write.records:
            what = decode_key(key)
            if isinstance(what, GroupKey):
                group.metadata_in_flight = max(group.metadata_in_flight - 1, 0)
                generation = None if value is None else decode_group_metadata(value).generation
                if group.state is GroupState.STABLE and generation == group.generation:
                    prepare_rebalance(group, turn)
            elif what is not None and value is not None:
                group.offsets.settle(what.partition, decode_offset_value(value))
        return self._settle(group, turn)

    def finish_loading(self, now_ms: int) -> None:
        """The log has been replayed: open for requests. Members that were restored get full sessions."""
        assert self._loading
        self._loading = False
        turn = self._turn(now_ms)
        for group in list(self._groups.values()):
            group.restore(now_ms)
            if len(group.members) > self._config.members_max:
                prepare_rebalance(group, turn)
            self._settle(group, turn)
        self._sweep.start(now_ms)
        assert not turn.outcome.replies, "nobody can be waiting yet"

    def validate(self) -> None:
        """The rules that hold between any two calls, checked by tests."""
        waiting: dict[object, str] = {}
        for group_id, group in self._groups.items():
            assert group_id == group.group_id
            if self._loading:
                continue
            group.validate()
            assert not group.is_vacant
            deadline_ms = group.next_deadline_ms()
            next_ms = self.next_deadline_ms()
            assert deadline_ms is None or (next_ms is not None and next_ms <= deadline_ms)
            for member in group.members.values():
                for reply_to in (member.join_reply_to, member.sync_reply_to):
                    if reply_to is not None:
                        waiting[reply_to] = member.member_id
                        assert deadline_ms is not None, "it could wait for ever"
        assert waiting == {reply_to: member.member_id for reply_to, (_, member) in self._waiting.items()}

    # Helpers

    def _turn(self, now_ms: int) -> Turn:
        return Turn(self._config, now_ms, self._waiting)

    def _settle(self, group: Group | None, turn: Turn) -> Outcome:
        """After a group was changed: see that its timers are known, and that it is worth keeping."""
        if group is not None and not self._forget_if_vacant(group):
            self._timers.queue(group.group_id, group.next_deadline_ms())
        return turn.outcome

    def _forget_if_vacant(self, group: Group) -> bool:
        if not group.is_vacant:
            return False
        del self._groups[group.group_id]
        self._timers.forget(group.group_id)
        return True

    def _create(self, group_id: str) -> Group:
        if len(self._groups) >= self._config.groups_max:
            raise TooManyGroupsError(group_id, self._config.groups_max)
        return self._groups.setdefault(group_id, Group(group_id))

    def _existing(self, group_id: str, *, may_be_empty: bool = False) -> Group:
        self._check_ready(group_id, may_be_empty=may_be_empty)
        group = self._groups.get(group_id)
        if group is None:
            raise GroupIdNotFoundError(group_id)
        return group

    def _check_loaded(self) -> None:
        if self._loading:
            raise CoordinatorLoadingError

    def _check_ready(self, group_id: str, *, may_be_empty: bool = False) -> None:
        """Kafka lets offsets be kept under the empty group id, for clients that once did."""
        if (not group_id and not may_be_empty) or len(group_id.encode()) > STRING_BYTES_MAX:
            raise InvalidGroupIdError(group_id)
        self._check_loaded()
