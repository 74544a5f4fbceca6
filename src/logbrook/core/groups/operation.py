"""Context of one request or timer of a group: its time, and the outcome it accumulates.

A JoinGroup or SyncGroup that cannot be answered yet is kept as its member's `join_reply_to` or `sync_reply_to`. Only
the methods here set and clear these fields, so every request is answered exactly once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from logbrook.config import GroupConfig
from logbrook.core.coordinator import CoordinatorError
from logbrook.core.groups.errors import RebalanceInProgressError
from logbrook.core.groups.group import Group
from logbrook.core.groups.member import Member
from logbrook.core.groups.messages import GroupOutcome, GroupReply, GroupWrite, JoinResult, SyncResult

# The group and member of every request that is not answered yet, by its token.
PendingReplies: TypeAlias = dict[object, tuple[Group, Member]]


@dataclass(slots=True)
class GroupOperation:
    config: GroupConfig
    now_ms: int
    pending_replies: PendingReplies
    # Returns the memory that all groups together may still take, in bytes.
    free_bytes: Callable[[], int]
    outcome: GroupOutcome = field(default_factory=GroupOutcome)

    def await_join(self, group: Group, member: Member, reply_to: object) -> None:
        """Keep a JoinGroup until the generation begins. A retry replaces the member's previous request."""
        self.answer_join(member, RebalanceInProgressError(group.group_id))
        member.join_reply_to = reply_to
        self.pending_replies[reply_to] = (group, member)

    def await_sync(self, group: Group, member: Member, reply_to: object) -> None:
        """Keep a SyncGroup until the leader's assignment. A retry replaces the member's previous request."""
        self.answer_sync(member, RebalanceInProgressError(group.group_id))
        member.sync_reply_to = reply_to
        self.pending_replies[reply_to] = (group, member)

    def answer_join(self, member: Member, result: JoinResult | CoordinatorError) -> None:
        """Answer the member's pending JoinGroup, if any."""
        reply_to, member.join_reply_to = member.join_reply_to, None
        if reply_to is not None:
            del self.pending_replies[reply_to]
            self.outcome.reply(reply_to, result)

    def answer_sync(self, member: Member, error: CoordinatorError) -> None:
        """Reject the member's pending SyncGroup, if any."""
        reply = self.take_sync_reply(member, error)
        if reply is not None:
            self.outcome.replies.append(reply)

    def take_sync_reply(self, member: Member, result: SyncResult | CoordinatorError) -> GroupReply | None:
        """Return the reply to the member's pending SyncGroup, which is no longer pending; None if there is none."""
        reply_to, member.sync_reply_to = member.sync_reply_to, None
        if reply_to is None:
            return None
        del self.pending_replies[reply_to]
        return GroupReply(reply_to, result)

    def write_group(self, group: Group, replies: list[GroupReply]) -> None:
        """Add a write of the group's current metadata."""
        self.outcome.writes.append(GroupWrite(group.group_id, [group.metadata_record()], replies))
