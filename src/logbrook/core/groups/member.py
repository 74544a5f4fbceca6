"""One member of a group: what it told about itself, what it waits for, and until when it is believed to be alive.

A member that waits for a join or a sync cannot be expected to heartbeat on the same connection, so its session cannot
end meanwhile; when the answer goes out, a full session timeout begins. The exception is a new member, which may not
know its id yet: it waits at most `NEW_MEMBER_JOIN_TIMEOUT_MS`, or retries of a dead client would pile up as members.
"""

from collections.abc import Iterable, Sequence

from logbrook.core.groups.records import MemberMetadata
from logbrook.core.groups.requests import JoinRequest

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000


class Member:
    """A member. Its group changes it; nobody else does."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_reply_to",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_deadline_ms",
        "session_timeout_ms",
        "sync_reply_to",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Sequence[tuple[str, bytes]],
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = own_protocols(protocols)
        self.assignment = b""
        # Until it has been part of a generation.
        self.is_new = True
        self.session_deadline_ms: int | None = None
        # The requests of this member that are not answered yet.
        self.join_reply_to: object | None = None
        self.sync_reply_to: object | None = None

    @classmethod
    def from_request(cls, request: JoinRequest, member_id: str) -> "Member":
        return cls(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
        )

    @classmethod
    def from_metadata(cls, metadata: MemberMetadata, protocol_name: str) -> "Member":
        """A member as it was when the group's last generation was written."""
        member = cls(
            metadata.member_id,
            metadata.group_instance_id,
            metadata.client_id,
            metadata.client_host,
            metadata.session_timeout_ms,
            metadata.rebalance_timeout_ms,
            [(protocol_name, metadata.subscription)],
        )
        member.assignment = metadata.assignment
        member.is_new = False
        return member

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
        """Whether the end of its session says nothing, because it waits for an answer of ours."""
        return self.awaits_sync or (self.awaits_join and not self.is_new)

    def matches(self, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether these are the protocols it has, in the same order."""
        return list(self.protocols.items()) == list(own_protocols(protocols).items())

    def vote(self, candidates: set[str]) -> str:
        """The candidate that it likes best. One of them must be its own."""
        return next(name for name in self.protocols if name in candidates)

    def touch(self, now_ms: int) -> None:
        """It is alive: a full session begins."""
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


def own_protocols(protocols: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """The protocols in order, each name once, in memory of their own rather than in a request's buffer."""
    return {name: bytes(metadata) for name, metadata in protocols}
