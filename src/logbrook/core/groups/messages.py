"""Requests to the group coordinator and its results, independent of wire versions.

The server fills in fields that an old request version lacks: `rebalance_timeout_ms` is the session timeout in
JoinGroup v0, protocol type and name are None before SyncGroup v5.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from logbrook.core.coordinator import CoordinatorError, CoordinatorRecord
from logbrook.core.groups.errors import GroupError
from logbrook.core.groups.records import MemberMetadata
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset, ProducerEpoch, ProducerId

# The generation of a commit by a consumer that is not a member: it uses the coordinator for offsets only.
NO_GENERATION = -1


# Requests


@dataclass(frozen=True, slots=True)
class JoinRequest:
    group_id: str
    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    # Protocol names with the member's metadata, the preferred first.
    protocols: Sequence[tuple[str, bytes]]
    group_instance_id: str | None = None
    # JoinGroup v4 and later: a new dynamic member is rejected with its new member id, and joins with it (KIP-394).
    requires_known_member_id: bool = False
    # JoinGroup v9 and later: the response has the field skip_assignment (KIP-814).
    supports_skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    # Sent by the leader: member ids and their assignments.
    assignments: Sequence[tuple[str, bytes]] = ()


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """A member to remove, by its id; an operator may name a static member by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    partition: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    group_id: str
    member_id: str
    generation: int
    offsets: Sequence[OffsetToCommit]
    group_instance_id: str | None = None
    # TxnOffsetCommit: its old versions name no member, and it is accepted during a rebalance.
    transactional: bool = False
    # The producer of the transaction, if `transactional`.
    producer_id: ProducerId = ProducerId(-1)
    producer_epoch: ProducerEpoch = ProducerEpoch(-1)


# Results


@dataclass(frozen=True, slots=True)
class JoinResult:
    member_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str
    # Filled for the leader only.
    members: tuple[MemberMetadata, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncResult:
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


GroupResult: TypeAlias = JoinResult | SyncResult | CoordinatorError


@dataclass(frozen=True, slots=True)
class GroupReply:
    """The result of the JoinGroup or SyncGroup request that was made with the token `reply_to`."""

    reply_to: object
    result: GroupResult


@dataclass(frozen=True, slots=True)
class GroupWrite:
    """Records to append for one group, and the replies that depend on them."""

    group_id: str
    records: list[CoordinatorRecord]
    replies: list[GroupReply] = field(default_factory=list)


@dataclass(slots=True)
class GroupOutcome:
    """Writes to append, in order, and replies that depend on no write of this outcome."""

    writes: list[GroupWrite] = field(default_factory=list)
    replies: list[GroupReply] = field(default_factory=list)

    def reply(self, reply_to: object, result: GroupResult) -> None:
        self.replies.append(GroupReply(reply_to, result))

    def extend(self, other: "GroupOutcome") -> None:
        self.writes += other.writes
        self.replies += other.replies


@dataclass(frozen=True, slots=True)
class MemberLeft:
    member_id: str
    group_instance_id: str | None
    error: GroupError | None


@dataclass(frozen=True, slots=True)
class OffsetDecision:
    """The records that commit or delete the accepted offsets, and the error of each rejected one."""

    write: GroupWrite
    errors: dict[TopicPartition, GroupError]


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """The result of OffsetFetch for a partition: its committed offset, or `NO_OFFSET`."""

    offset: Offset
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    metadata: str = ""


NO_OFFSET = FetchedOffset(offset=Offset(-1))


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberMetadata, ...]
