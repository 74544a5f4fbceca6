"""A member of a group: its subscription, its pending requests and its session deadline.

A member whose JoinGroup or SyncGroup is pending cannot send heartbeats on the same connection, so its session does not
expire meanwhile; a full session timeout starts with the reply. A new member may not have received its id yet and waits
for at most `NEW_MEMBER_JOIN_TIMEOUT_MS`; otherwise retries of a dead client would accumulate as members.

The metadata of consumers is a `ConsumerProtocolSubscription`. Only the fields that all of its versions start with are
decoded: the version and the topics. Metadata in another format is an unknown subscription, not an error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from logbrook.core.coordinator import CorruptCoordinatorRecordError
from logbrook.core.groups.messages import JoinRequest
from logbrook.core.groups.records import MemberMetadata
from logbrook.records.fields import FieldReader

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
# Memory of a member and of a protocol besides their text and metadata, about.
_MEMBER_BYTES = 1_000
_PROTOCOL_BYTES = 200
CONSUMER_PROTOCOL_TYPE = "consumer"


@dataclass(slots=True, eq=False)
class Member:
    """One member, owned and modified by its group only."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # Metadata by protocol name, the preferred protocol first.
    protocols: dict[str, bytes]
    assignment: bytes = b""
    # Memory of the member without its assignment, in bytes; follows from the fields above.
    own_bytes: int = field(init=False, default=0)
    # True until it has been part of a generation.
    is_new: bool = True
    session_deadline_ms: int | None = None
    # Tokens of the member's pending requests.
    join_reply_to: object | None = None
    sync_reply_to: object | None = None

    @classmethod
    def from_request(cls, request: JoinRequest, member_id: str) -> "Member":
        return cls(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            own_protocols(request.protocols),
        )

    @classmethod
    def from_metadata(cls, metadata: MemberMetadata, protocol_name: str) -> "Member":
        """Restore a member from the group's last metadata record."""
        return cls(
            metadata.member_id,
            metadata.group_instance_id,
            metadata.client_id,
            metadata.client_host,
            metadata.session_timeout_ms,
            metadata.rebalance_timeout_ms,
            {protocol_name: metadata.subscription},
            metadata.assignment,
            is_new=False,
        )

    def __post_init__(self) -> None:
        self.own_bytes = member_bytes(self.client_id, self.client_host, self.group_instance_id, self.protocols.items())

    @property
    def size(self) -> int:
        """Memory of the member, in bytes, about."""
        return self.own_bytes + len(self.assignment)

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def awaits_join(self) -> bool:
        return self.join_reply_to is not None

    @property
    def awaits_sync(self) -> bool:
        return self.sync_reply_to is not None

    @property
    def cannot_heartbeat(self) -> bool:
        """True if the session cannot expire, because the member waits for a reply of the coordinator."""
        return self.awaits_sync or (self.awaits_join and not self.is_new)

    def matches(self, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Return True if these are the member's protocols, in the same order."""
        return list(self.protocols.items()) == list(own_protocols(protocols).items())

    def vote(self, candidates: set[str]) -> str:
        """Return the member's preferred candidate. At least one candidate must be a protocol of the member."""
        return next(name for name in self.protocols if name in candidates)

    def touch(self, now_ms: int) -> None:
        """Restart the session timeout."""
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def metadata_under(self, protocol_name: str | None) -> bytes:
        return self.protocols.get(protocol_name, b"") if protocol_name is not None else b""

    def to_metadata(self, protocol_name: str | None) -> MemberMetadata:
        return MemberMetadata(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata_under(protocol_name),
            self.assignment,
        )


def member_bytes(
    client_id: str, client_host: str, group_instance_id: str | None, protocols: Iterable[tuple[str, bytes]]
) -> int:
    """Return the memory of a member without its assignment, in bytes, about."""
    texts = len(client_id) + len(client_host) + len(group_instance_id or "")
    return _MEMBER_BYTES + texts + sum(_PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def own_protocols(protocols: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Return the protocols by name, in order, copied out of the request's buffer."""
    return {name: bytes(metadata) for name, metadata in protocols}


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Decode the topics of a consumer's metadata; None if it has another format."""
    reader = FieldReader(metadata, "the subscription of a consumer", CorruptCoordinatorRecordError)
    try:
        if reader.int16() < 0:
            return None
        return frozenset([reader.string() for _ in range(reader.array_count(item_bytes_min=2))])
    except CorruptCoordinatorRecordError:
        return None
