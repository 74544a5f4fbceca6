"""What the coordinator answers, and what it wants written.

Rules for whoever carries this out:

- Writes are appended in the order in which the coordinator gave them out, over all calls; so are their replays.
- The replies of a write are sent once its records are durable and `replay`ed. Plain replies are sent at once.
- A write without records is durable as it is.
- A write that failed goes back to `GroupCoordinator.write_failed`, which has the answers for those who wait.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from logbrook.core.groups.errors import GroupError
from logbrook.model import TopicPartition

# A key and a value; None is a tombstone.
Record: TypeAlias = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    member_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str
    # Filled for the leader only.
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncResult:
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    reply_to: object
    result: JoinResult | SyncResult | GroupError


@dataclass(frozen=True, slots=True)
class Write:
    group_id: str
    records: list[Record]
    replies: list[Reply] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    writes: list[Write] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    def reply(self, reply_to: object, result: JoinResult | SyncResult | GroupError) -> None:
        self.replies.append(Reply(reply_to, result))


@dataclass(frozen=True, slots=True)
class MemberLeft:
    member_id: str
    group_instance_id: str | None
    error: GroupError | None


@dataclass(frozen=True, slots=True)
class CommitDecision:
    """The records of the offsets that were accepted, and why the others were not."""

    write: Write
    errors: dict[TopicPartition, GroupError]


@dataclass(frozen=True, slots=True)
class OffsetDeletion:
    """The tombstones of the offsets that may go, and why the others may not."""

    write: Write
    errors: dict[TopicPartition, GroupError]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


NO_OFFSET = CommittedOffset(offset=-1)


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]
