"""A group: its members, its generation and its state.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^______________|  ^________________|_________________|

In PreparingRebalance the coordinator collects joins; when every member has joined, or the rebalance timeout expires,
the next generation begins and every JoinGroup is answered. In CompletingRebalance it waits for the leader's assignment.

Membership is soft state. Only what must survive a restart (the last assigned generation, or that the group is empty)
is written, as group metadata; `written_metadata` is the last such record in the log, from which `restore` rebuilds the
members.

This module holds the data and keeps it consistent; `rebalance` has the transitions, `membership` the request rules.
"""

from collections import Counter
from enum import StrEnum

from logbrook.core.coordinator import CoordinatorRecord
from logbrook.core.groups.errors import FencedInstanceIdError, UnknownMemberIdError
from logbrook.core.groups.member import CONSUMER_PROTOCOL_TYPE, Member, subscribed_topics
from logbrook.core.groups.messages import JoinRequest
from logbrook.core.groups.offsets import GroupOffsets
from logbrook.core.groups.records import GroupKey, GroupMetadata

# Memory of a group and of a pending member besides their ids, about.
_GROUP_BYTES = 3_000
_PENDING_MEMBER_BYTES = 500


class GroupState(StrEnum):
    """Kafka's state names. `Dead` is reported for a group that does not exist."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Group:
    """One group: members, generation, committed offsets. Owned by its shard."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms: int | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        # In the order in which they joined.
        self.members: dict[str, Member] = {}
        # Member ids by group.instance.id.
        self.static_members: dict[str, str] = {}
        # Member ids that were assigned (KIP-394) but have not joined yet, with their deadlines.
        self.pending_members: dict[str, int] = {}
        # Members of this generation that have not sent their SyncGroup yet, in order.
        self.pending_sync: dict[str, None] = {}
        # Topics that the members subscribe to; None if unknown.
        self.subscribed_topics: frozenset[str] | None = None

        self.join_deadline_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        # Initial rebalance delay of an empty group (KIP-134): the current wait, and how much longer the group may wait
        # after it. None outside of it.
        self.initial_delay_ms: int | None = None
        self.initial_delay_ms_left = 0
        self.new_member_added = False

        self.offsets = GroupOffsets(group_id)
        self.written_metadata: GroupMetadata | None = None
        # Size of the last group metadata record.
        self.written_bytes = 0
        # Memory of all members with their assignments.
        self.members_bytes = 0
        # The part of the shard's `state_bytes` that is this group's.
        self.counted_bytes = 0
        self._protocol_counts: Counter[str] = Counter()

    @property
    def is_unused(self) -> bool:
        """True if the group has no members and none is about to join."""
        return self.state is GroupState.EMPTY and not self.pending_members

    @property
    def is_vacant(self) -> bool:
        """True if the group holds no state, so that it can be removed from memory."""
        return self.is_unused and self.written_metadata is None and not self.offsets

    @property
    def size(self) -> int:
        """Memory of the group, in bytes, about."""
        pending_bytes = len(self.pending_members) * _PENDING_MEMBER_BYTES
        fixed_bytes = _GROUP_BYTES + len(self.group_id) + pending_bytes
        return fixed_bytes + self.members_bytes + self.written_bytes + self.offsets.size

    @property
    def all_joined(self) -> bool:
        return not self.pending_members and all(member.awaits_join for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def current_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """Return the member that sent a request. Raises FencedInstanceIdError or UnknownMemberIdError."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is not None and current != member_id:
                raise FencedInstanceIdError(self.group_id, group_instance_id, member_id)
            if current is None:
                raise UnknownMemberIdError(self.group_id, member_id)
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(self.group_id, member_id)
        return member

    def supports(self, protocol_type: str, names: tuple[str, ...]) -> bool:
        """Return True if one of these protocols is supported by all members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and names)
        return protocol_type == self.protocol_type and any(
            self._protocol_counts[name] == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Return the protocol with most votes; each member votes for its preferred one of those that all support."""
        candidates = {name for name, count in self._protocol_counts.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def is_subscribed(self, topic: str) -> bool:
        """Return True if a member subscribes to the topic, or if the subscriptions are unknown."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline of a session, a pending member or a rebalance phase."""
        deadlines = [member.session_deadline_ms for member in self.members.values()]
        deadlines += self.pending_members.values()
        deadlines += (self.join_deadline_ms, self.sync_deadline_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def extend_deadlines(self, until_ms: int) -> None:
        """Let no member be removed before `until_ms`. A join phase that waits for none of them ends as before."""
        for member in self.members.values():
            if member.session_deadline_ms is not None:
                member.session_deadline_ms = max(member.session_deadline_ms, until_ms)
        for member_id, deadline_ms in self.pending_members.items():
            self.pending_members[member_id] = max(deadline_ms, until_ms)
        if self.sync_deadline_ms is not None:
            self.sync_deadline_ms = max(self.sync_deadline_ms, until_ms)
        if self.join_deadline_ms is not None and not all(member.awaits_join for member in self.members.values()):
            self.join_deadline_ms = max(self.join_deadline_ms, until_ms)

    def metadata_record(self) -> CoordinatorRecord:
        """Return the record of the group's current generation and members."""
        members = tuple(member.to_metadata(self.protocol_name) for member in self.members.values())
        metadata = GroupMetadata(
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.leader_id,
            self.state_timestamp_ms,
            members,
        )
        return GroupKey(self.group_id).encode(), metadata.encode()

    def tombstone(self) -> CoordinatorRecord:
        return GroupKey(self.group_id).encode(), None

    def move_to(self, state: GroupState, now_ms: int) -> None:
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self.members_bytes += member.size
        self._protocol_counts.update(member.protocols.keys())
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member. If it was the leader, the first of the remaining members becomes it."""
        self.pending_members.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        self.members_bytes -= member.size
        self._uncount(member)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def update(self, member: Member, request: JoinRequest) -> None:
        """Take over the protocols, client and timeouts of a member that joins again."""
        updated = Member.from_request(request, member.member_id)
        self._uncount(member)
        self.members_bytes += updated.own_bytes - member.own_bytes
        member.protocols, member.own_bytes = updated.protocols, updated.own_bytes
        self._protocol_counts.update(member.protocols.keys())
        member.client_id, member.client_host = updated.client_id, updated.client_host
        member.session_timeout_ms = updated.session_timeout_ms
        member.rebalance_timeout_ms = updated.rebalance_timeout_ms

    def replace_static(self, member: Member, member_id: str) -> None:
        """Give a static member a new id; it keeps its position among the members."""
        assert member.group_instance_id is not None
        old_id, member.member_id = member.member_id, member_id
        self.members = {other.member_id: other for other in self.members.values()}
        self.static_members[member.group_instance_id] = member_id
        self.pending_sync = dict.fromkeys(member_id if other == old_id else other for other in self.pending_sync)
        if self.leader_id == old_id:
            self.leader_id = member_id

    def assign(self, member: Member, assignment: bytes) -> None:
        self.members_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def begin_generation(self) -> None:
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.update_subscribed_topics()

    def update_subscribed_topics(self) -> None:
        self.subscribed_topics = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            union: frozenset[str] = frozenset()
            for member in self.members.values():
                topics = subscribed_topics(member.metadata_under(self.protocol_name))
                if topics is None:
                    return
                union |= topics
            self.subscribed_topics = union

    def restore(self, now_ms: int) -> None:
        """Rebuild the group from its written metadata. Every member gets a full session timeout."""
        metadata = self.written_metadata
        if metadata is None:
            return
        self.generation = metadata.generation
        self.protocol_type = metadata.protocol_type or None
        self.protocol_name = metadata.protocol_name
        self.leader_id = metadata.leader_id
        for member_metadata in metadata.members:
            assert metadata.protocol_name is not None, "checked when it was decoded"
            member = Member.from_metadata(member_metadata, metadata.protocol_name)
            member.touch(now_ms)
            self.add(member, metadata.protocol_type)
        if self.leader_id not in self.members:
            self.leader_id = next(iter(self.members), None)
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.state_timestamp_ms = metadata.state_timestamp_ms
        self.update_subscribed_topics()

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls."""
        self.offsets.validate()
        assert self.written_metadata is None or self.written_metadata.generation <= self.generation
        ids = list(self.members)
        assert ids == [member.member_id for member in self.members.values()]
        assert (self.leader_id in self.members) if ids else self.leader_id is None
        assert self.static_members == {
            member.group_instance_id: member.member_id for member in self.members.values() if member.is_static
        }
        assert self.members.keys().isdisjoint(self.pending_members)
        assert self.members_bytes == sum(member.size for member in self.members.values())
        assert self.pending_sync.keys() <= self.members.keys()
        assert +self._protocol_counts == Counter(name for member in self.members.values() for name in member.protocols)
        preparing = self.state is GroupState.PREPARING_REBALANCE
        completing = self.state is GroupState.COMPLETING_REBALANCE
        assert self.state is not GroupState.DEAD
        assert (self.join_deadline_ms is not None) == preparing
        assert self.initial_delay_ms is None or preparing
        assert (self.sync_deadline_ms is not None) == bool(self.pending_sync)
        assert not self.pending_sync or completing or self.state is GroupState.STABLE
        assert self.state is not GroupState.EMPTY or not ids
        assert preparing or ids or self.state is GroupState.EMPTY
        assert not completing or self.leader_id in self.pending_sync, "the leader's sync ends the rebalance"
        for member in self.members.values():
            assert not member.awaits_join or preparing
            assert not member.awaits_sync or completing
            assert member.session_deadline_ms is not None or member.cannot_heartbeat, "the member could stay for ever"
            assert self.protocol_name is None or preparing or self.protocol_name in member.protocols

    def _uncount(self, member: Member) -> None:
        self._protocol_counts.subtract(member.protocols.keys())
        for name in member.protocols:
            if self._protocol_counts[name] <= 0:
                del self._protocol_counts[name]
