"""One request's, or one tick's, turn at the coordinator: the time it happens at and the outcome it builds up.

Every request that is not answered at once waits as a member's `join_reply_to` or `sync_reply_to`. The functions here
are the only ones that set and clear these, so that each request is answered exactly once.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from logbrook.config.groups import GroupConfig
from logbrook.core.groups.errors import GroupError, RebalanceInProgressError
from logbrook.core.groups.group import Group
from logbrook.core.groups.member import Member
from logbrook.core.groups.results import JoinResult, Outcome, Reply, SyncResult, Write

# Whose request a token belongs to, for those that are not answered yet.
Waiting: TypeAlias = dict[object, tuple[Group, Member]]


@dataclass(slots=True)
class Turn:
    config: GroupConfig
    now_ms: int
    waiting: Waiting
    outcome: Outcome = field(default_factory=Outcome)

    def await_join(self, group: Group, member: Member, reply_to: object) -> None:
        """Keep a JoinGroup for later. A retry takes the place of the request before it."""
        self.answer_join(member, RebalanceInProgressError(group.group_id))
        member.join_reply_to = reply_to
        self.waiting[reply_to] = (group, member)

    def await_sync(self, group: Group, member: Member, reply_to: object) -> None:
        """Keep a SyncGroup for later. A retry takes the place of the request before it."""
        self.answer_sync(member, RebalanceInProgressError(group.group_id))
        member.sync_reply_to = reply_to
        self.waiting[reply_to] = (group, member)

    def answer_join(self, member: Member, result: JoinResult | GroupError) -> None:
        """Answer the member's JoinGroup if one is waiting."""
        reply_to, member.join_reply_to = member.join_reply_to, None
        if reply_to is not None:
            del self.waiting[reply_to]
            self.outcome.reply(reply_to, result)

    def answer_sync(self, member: Member, result: GroupError) -> None:
        """Refuse the member's SyncGroup if one is waiting."""
        reply_to, member.sync_reply_to = member.sync_reply_to, None
        if reply_to is not None:
            del self.waiting[reply_to]
            self.outcome.reply(reply_to, result)

    def take_sync_reply(self, member: Member, result: SyncResult) -> Reply | None:
        """The answer to the member's SyncGroup, to be held until what it says is durable."""
        reply_to, member.sync_reply_to = member.sync_reply_to, None
        if reply_to is None:
            return None
        del self.waiting[reply_to]
        return Reply(reply_to, result)

    def write_group(self, group: Group, replies: list[Reply]) -> None:
        """Have the group written as it is now."""
        self.outcome.writes.append(Write(group.group_id, [group.metadata_record()], replies))
