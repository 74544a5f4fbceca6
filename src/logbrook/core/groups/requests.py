"""What clients ask of the coordinator, free of wire versions.

The server fills in what an old version of a request lacks: `rebalance_timeout_ms` is the session timeout in
JoinGroup v0, protocol type and name are None before SyncGroup v5, and the flags say what a version can do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from logbrook.model import TopicPartition

# What a request says for "no generation": a consumer that uses the coordinator for its offsets only.
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class JoinRequest:
    group_id: str
    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    # Names and metadata, the most wanted first.
    protocols: Sequence[tuple[str, bytes]]
    group_instance_id: str | None = None
    # JoinGroup v4 and later: a new dynamic member is first told its id (KIP-394).
    requires_known_member_id: bool = False
    # JoinGroup v9 and later: a leader can be told not to assign (KIP-814).
    supports_skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    # Of the leader: each member's id and its assignment.
    assignments: Sequence[tuple[str, bytes]] = ()


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """A member by its id, or, for an operator, a static member by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    group_id: str
    member_id: str
    generation: int
    offsets: Sequence[OffsetToCommit]
    group_instance_id: str | None = None
    # TxnOffsetCommit: old versions of it name no member, and it may come during a rebalance.
    transactional: bool = False
    # Whose transaction it is, with `transactional`.
    producer_id: int = -1
    producer_epoch: int = -1
