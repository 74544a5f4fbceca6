"""The encoder: record batches go through it untouched, and sizes are right."""

import pytest

from logbrook.protocol.encoding import Pieces, assemble, encode
from logbrook.protocol.framing import (
    RequestStart,
    frame_request,
    frame_response,
    read_request_start,
    request_reader,
)
from logbrook.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from logbrook.protocol.messages.metadata import MetadataRequestTopic
from logbrook.protocol.messages.offset_fetch import OffsetFetchRequest
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from logbrook.protocol.reader import primitive
from tests.unit.protocol.every_message import encoded

VERSIONS = range(FetchResponse.VERSIONS.first, FetchResponse.VERSIONS.last + 1)


def fetched(*records: memoryview) -> FetchResponse:
    partitions = [PartitionData(partition_index=n, records=[one]) for n, one in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", VERSIONS)
def test_record_pieces_are_not_copied(version: int) -> None:
    mapped = [bytearray(b"a" * 5000), bytearray(b"b"), bytearray(b"c" * 100)]
    response = fetched(*(memoryview(one) for one in mapped))
    pieces, size = frame_response(7, encode(response, version), has_tags=version >= 12)
    views = [piece for piece in pieces if isinstance(piece, memoryview)]
    assert len(views) == 3
    assert all(view.obj is original for view, original in zip(views, mapped, strict=True))
    assert size == sum(map(len, pieces))


@pytest.mark.parametrize("version", VERSIONS)
def test_between_records_there_is_one_piece(version: int) -> None:
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
            encoded(FetchResponse(responses=[FetchableTopicResponse(partitions=[one])]), version)
            for one in (several, joined)
        ]
        assert responses[0] == responses[1]


def test_produced_bytes_are_not_copied() -> None:
    batch = bytearray(b"batch" * 100)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=batch)])
    pieces = frame_request(RequestStart(0, 9, 1), "c", encode(ProduceRequest(topic_data=[topic]), 9), has_tags=True)
    assert [piece.obj for piece in pieces if isinstance(piece, memoryview)] == [batch]


def test_assemble_joins_what_is_small_and_leaves_views_alone() -> None:
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
    assert b"".join(pieces) == b"\x00\x00\x00\x08\xff\xff\xff\xfebody"
    assert size == 12
    pieces, size = frame_response(1, [memoryview(b"body")], has_tags=True)
    assert b"".join(pieces) == b"\x00\x00\x00\x09\x00\x00\x00\x01\x00body"
    assert size == 13


@pytest.mark.parametrize("client_id", [None, "", "me", "ä" * 100])
def test_a_request_begins_with_what_it_is_and_who_asks(client_id: str | None) -> None:
    start = RequestStart(3, 12, 99)
    frame = b"".join(frame_request(start, client_id, [b"body"], has_tags=True))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    view = memoryview(frame)[4:]
    assert read_request_start(view) == start
    reader = request_reader(view)
    read_client_id, _ = primitive("string", flexible=False, nullable=True)
    assert read_client_id(reader) == client_id
    assert bytes(reader.take(reader.remaining)) == b"\x00body"


def test_a_null_where_the_version_has_none_is_our_own_bug() -> None:
    with pytest.raises(AssertionError):
        encode(OffsetFetchRequest(group_id="g", topics=None), 1)


def test_a_message_reads_well() -> None:
    assert repr(MetadataRequestTopic(name="t")) == f"MetadataRequestTopic(topic_id={bytes(16)!r}, name='t')"
