"""Decoding of valid messages, also of those from newer clients."""

from typing import TypeVar

import pytest

from logbrook.protocol.decoding import decode
from logbrook.protocol.encoding import encode, uvarint
from logbrook.protocol.errors import MalformedMessageError
from logbrook.protocol.messages.api_versions import ApiVersionsResponse
from logbrook.protocol.messages.metadata import MetadataRequest
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from logbrook.protocol.reader import ELEMENTS_MAX, Reader, read_uvarint
from logbrook.protocol.schema import Field, Message
from tests.unit.protocol.every_message import CASES, Case, encoded, plain
from tests.unit.protocol.samples import Sampler

M = TypeVar("M", bound=Message)

FLEXIBLE = [case for case in CASES if case.is_flexible]


def reader_of(data: bytes) -> Reader:
    return Reader(memoryview(data))


def newer(message: type[M], case: Case) -> type[M]:
    """The message as a newer client defines it: each of its structs has additional tagged fields."""
    fields = [
        field if isinstance(field.kind, str) else field._replace(kind=newer(field.kind, case))
        for field in message.FIELDS
    ]
    fields.append(Field("new_string", "string", case.message.VERSIONS, tag=100, default=None))
    fields.append(Field("new_array", "int64", case.message.VERSIONS, array=True, tag=2**31, default=None))
    return type(message.__name__, (message,), {"FIELDS": tuple(fields)})


def test_unknown_tagged_fields_are_skipped_wherever_they_are() -> None:
    """KIP-482."""
    for case in FLEXIBLE:
        sent = Sampler(str(case), full=True).message(newer(case.message, case), case.version)
        data = encoded(sent, case.version)
        decoded = decode(case.message, case.version, reader_of(data))
        reencoded = encoded(decoded, case.version)
        assert len(reencoded) < len(data), case
        known_fields = plain(decode(case.message, case.version, reader_of(reencoded)), case.version)
        assert is_subset(known_fields, plain(sent, case.version)), case


def is_subset(older: object, newer: object) -> bool:
    """Return True if every field of `older` has the same value in `newer`."""
    if isinstance(older, dict) and isinstance(newer, dict):
        return all(is_subset(value, newer[name]) for name, value in older.items())
    if isinstance(older, list) and isinstance(newer, list):
        return len(older) == len(newer) and all(map(is_subset, older, newer))
    return older == newer


def test_every_version_of_every_message_decodes_to_the_message_encoded() -> None:
    for case in CASES:
        for number in range(4):
            sent = Sampler(f"{case} {number}").message(case.message, case.version)
            decoded = decode(case.message, case.version, reader_of(encoded(sent, case.version)))
            assert plain(decoded, case.version) == plain(sent, case.version), case


def test_bytes_after_the_end_of_a_message_are_ignored() -> None:
    """The same as in Kafka; librdkafka sends such bytes."""
    for case in CASES:
        sent = Sampler(str(case), full=True).message(case.message, case.version)
        decoded = decode(case.message, case.version, reader_of(encoded(sent, case.version) + b"\xff\xff\xff"))
        assert plain(decoded, case.version) == plain(sent, case.version), case


def test_fields_that_a_version_lacks_have_their_defaults() -> None:
    decoded = decode(MetadataRequest, 1, reader_of(encoded(MetadataRequest(topics=None), 1)))
    assert decoded.topics is None
    assert decoded.allow_auto_topic_creation is True


def test_records_are_a_view_of_the_frame() -> None:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"r" * 1000)])]
    frame = bytearray(encoded(ProduceRequest(topic_data=data), 9))
    records = decode(ProduceRequest, 9, Reader(memoryview(frame))).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_the_last_of_two_tagged_fields_with_the_same_tag_counts() -> None:
    start = b"".join(encode(ApiVersionsResponse(), 3))[:-1]
    epochs = [uvarint(1) + uvarint(8) + number.to_bytes(8, "big") for number in (5, 6)]
    decoded = decode(ApiVersionsResponse, 3, reader_of(start + b"\x02" + b"".join(epochs)))
    assert decoded.finalized_features_epoch == 6


@pytest.mark.parametrize("length", [0, 7, 9])
def test_a_tagged_field_of_another_length_is_refused(length: int) -> None:
    start = b"".join(encode(ApiVersionsResponse(), 3))[:-1]
    with pytest.raises(MalformedMessageError):
        decode(ApiVersionsResponse, 3, reader_of(start + b"\x01\x01" + uvarint(length) + bytes(length)))


def test_elements_within_tagged_fields_count_towards_the_most_that_a_message_may_have() -> None:
    start = b"".join(encode(ApiVersionsResponse(), 3))[:-1]
    count = ELEMENTS_MAX // 2
    elements = uvarint(count + 1) + b"\x01\x00\x00\x00\x00\x00" * count
    array = uvarint(0) + uvarint(len(elements)) + elements
    decode(ApiVersionsResponse, 3, reader_of(start + b"\x01" + array))
    with pytest.raises(MalformedMessageError, match="more than"):
        decode(ApiVersionsResponse, 3, reader_of(start + b"\x03" + 3 * array))


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="UTF-8"):
        decode(MetadataRequest, 0, reader_of(b"\x00\x00\x00\x01\x00\x02\xc3\x28"))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**14, 2**28, 2**31, 2**32 - 1])
def test_a_varint_reads_back(value: int) -> None:
    reader = reader_of(uvarint(value) + b"!")
    assert read_uvarint(reader) == value
    assert bytes(reader.take(1)) == b"!"


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\xff" * 4, b"\xff" * 5, b"\x80" * 5 + b"\x01", b"\xff\xff\xff\xff\x10"]
)
def test_a_varint_longer_than_32_bits_is_refused(data: bytes) -> None:
    reader = reader_of(data)
    with pytest.raises(MalformedMessageError):
        read_uvarint(reader)
