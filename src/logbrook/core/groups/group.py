"""A group: its members, its generation and its state.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^______________|  ^________________|_________________|

In PreparingRebalance the coordinator collects joins; when every member has joined, or the time is up, a generation
begins and everyone is told so. In CompletingRebalance it waits for the leader's assignment. Membership is soft state
that moves at once. What must outlive a restart (the last generation that was assigned, or that the group is empty) is
written as group metadata; `durable_metadata` is the last of it that came back through `replay`, and never changes
what members see: newer soft state may have moved on while an older write was on its way.

This file holds the facts and keeps them consistent; `rebalance` has the transitions, `joining` and `syncing` the rules
of the two requests.
"""

from collections import Counter
from enum import StrEnum

from logbrook.core.groups.errors import FencedInstanceIdError, UnknownMemberIdError
from logbrook.core.groups.member import Member
from logbrook.core.groups.offsets import GroupOffsets
from logbrook.core.groups.records import GroupKey, GroupMetadata
from logbrook.core.groups.requests import JoinRequest
from logbrook.core.groups.results import Record
from logbrook.core.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics


class GroupState(StrEnum):
    """Kafka's names. `Dead` is what a group that does not exist is called."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Group:
    """One group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms: int | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        # In the order in which they came.
        self.members: dict[str, Member] = {}
        # Member ids by group.instance.id.
        self.static_members: dict[str, str] = {}
        # Ids that were given out (KIP-394) but not used yet, and until when they may be.
        self.pending_members: dict[str, int] = {}
        # Those who have joined this generation but have not sent their SyncGroup, in order.
        self.pending_sync: dict[str, None] = {}
        # None: not known.
        self.subscribed_topics: frozenset[str] | None = None

        self.join_deadline_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        # While the first members of an empty group are awaited (KIP-134): the length of the present wait and how
        # much longer the group may wait after it. None otherwise.
        self.initial_delay_ms: int | None = None
        self.initial_delay_ms_left = 0
        self.new_member_added = False

        self.offsets = GroupOffsets(group_id)
        self.durable_metadata: GroupMetadata | None = None
        # Records under this group's key that were given out and have not come back.
        self.metadata_in_flight = 0
        self._protocol_counts: Counter[str] = Counter()

    # Questions

    @property
    def is_unused(self) -> bool:
        """Whether nobody is in the group or about to be."""
        return self.state is GroupState.EMPTY and not self.pending_members

    @property
    def is_written(self) -> bool:
        """Whether there is metadata of it in the log, or on its way there."""
        return self.durable_metadata is not None or self.metadata_in_flight > 0

    @property
    def is_vacant(self) -> bool:
        """Whether nothing would be lost if the group were forgotten."""
        return self.is_unused and not self.is_written and not self.offsets

    @property
    def all_joined(self) -> bool:
        return not self.pending_members and all(member.awaits_join for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def current_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member a request comes from. Raises FencedInstanceIdError or UnknownMemberIdError."""
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
        """Whether a member with these protocols would have one in common with all others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and names)
        return protocol_type == self.protocol_type and any(
            self._protocol_counts[name] == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Every member votes for what it likes best of what all have. The first in a tie wins."""
        candidates = {name for name, count in self._protocol_counts.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads this topic. When that is not known it is assumed."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def next_deadline_ms(self) -> int | None:
        """When something happens if nobody says anything until then."""
        deadlines = [member.session_deadline_ms for member in self.members.values()]
        deadlines += self.pending_members.values()
        deadlines += (self.join_deadline_ms, self.sync_deadline_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def metadata_record(self) -> Record:
        """The group as it is now, to be written. Counted as in flight."""
        self.metadata_in_flight += 1
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

    def tombstone(self) -> Record:
        """The end of the group, to be written. Counted as in flight."""
        self.metadata_in_flight += 1
        return GroupKey(self.group_id).encode(), None

    # Changes

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
        self._protocol_counts.update(member.protocols.keys())
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Take out a member or a pending one. The first of the others becomes the leader in place of a leader."""
        self.pending_members.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        self._uncount(member)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def update(self, member: Member, request: JoinRequest) -> None:
        """What a member says of itself when it joins again."""
        fresh = Member.from_request(request, member.member_id)
        self._uncount(member)
        member.protocols = fresh.protocols
        self._protocol_counts.update(member.protocols.keys())
        member.client_id, member.client_host = fresh.client_id, fresh.client_host
        member.session_timeout_ms = fresh.session_timeout_ms
        member.rebalance_timeout_ms = fresh.rebalance_timeout_ms

    def replace_static(self, member: Member, member_id: str) -> None:
        """Give a static member another id, in the same place."""
        assert member.group_instance_id is not None
        old_id, member.member_id = member.member_id, member_id
        self.members = {each.member_id: each for each in self.members.values()}
        self.static_members[member.group_instance_id] = member_id
        self.pending_sync = dict.fromkeys(member_id if each == old_id else each for each in self.pending_sync)
        if self.leader_id == old_id:
            self.leader_id = member_id

    def begin_generation(self) -> None:
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.learn_subscribed_topics()

    def learn_subscribed_topics(self) -> None:
        self.subscribed_topics = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            every = [subscribed_topics(member.metadata_under(self.protocol_name)) for member in self.members.values()]
            known = [topics for topics in every if topics is not None]
            if len(known) == len(every):
                self.subscribed_topics = frozenset[str]().union(*known)

    def restore(self, now_ms: int) -> None:
        """Become what was last written. Everyone gets a full session to be heard from."""
        metadata = self.durable_metadata
        if metadata is None:
            return
        self.generation = metadata.generation
        self.protocol_type = metadata.protocol_type or None
        self.protocol_name = metadata.protocol_name
        self.leader_id = metadata.leader_id
        for each in metadata.members:
            assert metadata.protocol_name is not None, "checked when it was decoded"
            member = Member.from_metadata(each, metadata.protocol_name)
            member.touch(now_ms)
            self.add(member, metadata.protocol_type)
        if self.leader_id not in self.members:
            self.leader_id = next(iter(self.members), None)
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.state_timestamp_ms = metadata.state_timestamp_ms
        self.learn_subscribed_topics()

    def validate(self) -> None:
        """The rules that hold between any two calls."""
        self.offsets.validate()
        ids = list(self.members)
        assert ids == [member.member_id for member in self.members.values()]
        assert (self.leader_id in self.members) if ids else self.leader_id is None
        assert self.static_members == {
            member.group_instance_id: member.member_id for member in self.members.values() if member.is_static
        }
        assert self.members.keys().isdisjoint(self.pending_members)
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
            assert member.session_deadline_ms is not None or member.cannot_heartbeat, "it could stay for ever"
            assert self.protocol_name is None or preparing or self.protocol_name in member.protocols

    def _uncount(self, member: Member) -> None:
        self._protocol_counts.subtract(member.protocols.keys())
        for name in member.protocols:
            if self._protocol_counts[name] <= 0:
                del self._protocol_counts[name]
