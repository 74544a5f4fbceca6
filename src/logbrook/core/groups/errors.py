"""What the group coordinator can refuse, one class per error of Kafka's protocol, with the facts as attributes.

Which of them a client may retry is part of the contract: the server maps the classes to wire codes one to one, and
the code decides whether a consumer rejoins, retries, or gives up.
"""

from logbrook.model import LogbrookError


class GroupError(LogbrookError):
    """The coordinator refused a request."""


class CoordinatorLoadingError(GroupError):
    """Offsets and groups are still being read back. Retriable: never say "no offset" in this state."""

    def __init__(self) -> None:
        super().__init__("the group coordinator is loading; try again")


class CoordinatorNotAvailableError(GroupError):
    """What the answer depends on could not be written. Retriable."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"the state of group {group_id!r} could not be written; try again")
        self.group_id = group_id


class InvalidGroupIdError(GroupError):
    def __init__(self, group_id: str) -> None:
        super().__init__("the group id is empty" if not group_id else "the group id is longer than 32767 bytes")
        self.group_id = group_id


class OversizedFieldError(GroupError):
    """A field that no group metadata record has room for. INVALID_REQUEST on the wire."""

    def __init__(self, field: str, size: int, size_max: int) -> None:
        super().__init__(f"{field} has {size} bytes, at most {size_max} are allowed")
        self.field = field
        self.size = size
        self.size_max = size_max


class InvalidSessionTimeoutError(GroupError):
    def __init__(self, session_timeout_ms: int, session_timeout_ms_min: int, session_timeout_ms_max: int) -> None:
        super().__init__(
            f"a session timeout of {session_timeout_ms} ms is outside "
            f"{session_timeout_ms_min} to {session_timeout_ms_max} ms"
        )
        self.session_timeout_ms = session_timeout_ms
        self.session_timeout_ms_min = session_timeout_ms_min
        self.session_timeout_ms_max = session_timeout_ms_max


class UnknownMemberIdError(GroupError):
    """No such member. The client forgets its member id and joins again."""

    def __init__(self, group_id: str, member_id: str) -> None:
        super().__init__(f"group {group_id!r} has no member {member_id!r}")
        self.group_id = group_id
        self.member_id = member_id


class MemberIdRequiredError(GroupError):
    """Join again with this member id (KIP-394)."""

    def __init__(self, group_id: str, member_id: str) -> None:
        super().__init__(f"join group {group_id!r} again, as member {member_id!r}")
        self.group_id = group_id
        self.member_id = member_id


class FencedInstanceIdError(GroupError):
    """Another process has joined with the same group.instance.id since (KIP-345). Fatal for the client."""

    def __init__(self, group_id: str, group_instance_id: str, member_id: str) -> None:
        super().__init__(
            f"member {member_id!r} of group {group_id!r} was replaced: another process uses the group.instance.id "
            f"{group_instance_id!r}"
        )
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id = member_id


class IllegalGenerationError(GroupError):
    """The request speaks of a generation that is not the group's. The client joins again."""

    def __init__(self, group_id: str, generation: int, generation_current: int) -> None:
        super().__init__(f"group {group_id!r} is in generation {generation_current}, not {generation}")
        self.group_id = group_id
        self.generation = generation
        self.generation_current = generation_current


class RebalanceInProgressError(GroupError):
    """The client joins again."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"group {group_id!r} is rebalancing; join it again")
        self.group_id = group_id


class InconsistentGroupProtocolError(GroupError):
    """The protocols offered have nothing in common with those of the members, or there are none."""

    def __init__(self, group_id: str, protocol_type: str | None, protocols: tuple[str, ...]) -> None:
        super().__init__(
            f"group {group_id!r} does not go with protocol type {protocol_type!r} and protocols {', '.join(protocols)}"
        )
        self.group_id = group_id
        self.protocol_type = protocol_type
        self.protocols = protocols


class GroupMaxSizeReachedError(GroupError):
    def __init__(self, group_id: str, members_max: int) -> None:
        super().__init__(f"group {group_id!r} has reached its {members_max} members")
        self.group_id = group_id
        self.members_max = members_max


class TooManyGroupsError(GroupError):
    """There is no place for another group. Kafka knows no such bound; POLICY_VIOLATION says it best."""

    def __init__(self, group_id: str, groups_max: int) -> None:
        super().__init__(f"no place for group {group_id!r}: there are {groups_max} groups already")
        self.group_id = group_id
        self.groups_max = groups_max


class GroupIdNotFoundError(GroupError):
    def __init__(self, group_id: str) -> None:
        super().__init__(f"there is no group {group_id!r}")
        self.group_id = group_id


class NonEmptyGroupError(GroupError):
    def __init__(self, group_id: str) -> None:
        super().__init__(f"group {group_id!r} has members")
        self.group_id = group_id


class GroupSubscribedToTopicError(GroupError):
    """Offsets of a topic that a live member subscribes to may not be deleted (KIP-496)."""

    def __init__(self, group_id: str, topic: str) -> None:
        super().__init__(f"group {group_id!r} is subscribed to topic {topic}")
        self.group_id = group_id
        self.topic = topic


class OffsetMetadataTooLargeError(GroupError):
    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"the metadata of an offset has {size} bytes, at most {size_max} are allowed")
        self.size = size
        self.size_max = size_max


class CorruptGroupRecordError(LogbrookError):
    """A record of __consumer_offsets that does not read as one."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} {reason}")
        self.what = what
        self.reason = reason
