"""The JSON protocol without a socket: frames, and the objects in them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbrook.model.identifiers import Offset
from logbrook.protocol.errors import FrameTooLargeError, MalformedMessageError
from logbrook.protocol.framing import ReceiveBuffers
from logbrook.protocol.json_frames import (
    VALUES_MAX,
    InvalidRequestError,
    JsonFrameReader,
    RequestType,
    decode_object,
    encode_frame,
)
from logbrook.protocol.json_requests import (
    HEADERS_MAX,
    RECORDS_MAX,
    Authenticate,
    CreateTopic,
    DescribePartition,
    DescribeTopic,
    Encoding,
    Fetch,
    Isolation,
    ListTopics,
    MetricsFetch,
    OffsetCommit,
    OffsetFetch,
    Ping,
    Position,
    Produce,
    Request,
    read_id,
    read_request,
    record_object,
)
from logbrook.records.record import RawRecord, Record

LIMIT = 1000
PLACE = {"topic": "t", "partition": 1}


def reader(chunk_bytes: int = 64 * 1024) -> JsonFrameReader:
    return JsonFrameReader(ReceiveBuffers(chunk_bytes), lambda: LIMIT)


def feed(frames: JsonFrameReader, data: bytes, at_once: int = 1 << 20) -> Iterator[bytes]:
    while data:
        room = frames.buffer()
        size = min(len(room), len(data), at_once)
        room[:size] = data[:size]
        data = data[size:]
        yield from map(bytes, frames.received(size))


# Frames


@pytest.mark.parametrize("at_once", [1, 2, 7, 1000])
@pytest.mark.parametrize("chunk_bytes", [16, 64 * 1024])
def test_frames_are_found_however_they_are_cut(at_once: int, chunk_bytes: int) -> None:
    sent = [encode_frame(10, "{}"), b"\0\0\0\1\6", encode_frame(1, {"a": "x" * 900}), encode_frame(255, {"é": 1})]
    assert list(feed(reader(chunk_bytes), b"".join(sent), at_once)) == [frame[4:] for frame in sent]


@pytest.mark.parametrize(
    ("length", "kind"),
    [(0, MalformedMessageError), (-1, MalformedMessageError), (LIMIT + 1, FrameTooLargeError)],
)
@pytest.mark.parametrize("at_once", [1, 1000])
def test_a_length_that_cannot_be_breaks_the_stream_where_it_stands(length: int, kind: type, at_once: int) -> None:
    frames = reader()
    good = encode_frame(10, "{}")
    bad = length.to_bytes(4, "big", signed=True) + b"\1"
    assert list(feed(frames, good + bad + good, at_once)) == [good[4:], b""]
    assert isinstance(frames.broken, kind)
    assert list(feed(frames, good * 10)) == []
    assert frames.held_bytes == 0


def test_the_largest_frame_is_taken() -> None:
    frame = (LIMIT).to_bytes(4, "big") + b"\1" * LIMIT
    assert list(feed(reader(), frame)) == [frame[4:]]


def test_a_frame_is_a_length_a_type_and_an_object() -> None:
    assert encode_frame(129, {"a": "ü"}) == b'\0\0\0\x0b\x81{"a":"\xc3\xbc"}'


@pytest.mark.parametrize(
    ("body", "request_id", "text"),
    [
        ({}, None, "{}"),
        ({}, 7, '{"id":7}'),
        ({"a": 1}, "x", '{"id":"x","a":1}'),
        ('{"records":[]}', 0, '{"id":0,"records":[]}'),
    ],
)
def test_an_answer_has_the_id_of_its_request(body: Any, request_id: Any, text: str) -> None:
    assert encode_frame(1, body, request_id)[5:].decode() == text


# Objects


def test_an_empty_object_may_be_left_out() -> None:
    assert decode_object(memoryview(b"")) == decode_object(memoryview(b" {} ")) == {}


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"[]",
        b"1",
        b"null",
        b"\xff",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b"[" * 30_000,
        b"{} {}",
    ],
    ids=lambda payload: repr(payload[:12]),
)
def test_a_payload_that_is_not_a_json_object_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        decode_object(memoryview(payload))


@given(st.binary(max_size=60))
def test_no_bytes_do_worse_than_being_refused(payload: bytes) -> None:
    try:
        decoded = decode_object(memoryview(payload))
        read_id(decoded)
        read_request(RequestType.PING, decoded)
    except InvalidRequestError:
        pass


# Besides them there are the last one, the list and the object.
FULL = VALUES_MAX - 3


@pytest.mark.parametrize(
    "payload",
    [
        b'{"a":[%b1]}' % (b"1," * FULL),
        b'{"a":[%b1]}' % (b'"",' * FULL),
        b'{"a":[%b1]}' % (b"1.5," * FULL),
        b"{%b}" % b",".join(b'"%x":1' % number for number in range(VALUES_MAX - 1)),
        b'{"a":"%b"}' % (b",[{" * VALUES_MAX),
        b'{"a":"%b"}' % (b'\\",[' * VALUES_MAX),
        b'{"a":"%b","b":1}' % (b"\\\\," * VALUES_MAX),
    ],
    ids=lambda payload: repr(payload[:20]),
)
def test_the_maximum_number_of_values_is_accepted_and_text_content_does_not_count(payload: bytes) -> None:
    assert decode_object(memoryview(payload))


@pytest.mark.parametrize(
    "payload",
    [
        b'{"a":[%b1]}' % (b"1," * (FULL + 1)),
        b'{"a":[%b1]}' % (b"[]," * (FULL // 2 + 1)),
        b'{"a":[%b1]}' % (b'"\\"",' * (FULL + 1)),
        b'{"a":[%b1]}' % (b'"\\\\",' * (FULL + 1)),
        b'{"a":[%b1]}' % (b'"",' * (8 * FULL)),
        b"{%b}" % b",".join(b'"%x":1' % number for number in range(VALUES_MAX)),
        b'{"a":%b' % (b"[" * VALUES_MAX),
    ],
    ids=lambda payload: repr(payload[:20]),
)
def test_more_values_are_refused_before_they_are_read(payload: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="more than 32768 values"):
        decode_object(memoryview(payload))


@pytest.mark.parametrize("number", [b"1.5", b"-1.5e300", b"1e5", b"9" * 30, b"9" * 100_000, b"-" + b"9" * 5_000])
def test_a_number_that_is_no_field_is_not_worked_out_and_not_taken(number: bytes) -> None:
    decoded = decode_object(memoryview(b'{"id":%b,"offset":%b}' % (number, number)))
    with pytest.raises(InvalidRequestError, match="id must be a whole number"):
        read_id(decoded)
    with pytest.raises(InvalidRequestError, match="'offset' must be"):
        read_request(RequestType.FETCH, {**PLACE, "offset": decoded["offset"]})


# Requests

GOOD: list[tuple[RequestType, dict[str, Any], Request]] = [
    (RequestType.PRODUCE, {**PLACE, "records": [{}]}, Produce("t", 1, [Record()])),
    (
        RequestType.PRODUCE,
        {
            **PLACE,
            "records": [
                {"key": "k", "value_base64": "/wA=", "timestamp": 5},
                {"value": "ü", "headers": [{"key": "h"}, {"key": "h", "value_base64": ""}]},
            ],
        },
        Produce(
            "t",
            1,
            [Record(b"k", b"\xff\0", [], 5), Record(None, "ü".encode(), [("h", None), ("h", b"")])],
        ),
    ),
    (
        RequestType.FETCH,
        {**PLACE, "offset": 3},
        Fetch("t", 1, 3, None, 1 << 20, 0, Isolation.READ_COMMITTED, Encoding.AUTO),
    ),
    (
        RequestType.FETCH,
        {
            **PLACE,
            "offset": "latest",
            "group_id": "g",
            "max_bytes": 0,
            "max_wait_ms": 9,
            "isolation": "read_uncommitted",
            "encoding": "base64",
        },
        Fetch("t", 1, Position.LATEST, "g", 0, 9, Isolation.READ_UNCOMMITTED, Encoding.BASE64),
    ),
    (RequestType.OFFSET_COMMIT, {**PLACE, "group": "g", "offset": 0}, OffsetCommit("g", "t", 1, 0, "")),
    (RequestType.OFFSET_FETCH, {**PLACE, "group": "g"}, OffsetFetch("g", "t", 1)),
    (RequestType.CREATE_TOPIC, {"topic": "t"}, CreateTopic("t", None, {})),
    (
        RequestType.CREATE_TOPIC,
        {"topic": "t", "partition_count": 3, "settings": {"retention.ms": "5"}},
        CreateTopic("t", 3, {"retention.ms": "5"}),
    ),
    (RequestType.LIST_TOPICS, {"id": 5}, ListTopics()),
    (RequestType.DESCRIBE_TOPIC, {"topic": "t"}, DescribeTopic("t")),
    (RequestType.DESCRIBE_PARTITION, PLACE, DescribePartition("t", 1)),
    (RequestType.METRICS_FETCH, {}, MetricsFetch("")),
    (RequestType.METRICS_FETCH, {"prefix": "a"}, MetricsFetch("a")),
    (RequestType.PING, {}, Ping()),
    (RequestType.AUTHENTICATE, {"user": "alice", "password": ""}, Authenticate("alice", "", None)),
    (RequestType.AUTHENTICATE, {"token": "t"}, Authenticate(None, None, "t")),
]


@pytest.mark.parametrize(("kind", "fields", "request_"), GOOD)
def test_a_request_is_read(kind: RequestType, fields: dict[str, Any], request_: Request) -> None:
    assert read_request(kind, fields) == request_


def test_every_request_has_a_sample() -> None:
    assert {kind for kind, _, _ in GOOD} == set(RequestType)


@pytest.mark.parametrize(("kind", "fields", "request_"), GOOD)
def test_a_field_that_is_not_known_is_refused(kind: RequestType, fields: dict[str, Any], request_: Request) -> None:
    with pytest.raises(InvalidRequestError, match="'topik'"):
        read_request(kind, {**fields, "topik": 1})


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (RequestType.PRODUCE, {"partition": 0, "records": [{}]}, "Produce needs the field 'topic'"),
        (RequestType.PRODUCE, {**PLACE, "topic": 1, "records": [{}]}, "Produce: 'topic' must be a text"),
        (RequestType.PRODUCE, {**PLACE, "topic": "\ud800", "records": [{}]}, "'topic' must be a text"),
        (RequestType.PRODUCE, {**PLACE, "topic": None, "records": [{}]}, "'topic' must be a text"),
        (RequestType.PRODUCE, {**PLACE, "partition": -1, "records": [{}]}, "'partition' must be a whole number from 0"),
        (RequestType.PRODUCE, {**PLACE, "partition": True, "records": [{}]}, "'partition' must be a whole number"),
        (RequestType.PRODUCE, {**PLACE, "partition": 2**31, "records": [{}]}, "'partition' must be a whole number"),
        (RequestType.PRODUCE, {**PLACE, "records": []}, "'records' must be a list of 1 to"),
        (RequestType.PRODUCE, {**PLACE, "records": [{}] * (RECORDS_MAX + 1)}, "'records' must be a list of 1 to"),
        (
            RequestType.PRODUCE,
            {**PLACE, "records": [{"headers": [{"key": "k"}] * HEADERS_MAX}, {"headers": [{"key": "k"}]}]},
            "'records' must be a list of records with at most 4000 headers in all",
        ),
        (RequestType.PRODUCE, {**PLACE, "records": [{}, 1]}, "record 1 must be an object"),
        (RequestType.PRODUCE, {**PLACE, "records": [{"value": 1}]}, "record 0: 'value' must be a text"),
        (RequestType.PRODUCE, {**PLACE, "records": [{"val": "1"}]}, "record 0 has no field 'val'"),
        (RequestType.PRODUCE, {**PLACE, "records": [{"value": "\ud800"}]}, "record 0: 'value' must be a text"),
        (RequestType.PRODUCE, {**PLACE, "records": [{"value_base64": 1}]}, "record 0: 'value_base64' must be a text"),
        (RequestType.PRODUCE, {**PLACE, "records": [{"value_base64": "ü"}]}, "'value_base64' must be base64"),
        (
            RequestType.PRODUCE,
            {**PLACE, "records": [{"key": "a", "key_base64": "YQ=="}]},
            "record 0 has both 'key' and 'key_base64'",
        ),
        (RequestType.PRODUCE, {**PLACE, "records": [{"key_base64": "?"}]}, "record 0: 'key_base64' must be base64"),
        (RequestType.PRODUCE, {**PLACE, "records": [{"headers": {}}]}, "record 0: 'headers' must be a list"),
        (RequestType.PRODUCE, {**PLACE, "records": [{"headers": [{}]}]}, "record 0, header 0 needs the field 'key'"),
        (RequestType.PRODUCE, {**PLACE, "records": [{"headers": [1]}]}, "record 0, header 0 must be an object"),
        (RequestType.PRODUCE, {**PLACE, "records": [{"timestamp": -5}]}, "record 0: 'timestamp' must be"),
        (RequestType.FETCH, PLACE, "Fetch needs the field 'offset', or 'group_id'"),
        (RequestType.FETCH, {**PLACE, "offset": -1}, "'offset' must be"),
        (RequestType.FETCH, {**PLACE, "offset": "first"}, "'offset' must be"),
        (RequestType.FETCH, {**PLACE, "offset": 0, "isolation": "none"}, "'read_committed' or 'read_uncommitted'"),
        (RequestType.FETCH, {**PLACE, "offset": 0, "encoding": []}, "'auto' or 'base64'"),
        (RequestType.CREATE_TOPIC, {"topic": "t", "settings": {"a": 1}}, "'settings' must be an object"),
        (RequestType.CREATE_TOPIC, {"topic": "t", "settings": []}, "'settings' must be an object"),
    ],
)
def test_an_invalid_field_is_named_in_the_error(kind: RequestType, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        read_request(kind, fields)
    assert message in str(raised.value)


@pytest.mark.parametrize("request_id", [0, -5, "", "x" * 256, 2**63 - 1, None])
def test_an_id_is_a_number_or_a_short_text(request_id: Any) -> None:
    assert read_id({"id": request_id}) == request_id


@pytest.mark.parametrize("request_id", [1.5, True, [], {}, "x" * 257, 2**63, "\ud800"])
def test_anything_else_is_no_id(request_id: Any) -> None:
    with pytest.raises(InvalidRequestError, match="id must be"):
        read_id({"id": request_id})


# Records


def raw(key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> RawRecord:
    return RawRecord(Offset(3), 1_000, key, value, headers, b"")


def test_bytes_are_text_where_they_are_utf8_and_base64_elsewhere() -> None:
    record = json.loads(record_object(raw("ü".encode(), b"\xff", (("a", b"1"), ("b", b"\xfe"))), Encoding.AUTO))
    assert record == {
        "offset": 3,
        "timestamp": 1_000,
        "key": "ü",
        "value_base64": "/w==",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value_base64": "/g=="}],
    }


def test_with_base64_encoding_every_value_is_base64() -> None:
    record = json.loads(record_object(raw(b"a", None), Encoding.BASE64))
    assert record == {"offset": 3, "timestamp": 1_000, "key_base64": "YQ==", "value": None}


OPTIONAL_BYTES = st.none() | st.binary(max_size=20)


@given(OPTIONAL_BYTES, OPTIONAL_BYTES, st.lists(st.tuples(st.text(max_size=5), OPTIONAL_BYTES), max_size=3))
def test_a_fetched_record_can_be_produced_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    for encoding in Encoding:
        fetched = json.loads(record_object(raw(key, value, tuple(headers)), encoding))
        del fetched["offset"]
        produce = read_request(RequestType.PRODUCE, {**PLACE, "records": [fetched]})
        assert isinstance(produce, Produce)
        assert produce.records == [Record(key, value, headers, 1_000)]
        # The same without what makes it take the long way.
        plain = {name: fetched[name] for name in fetched if name.startswith(("key", "value"))}
        produce = read_request(RequestType.PRODUCE, {**PLACE, "records": [plain]})
        assert isinstance(produce, Produce)
        assert [(record.key, record.value) for record in produce.records] == [(key, value)]
