"""Record formats of groups: the expected bytes are assembled by hand from Kafka's message definitions."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbrook.core.coordinator import CorruptCoordinatorRecordError
from logbrook.core.groups.records import (
    GroupKey,
    GroupMetadata,
    MemberMetadata,
    OffsetKey,
    OffsetValue,
    decode_group_metadata,
    decode_key,
    decode_offset_value,
)
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def compact(value: bytes) -> bytes:
    return bytes([len(value) + 1]) + value


METADATA = GroupMetadata(
    "consumer",
    7,
    "range",
    "c-1",
    1_234,
    (MemberMetadata("c-1", "i", "c", "/10.0.0.1", 300_000, 45_000, b"sub", b"assign"),),
)
METADATA_V3 = (
    struct.pack(">h", 3)
    + text("consumer")
    + struct.pack(">i", 7)
    + text("range")
    + text("c-1")
    + struct.pack(">q", 1_234)
    + struct.pack(">i", 1)
    + (text("c-1") + text("i") + text("c") + text("/10.0.0.1"))
    + struct.pack(">ii", 300_000, 45_000)
    + (blob(b"sub") + blob(b"assign"))
)


def test_an_offset_key_is_offset_commit_key_v1() -> None:
    data = struct.pack(">h", 1) + text("g") + text("t") + struct.pack(">i", 3)
    assert OffsetKey("g", TopicPartition("t", 3)).encode() == data
    assert decode_key(data) == OffsetKey("g", TopicPartition("t", 3))


def test_the_first_version_of_an_offset_key_is_read_too() -> None:
    data = struct.pack(">h", 0) + text("g") + text("t") + struct.pack(">i", 3)
    assert decode_key(data) == OffsetKey("g", TopicPartition("t", 3))


def test_a_group_key_is_group_metadata_key_v2() -> None:
    data = struct.pack(">h", 2) + text("gruppe")
    assert GroupKey("gruppe").encode() == data
    assert decode_key(data) == GroupKey("gruppe")


@pytest.mark.parametrize("version", [3, 4, 17, 32_767])
def test_keys_of_other_group_protocols_are_skipped(version: int) -> None:
    assert decode_key(struct.pack(">h", version) + b"whatever") is None


def test_an_offset_value_is_offset_commit_value_v3() -> None:
    data = struct.pack(">hqi", 3, 42, 5) + text("note") + struct.pack(">q", 99)
    value = OffsetValue(Offset(42), LeaderEpoch(5), "note", 99)
    assert value.encode() == data
    assert decode_offset_value(data) == value


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            struct.pack(">hq", 0, 42) + text("note") + struct.pack(">q", 99),
            OffsetValue(Offset(42), LeaderEpoch(-1), "note", 99),
        ),
        (
            struct.pack(">hq", 1, 42) + text("note") + struct.pack(">qq", 99, 500),
            OffsetValue(Offset(42), LeaderEpoch(-1), "note", 99, 500),
        ),
        (
            struct.pack(">hq", 1, 42) + text("note") + struct.pack(">qq", 99, -1),
            OffsetValue(Offset(42), LeaderEpoch(-1), "note", 99),
        ),
        (
            struct.pack(">hq", 2, 42) + text("note") + struct.pack(">q", 99),
            OffsetValue(Offset(42), LeaderEpoch(-1), "note", 99),
        ),
        (
            struct.pack(">hqi", 4, 42, 5) + compact(b"note") + struct.pack(">q", 99) + b"\x00",
            OffsetValue(Offset(42), LeaderEpoch(5), "note", 99),
        ),
        (
            struct.pack(">hqi", 4, 42, 5) + compact(b"note") + struct.pack(">q", 99) + b"\x01\x00\x10" + bytes(16),
            OffsetValue(Offset(42), LeaderEpoch(5), "note", 99),
        ),
    ],
    ids=["v0", "v1", "v1 without expiry", "v2", "v4", "v4 with an unknown tag"],
)
def test_other_versions_of_an_offset_are_read(data: bytes, expected: OffsetValue) -> None:
    assert decode_offset_value(data) == expected


def test_group_metadata_is_group_metadata_value_v3() -> None:
    assert METADATA.encode() == METADATA_V3
    assert decode_group_metadata(METADATA_V3) == METADATA


def test_an_empty_group_has_neither_protocol_nor_leader() -> None:
    empty = GroupMetadata("consumer", 8, None, None, None, ())
    data = struct.pack(">h", 3) + text("consumer") + struct.pack(">ihhqi", 8, -1, -1, -1, 0)
    assert empty.encode() == data
    assert decode_group_metadata(data) == empty


def test_old_versions_of_group_metadata_are_read() -> None:
    head = text("consumer") + struct.pack(">i", 7) + text("range") + text("c-1")
    names = text("c-1") + text("c") + text("h")
    blobs = blob(b"s") + blob(b"a")
    v0 = decode_group_metadata(
        struct.pack(">h", 0) + head + struct.pack(">i", 1) + names + struct.pack(">i", 45) + blobs
    )
    v1 = decode_group_metadata(
        struct.pack(">h", 1) + head + struct.pack(">i", 1) + names + struct.pack(">ii", 300, 45) + blobs
    )
    v2 = decode_group_metadata(
        struct.pack(">h", 2) + head + struct.pack(">qi", 9, 1) + names + struct.pack(">ii", 300, 45) + blobs
    )
    assert v0.members == (MemberMetadata("c-1", None, "c", "h", 45, 45, b"s", b"a"),), "sessions were rebalances once"
    assert v1.members == v2.members == (MemberMetadata("c-1", None, "c", "h", 300, 45, b"s", b"a"),)
    assert (v0.state_timestamp_ms, v1.state_timestamp_ms, v2.state_timestamp_ms) == (None, None, 9)


def test_flexible_group_metadata_is_read() -> None:
    data = (
        struct.pack(">h", 4)
        + (compact(b"consumer") + struct.pack(">i", 7) + compact(b"range") + compact(b"c-1"))
        + (struct.pack(">q", 1_234) + b"\x02")
        + (compact(b"c-1") + compact(b"i") + compact(b"c") + compact(b"/10.0.0.1"))
        + struct.pack(">ii", 300_000, 45_000)
        + (compact(b"sub") + compact(b"assign") + b"\x00" + b"\x00")
    )
    assert decode_group_metadata(data) == METADATA


def test_metadata_that_is_cut_short_is_corrupt() -> None:
    for length in range(len(METADATA_V3)):
        with pytest.raises(CorruptCoordinatorRecordError):
            decode_group_metadata(METADATA_V3[:length])


def test_trailing_bytes_are_corrupt() -> None:
    for decode, data in (
        (decode_group_metadata, METADATA_V3),
        (decode_offset_value, OffsetValue(Offset(1), LeaderEpoch(2), "", 3).encode()),
        (decode_key, GroupKey("g").encode()),
    ):
        with pytest.raises(CorruptCoordinatorRecordError, match="too many"):
            decode(data + b"x")


@pytest.mark.parametrize("version", [-1, 5, 32_767])
def test_an_unknown_version_of_a_value_is_corrupt(version: int) -> None:
    with pytest.raises(CorruptCoordinatorRecordError, match="version"):
        decode_offset_value(struct.pack(">h", version) + bytes(40))
    with pytest.raises(CorruptCoordinatorRecordError, match="version"):
        decode_group_metadata(struct.pack(">h", version) + bytes(40))


@pytest.mark.parametrize("count", [2, 2**31 - 1, -1])
def test_an_impossible_member_count_is_refused_before_any_member_is_read(count: int) -> None:
    data = struct.pack(">h", 3) + text("consumer") + struct.pack(">ihhqi", 8, -1, -1, -1, count)
    with pytest.raises(CorruptCoordinatorRecordError, match=r"counts|null"):
        decode_group_metadata(data)


def test_a_duplicate_member_is_corrupt() -> None:
    twice = GroupMetadata("consumer", 7, "range", "c-1", 1, METADATA.members * 2)
    with pytest.raises(CorruptCoordinatorRecordError, match="twice"):
        decode_group_metadata(twice.encode())


def test_members_without_a_protocol_are_corrupt() -> None:
    with pytest.raises(CorruptCoordinatorRecordError, match="protocol"):
        decode_group_metadata(GroupMetadata("consumer", 7, None, "c-1", 1, METADATA.members).encode())


@given(st.binary(max_size=200))
def test_random_bytes_raise_a_typed_error_or_decode(data: bytes) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_metadata):
        with suppress(CorruptCoordinatorRecordError):
            decode(data)


@given(st.integers(0, 4), st.binary(max_size=200))
def test_random_bytes_after_a_version_raise_a_typed_error_or_decode(version: int, data: bytes) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_metadata):
        with suppress(CorruptCoordinatorRecordError):
            decode(struct.pack(">h", version) + data)


NAMES = st.text(max_size=20)
NUMBERS = st.integers(-(2**31), 2**31 - 1)


@given(
    st.builds(
        GroupMetadata,
        NAMES,
        NUMBERS,
        NAMES,
        st.none() | NAMES,
        st.none() | st.integers(0, 2**62),
        st.lists(
            st.builds(
                MemberMetadata, NAMES, st.none() | NAMES, NAMES, NAMES, NUMBERS, NUMBERS, st.binary(), st.binary()
            ),
            max_size=4,
            unique_by=(lambda member: member.member_id, lambda member: (member.group_instance_id, member.member_id)),
        ).map(tuple),
    ).filter(
        lambda metadata: (
            len({m.group_instance_id for m in metadata.members if m.group_instance_id is not None})
            == len([m for m in metadata.members if m.group_instance_id is not None])
        )
    )
)
def test_encoded_values_decode_to_the_same_value(metadata: GroupMetadata) -> None:
    assert decode_group_metadata(metadata.encode()) == metadata
