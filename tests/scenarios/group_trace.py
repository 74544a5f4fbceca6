"""Trace of a group coordinator in a scenario: short lines, with names in place of random ids.

A member id is a prefix (the client id, or the instance id of a static member) and a UUID. It is shown as the prefix and
a count: `a/2` is the second id that was assigned to client `a`.
"""

import re

from logbrook.core.coordinator import CoordinatorError, CoordinatorRecord
from logbrook.core.groups.errors import MemberIdRequiredError
from logbrook.core.groups.messages import GroupDescription, GroupWrite, JoinResult, SyncResult
from logbrook.core.groups.records import GroupKey, decode_group_metadata, decode_key, decode_offset_value

UUID_LENGTH = 36
_MEMBER_ID = re.compile(r"[\w.]+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Trace:
    """Names for member ids, and a line for each event."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def name(self, member_id: str) -> str:
        if not _MEMBER_ID.fullmatch(member_id):
            return member_id or "-"
        if member_id not in self._names:
            prefix = member_id[: -UUID_LENGTH - 1]
            self._counts[prefix] = self._counts.get(prefix, 0) + 1
            name = f"{prefix}/{self._counts[prefix]}"
            self._names[member_id] = name
            self.ids[name] = member_id
        return self._names[member_id]

    def result(self, result: JoinResult | SyncResult | CoordinatorError) -> str:
        if isinstance(result, CoordinatorError):
            return self.error(result)
        if isinstance(result, SyncResult):
            return f"assigned [{result.assignment.decode()}] under {result.protocol_name}"
        role = "leads" if result.leader_id == result.member_id else f"follows {self.name(result.leader_id)}"
        text = f"{self.name(result.member_id)} is in generation {result.generation}, {result.protocol_name}, {role}"
        if result.members:
            text += " " + " ".join(self.name(member.member_id) for member in result.members)
        return text + (", skips assignment" if result.skip_assignment else "")

    def error(self, error: CoordinatorError) -> str:
        name = type(error).__name__.removesuffix("Error")
        return f"{name} {self.name(error.member_id)}" if isinstance(error, MemberIdRequiredError) else name

    def write(self, write: GroupWrite) -> list[str]:
        return [f"write {write.group_id}: {self._record(record)}" for record in write.records]

    def description(self, group: GroupDescription) -> str:
        members = " ".join(self.name(member.member_id) for member in group.members)
        return f"{group.group_id}: {group.state}" + (f" with {members}" if members else "")

    def _record(self, record: CoordinatorRecord) -> str:
        key, value = record
        decoded = decode_key(key)
        assert decoded is not None
        if isinstance(decoded, GroupKey):
            return "no group" if value is None else self._metadata(value)
        if value is None:
            return f"{decoded.partition} has no offset"
        offset = decode_offset_value(value)
        return f"{decoded.partition} at {offset.offset}" + (f" ({offset.metadata})" if offset.metadata else "")

    def _metadata(self, value: bytes) -> str:
        metadata = decode_group_metadata(value)
        if not metadata.members:
            return f"empty in generation {metadata.generation}"
        members = " ".join(
            f"{self.name(member.member_id)}[{member.assignment.decode()}]" for member in metadata.members
        )
        leader = self.name(metadata.leader_id or "")
        return f"generation {metadata.generation}, {metadata.protocol_name}, leader {leader}, {members}"
