"""The records of `__consumer_offsets`, in Kafka's own binary formats, so that Kafka's tools can read the topic.

A key starts with a version that determines its type: 0 and 1 an offset, 2 a group. (Later ones belong to the group
protocols of KIP-848 and KIP-932; readers ignore unknown types, as KIP-915 requires.) OffsetCommitKey v1,
OffsetCommitValue v3, GroupMetadataKey v2 and GroupMetadataValue v3 are written; all versions up to the flexible 4 are
read. A value of None is a tombstone. Field layouts: apache/kafka, group-coordinator/src/main/resources/common/message.
"""

from dataclasses import dataclass

from logbrook.core.coordinator import CorruptCoordinatorRecordError
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.records.fields import FieldReader, FieldWriter

_OFFSET_KEY_VERSION = 1
_GROUP_KEY_VERSION = 2
_VALUE_VERSION = 3
_VALUE_VERSION_MAX = 4
_FIRST_FLEXIBLE_VERSION = 4
# Minimum size of an encoded member (flexible, all fields empty): bounds the member count of a corrupt record.
_MEMBER_BYTES_MIN = 10
_NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class OffsetKey:
    group_id: str
    partition: TopicPartition

    def encode(self) -> bytes:
        writer = FieldWriter().int16(_OFFSET_KEY_VERSION).string(self.group_id)
        return writer.string(self.partition.topic).int32(self.partition.partition).finish()


@dataclass(frozen=True, slots=True)
class GroupKey:
    group_id: str

    def encode(self) -> bytes:
        return FieldWriter().int16(_GROUP_KEY_VERSION).string(self.group_id).finish()


@dataclass(frozen=True, slots=True)
class OffsetValue:
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_timestamp_ms: int
    # Only in version 1, where the client chose the retention.
    expire_timestamp_ms: int | None = None

    def encode(self) -> bytes:
        writer = FieldWriter().int16(_VALUE_VERSION).int64(self.offset).int32(self.leader_epoch)
        return writer.string(self.metadata).int64(self.commit_timestamp_ms).finish()


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    # When the group entered its state; None before version 2.
    state_timestamp_ms: int | None
    members: tuple[MemberMetadata, ...]

    def encode(self) -> bytes:
        writer = FieldWriter().int16(_VALUE_VERSION).string(self.protocol_type).int32(self.generation)
        writer.nullable_string(self.protocol_name).nullable_string(self.leader_id)
        writer.int64(_NO_TIMESTAMP if self.state_timestamp_ms is None else self.state_timestamp_ms)
        writer.array_count(len(self.members))
        for member in self.members:
            writer.string(member.member_id).nullable_string(member.group_instance_id)
            writer.string(member.client_id).string(member.client_host)
            writer.int32(member.rebalance_timeout_ms).int32(member.session_timeout_ms)
            writer.byte_string(member.subscription).byte_string(member.assignment)
        return writer.finish()


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    """Return the decoded key; None for unknown record types. Raises CorruptCoordinatorRecordError."""
    reader = FieldReader(data, "the key of a group record", CorruptCoordinatorRecordError)
    version = reader.int16()
    if version < 0:
        raise reader.error(f"has version {version}")
    if version > _GROUP_KEY_VERSION:
        return None
    group_id = reader.string()
    key: OffsetKey | GroupKey
    if version == _GROUP_KEY_VERSION:
        key = GroupKey(group_id)
    else:
        key = OffsetKey(group_id, TopicPartition(reader.string(), reader.int32()))
    reader.end()
    return key


def decode_offset_value(data: bytes) -> OffsetValue:
    """Raises CorruptCoordinatorRecordError."""
    reader = FieldReader(data, "the value of an offset", CorruptCoordinatorRecordError)
    version = _read_version(reader)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == 1 else _NO_TIMESTAMP
    reader.tagged_fields()
    reader.end()
    return OffsetValue(
        Offset(offset),
        LeaderEpoch(leader_epoch),
        metadata,
        commit_timestamp_ms,
        _timestamp_or_none(expire_timestamp_ms),
    )


def decode_group_metadata(data: bytes) -> GroupMetadata:
    """Raises CorruptCoordinatorRecordError."""
    reader = FieldReader(data, "the metadata of a group", CorruptCoordinatorRecordError)
    version = _read_version(reader)
    metadata = GroupMetadata(
        protocol_type=reader.string(),
        generation=reader.int32(),
        protocol_name=reader.nullable_string(),
        leader_id=reader.nullable_string(),
        state_timestamp_ms=_timestamp_or_none(reader.int64()) if version >= 2 else None,
        members=tuple(_read_member(reader, version) for _ in range(reader.array_count(_MEMBER_BYTES_MIN))),
    )
    reader.tagged_fields()
    reader.end()
    if metadata.members and metadata.protocol_name is None:
        raise reader.error("has members but no protocol")
    instance_ids = [member.group_instance_id for member in metadata.members if member.group_instance_id is not None]
    for ids in ([member.member_id for member in metadata.members], instance_ids):
        if len(set(ids)) != len(ids):
            raise reader.error("has the same member twice")
    return metadata


def _read_version(reader: FieldReader) -> int:
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise reader.error(f"has version {version}")
    reader.flexible = version >= _FIRST_FLEXIBLE_VERSION
    return version


def _read_member(reader: FieldReader, version: int) -> MemberMetadata:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else None
    session_timeout_ms = reader.int32()
    member = MemberMetadata(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        session_timeout_ms,
        subscription=reader.byte_string(),
        assignment=reader.byte_string(),
    )
    reader.tagged_fields()
    return member


def _timestamp_or_none(timestamp_ms: int) -> int | None:
    return None if timestamp_ms == _NO_TIMESTAMP else timestamp_ms
