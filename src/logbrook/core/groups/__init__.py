"""Consumer groups: membership by Kafka's classic group protocol, and committed offsets.

`coordinator` is the way in. `requests` and `results` are what goes in and out, `errors` what can be refused. Behind
it, `group` and `member` hold the facts, `rebalance`, `joining`, `syncing` and `commits` the rules, `offsets`,
`pending_offsets` and `retention` what is kept and for how long, `records` the format in which it is kept.
"""

from logbrook.core.groups.coordinator import GroupCoordinator
from logbrook.core.groups.group import GroupState
from logbrook.core.groups.requests import (
    NO_GENERATION,
    CommitRequest,
    JoinRequest,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
)
from logbrook.core.groups.results import (
    NO_OFFSET,
    CommitDecision,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    JoinedMember,
    JoinResult,
    MemberDescription,
    MemberLeft,
    OffsetDeletion,
    Outcome,
    Record,
    Reply,
    SyncResult,
    Write,
)

__all__ = [
    "NO_GENERATION",
    "NO_OFFSET",
    "CommitDecision",
    "CommitRequest",
    "CommittedOffset",
    "GroupCoordinator",
    "GroupDescription",
    "GroupListing",
    "GroupState",
    "JoinRequest",
    "JoinResult",
    "JoinedMember",
    "LeavingMember",
    "MemberDescription",
    "MemberLeft",
    "OffsetDeletion",
    "OffsetToCommit",
    "Outcome",
    "Record",
    "Reply",
    "SyncRequest",
    "SyncResult",
    "Write",
]
