"""Errors of the group coordinator, one class per error code of Kafka's protocol.

The server maps each class to its code; the code decides whether a consumer rejoins, retries or fails. The text has all
facts; attributes are those that are read by callers.
"""

from logbrook.core.coordinator import CoordinatorError


class GroupError(CoordinatorError):
    """The group coordinator rejected a request."""


class InvalidGroupIdError(GroupError):
    def __init__(self, group_id: str) -> None:
        super().__init__("the group id is empty" if not group_id else "the group id is longer than 32767 bytes")


class OversizedFieldError(GroupError):
    """A field too long for a group metadata record. INVALID_REQUEST on the wire."""

    def __init__(self, field: str, size: int, size_max: int) -> None:
        super().__init__(f"{field} has {size} bytes, at most {size_max} are allowed")


class InvalidSessionTimeoutError(GroupError):
    def __init__(self, session_timeout_ms: int, session_timeout_ms_min: int, session_timeout_ms_max: int) -> None:
        super().__init__(
            f"a session timeout of {session_timeout_ms} ms is outside "
            f"{session_timeout_ms_min} to {session_timeout_ms_max} ms"
        )


class UnknownMemberIdError(GroupError):
    """No such member. The client drops its member id and joins again."""

    def __init__(self, group_id: str, member_id: str) -> None:
        super().__init__(f"group {group_id!r} has no member {member_id!r}")


class MemberIdRequiredError(GroupError):
    """Join again with this member id (KIP-394)."""

    def __init__(self, group_id: str, member_id: str) -> None:
        super().__init__(f"join group {group_id!r} again, as member {member_id!r}")
        self.member_id = member_id


class FencedInstanceIdError(GroupError):
    """Another process joined with the same group.instance.id (KIP-345). Fatal for the client."""

    def __init__(self, group_id: str, group_instance_id: str, member_id: str) -> None:
        super().__init__(
            f"member {member_id!r} of group {group_id!r} was replaced: another process uses the group.instance.id "
            f"{group_instance_id!r}"
        )


class IllegalGenerationError(GroupError):
    """The request's generation is not the group's current one. The client joins again."""

    def __init__(self, group_id: str, generation: int, generation_current: int) -> None:
        super().__init__(f"group {group_id!r} is in generation {generation_current}, not {generation}")


class RebalanceInProgressError(GroupError):
    """The group is rebalancing. The client joins again."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"group {group_id!r} is rebalancing; join it again")


class InconsistentGroupProtocolError(GroupError):
    """The offered protocols have none in common with those of all members, or are empty."""

    def __init__(self, group_id: str, protocol_type: str | None, protocols: tuple[str, ...]) -> None:
        super().__init__(
            f"protocol type {protocol_type!r} with protocols {', '.join(protocols)} does not match those of group "
            f"{group_id!r}"
        )


class GroupMaxSizeReachedError(GroupError):
    def __init__(self, group_id: str, members_max: int) -> None:
        super().__init__(f"group {group_id!r} has the maximum of {members_max} members")


class TooManyGroupsError(GroupError):
    """A bound for all groups is reached. Kafka has no such limit, hence POLICY_VIOLATION on the wire."""

    def __init__(self, group_id: str, setting: str, limit: int) -> None:
        super().__init__(f"cannot create group {group_id[:100]!r}: the limit groups.{setting} of {limit} is reached")


class GroupBytesExceededError(GroupError):
    """Members and assignments would exceed a bound. GROUP_MAX_SIZE_REACHED on the wire."""

    def __init__(self, group_id: str, setting: str, bytes_max: int) -> None:
        super().__init__(f"group {group_id!r} cannot grow: groups.{setting} of {bytes_max} bytes is reached")


class OffsetBytesExceededError(GroupError):
    """The group coordinator has no memory for a new offset. INVALID_COMMIT_OFFSET_SIZE on the wire."""

    def __init__(self, group_id: str, bytes_max: int) -> None:
        super().__init__(
            f"group {group_id!r} cannot commit further offsets: groups.state_bytes_max of {bytes_max} bytes is reached"
        )


class GroupIdNotFoundError(GroupError):
    def __init__(self, group_id: str) -> None:
        super().__init__(f"there is no group {group_id!r}")


class NonEmptyGroupError(GroupError):
    def __init__(self, group_id: str) -> None:
        super().__init__(f"group {group_id!r} has members")


class GroupSubscribedToTopicError(GroupError):
    """Offsets of a topic that a live member subscribes to may not be deleted (KIP-496)."""

    def __init__(self, group_id: str, topic: str) -> None:
        super().__init__(f"group {group_id!r} is subscribed to topic {topic}")


class OffsetMetadataTooLargeError(GroupError):
    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"the metadata of an offset has {size} bytes, at most {size_max} are allowed")
