"""The encoder: record batches are not copied, and sizes are correct."""

from typing import cast

import pytest

from logbrook.protocol.encoding import Pieces, assemble, encode
from logbrook.protocol.errors import MalformedMessageError
from logbrook.protocol.framing import (
    RequestStart,
    frame_request,
    frame_response,
    read_request_body,
    read_request_start,
)
from logbrook.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from logbrook.protocol.messages.metadata import MetadataRequestTopic
from logbrook.protocol.messages.offset_fetch import OffsetFetchRequest
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.protocol.every_message import encoded

VERSIONS = range(FetchResponse.VERSIONS.first, FetchResponse.VERSIONS.last + 1)


def fetched(*records: memoryview) -> FetchResponse:
    partitions = [PartitionData(partition_index=n, records=[piece]) for n, piece in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", VERSIONS)
def test_record_pieces_are_not_copied(version: int) -> None:
    mapped = [bytearray(b"a" * 5000), bytearray(b"b"), bytearray(b"c" * 100)]
    response = fetched(*(memoryview(pages) for pages in mapped))
    pieces, size = frame_response(7, encode(response, version), has_tags=version >= 12)
    views = [piece for piece in pieces if isinstance(piece, memoryview)]
    assert len(views) == 3
    assert all(view.obj is original for view, original in zip(views, mapped, strict=True))
    assert size == sum(map(len, pieces))


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_between_records_are_one_piece(version: int) -> None:
    views = [memoryview(b"a"), memoryview(b"b"), memoryview(b"c")]
    pieces, _ = frame_response(7, encode(fetched(*views), version), has_tags=version >= 12)
    # Flexible versions have tags after the last records, too.
    assert [isinstance(piece, memoryview) for piece in pieces] == ([False, True] * 3 + [False] * (version >= 12))


def test_records_in_several_pieces_have_the_length_of_them_all() -> None:
    pieces = [memoryview(b"abc"), memoryview(b""), memoryview(b"de")]
    several = PartitionData(records=pieces)
    joined = PartitionData(records=b"abcde")
    for version in VERSIONS:
        responses = [
            encoded(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), version)
            for partition in (several, joined)
        ]
        assert responses[0] == responses[1]


def test_produced_bytes_are_not_copied() -> None:
    batch = bytearray(b"batch" * 100)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=batch)])
    pieces = frame_request(RequestStart(0, 9, 1), "c", encode(ProduceRequest(topic_data=[topic]), 9), has_tags=True)
    assert [piece.obj for piece in pieces if isinstance(piece, memoryview)] == [batch]


def test_assemble_joins_small_parts_and_keeps_views() -> None:
    view = memoryview(bytearray(b"records"))
    pieces: Pieces = [b"a", bytearray(b"b"), view, view, b"", b"c"]
    joined, size = assemble(pieces)
    assert joined == [b"ab", view, view, b"c"]
    assert joined[1] is view
    assert size == 17


def test_assemble_of_nothing_is_nothing() -> None:
    assert assemble([]) == ([], 0)


def test_a_response_has_its_length_and_correlation_id_in_front() -> None:
    pieces, size = frame_response(-2, [b"body"], has_tags=False)
    assert b"".join(cast(Pieces, pieces)) == b"\x00\x00\x00\x08\xff\xff\xff\xfebody"
    assert size == 12
    pieces, size = frame_response(1, [memoryview(b"body")], has_tags=True)
    assert b"".join(cast(Pieces, pieces)) == b"\x00\x00\x00\x09\x00\x00\x00\x01\x00body"
    assert size == 13


@pytest.mark.parametrize("client_id", [None, "", "me", "ä" * 100])
def test_a_request_begins_with_its_api_key_version_and_client_id(client_id: str | None) -> None:
    start = RequestStart(3, 12, 99)
    frame = b"".join(frame_request(start, client_id, [b"body"], has_tags=True))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    view = memoryview(frame)[4:]
    assert read_request_start(view) == start
    decoded, reader = read_request_body(view, has_tags=True)
    assert decoded == (client_id or "")
    assert bytes(reader.take(reader.remaining)) == b"body"


def test_a_request_header_that_ends_early_or_has_an_invalid_client_id_is_malformed() -> None:
    for client_id in (b"", b"\x00", b"\xff\xfe", b"\x00\x02a", b"\x00\x01\xff"):
        with pytest.raises(MalformedMessageError):
            read_request_body(memoryview(bytes(8) + client_id), has_tags=False)
    with pytest.raises(MalformedMessageError):
        read_request_body(memoryview(bytes(8) + b"\xff\xff"), has_tags=True)


def test_the_tags_of_a_request_header_are_skipped() -> None:
    tags = b"\x01\x07\x02ab"
    client_id, reader = read_request_body(memoryview(bytes(8) + b"\x00\x01m" + tags + b"body"), has_tags=True)
    assert (client_id, bytes(reader.take(reader.remaining))) == ("m", b"body")


def test_encoding_a_null_where_the_version_has_none_fails_an_assertion() -> None:
    with pytest.raises(AssertionError):
        encode(OffsetFetchRequest(group_id="g", topics=None), 1)


def test_a_message_reads_well() -> None:
    assert repr(MetadataRequestTopic(name="t")) == f"MetadataRequestTopic(topic_id={bytes(16)!r}, name='t')"
