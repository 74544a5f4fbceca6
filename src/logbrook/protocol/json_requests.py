"""The requests of the JSON protocol, read from their objects, and the objects of records.

Parsing is strict: an unknown field, a missing one or one of the wrong type raises InvalidRequestError with its name.
Keys, values and the values of headers are bytes. In JSON each is a text beside its name, or base64 beside its name with
`_base64` behind it; what is left out is null.
"""

import binascii
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias, TypeVar

from logbrook.protocol.json_frames import InvalidRequestError, RequestType, to_json
from logbrook.records.batch import NO_TIMESTAMP
from logbrook.records.record import Header, RawRecord, Record

# Records are parsed and encoded on the event loop; this many occupy it for a few hundredths of a second.
RECORDS_MAX = 2_000
HEADERS_MAX = 4_000
FETCH_BYTES_DEFAULT = 1 << 20
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_ID_LENGTH_MAX = 256
_MISSING = object()
_TEXTS = frozenset({"key", "value"})
_BASE64 = frozenset({"key_base64", "value_base64"})

C = TypeVar("C", bound=StrEnum)


class Position(StrEnum):
    """Start positions of a fetch other than an offset."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Isolation(StrEnum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Encoding(StrEnum):
    """Encoding of bytes in a response. auto: text if they are UTF-8, else base64."""

    AUTO = "auto"
    BASE64 = "base64"


class Produce(NamedTuple):
    topic: str
    partition: int
    records: list[Record]


class Fetch(NamedTuple):
    """A fetch. Without `offset` it starts at the committed offset of `group_id`."""

    topic: str
    partition: int
    offset: int | Position | None
    group_id: str | None
    max_bytes: int
    max_wait_ms: int
    isolation: Isolation
    encoding: Encoding


class OffsetCommit(NamedTuple):
    group: str
    topic: str
    partition: int
    offset: int
    metadata: str


class OffsetFetch(NamedTuple):
    group: str
    topic: str
    partition: int


class CreateTopic(NamedTuple):
    """A topic to create; a `partition_count` of None means the broker's default."""

    topic: str
    partition_count: int | None
    settings: Mapping[str, str]


class ListTopics(NamedTuple):
    pass


class DescribeTopic(NamedTuple):
    topic: str


class DescribePartition(NamedTuple):
    topic: str
    partition: int


class MetricsFetch(NamedTuple):
    prefix: str


class Ping(NamedTuple):
    pass


@dataclass(frozen=True, slots=True)
class Authenticate:
    """A user name and its password, or a token. The secrets are not in its text."""

    user: str | None
    password: str | None = field(repr=False)
    token: str | None = field(repr=False)


_TopicRequest: TypeAlias = CreateTopic | ListTopics | DescribeTopic | DescribePartition
Request: TypeAlias = Produce | Fetch | OffsetCommit | OffsetFetch | _TopicRequest | MetricsFetch | Ping | Authenticate


def read_id(request_object: Mapping[str, Any]) -> str | int | None:
    """Return the request id that the client chose, or None. Raises InvalidRequestError."""
    request_id = request_object.get("id")
    if isinstance(request_id, str) and len(request_id) <= _ID_LENGTH_MAX and _is_encodable(request_id):
        return request_id
    if request_id is None or (type(request_id) is int and abs(request_id) <= _INT64_MAX):
        return request_id
    raise InvalidRequestError(f"id must be a whole number or a text of at most {_ID_LENGTH_MAX} characters")


def read_request(kind: RequestType, request_object: Mapping[str, Any]) -> Request:
    """Raises InvalidRequestError."""
    fields = _Fields(request_object, kind.title)
    fields.take("id", None)
    request = _READERS[kind](fields)
    fields.end()
    return request


def record_object(record: RawRecord, encoding: Encoding) -> str:
    """Return a record of a response as JSON text."""
    json_object: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    _put_bytes(json_object, "key", record.key, encoding)
    _put_bytes(json_object, "value", record.value, encoding)
    if record.headers:
        headers: list[dict[str, Any]] = [{"key": key} for key, _ in record.headers]
        for header, (_, value) in zip(headers, record.headers, strict=True):
            _put_bytes(header, "value", value, encoding)
        json_object["headers"] = headers
    return to_json(json_object)


class _Fields:
    """The fields of a request object. A field that is not read is an error."""

    def __init__(self, fields: Mapping[str, Any], where: str) -> None:
        self._remaining = dict(fields)
        self._where = where

    def take(self, name: str, default: Any = _MISSING) -> Any:
        value = self._remaining.pop(name, default)
        if value is _MISSING:
            raise InvalidRequestError(f"{self._where} needs the field {name!r}")
        return value

    def text(self, name: str, default: Any = _MISSING) -> Any:
        value = self.take(name, default)
        if value is not default and not (isinstance(value, str) and _is_encodable(value)):
            raise self.wrong(name, "a text")
        return value

    def name(self, name: str, default: Any = _MISSING) -> Any:
        value = self.text(name, default)
        if value == "":
            # Kafka accepts an empty group id for old clients. Here it is most likely an unset variable of the client.
            raise self.wrong(name, "a text that is not empty")
        return value

    def integer(self, name: str, default: Any = _MISSING, *, at_most: int = _INT64_MAX) -> Any:
        value = self.take(name, default)
        if value is not default and not (type(value) is int and 0 <= value <= at_most):
            raise self.wrong(name, f"a whole number from 0 to {at_most}")
        return value

    def choice(self, name: str, default: C) -> C:
        value = self.take(name, default)
        choices = type(default)
        if not isinstance(value, str) or value not in list(choices):
            raise self.wrong(name, " or ".join(repr(choice.value) for choice in choices))
        return choices(value)

    def bytes(self, name: str) -> bytes | None:
        """Return the bytes of a text field, or of its base64 counterpart."""
        text, encoded = self.text(name, None), self.text(f"{name}_base64", None)
        if encoded is None:
            return None if text is None else str(text).encode()
        if text is not None:
            raise InvalidRequestError(f"{self._where} has both {name!r} and '{name}_base64'")
        try:
            return _from_base64(encoded)
        except ValueError as error:
            raise self.wrong(f"{name}_base64", f"base64 ({error})") from None

    def wrong(self, name: str, needed: str) -> InvalidRequestError:
        return InvalidRequestError(f"{self._where}: {name!r} must be {needed}")

    def end(self) -> None:
        if self._remaining:
            name = next(iter(self._remaining))
            raise InvalidRequestError(f"{self._where} has no field {name!r}")


def _produce(fields: _Fields) -> Produce:
    return Produce(fields.text("topic"), _partition(fields), _records(fields))


def _fetch(fields: _Fields) -> Fetch:
    offset = fields.take("offset", None)
    group_id = fields.name("group_id", None)
    if isinstance(offset, str) and offset in list(Position):
        offset = Position(offset)
    elif offset is not None and not (type(offset) is int and 0 <= offset <= _INT64_MAX):
        raise fields.wrong("offset", "a whole number from 0 on, 'earliest' or 'latest'")
    if offset is None and group_id is None:
        raise InvalidRequestError(
            "Fetch needs the field 'offset', or 'group_id' to begin where the group has committed"
        )
    return Fetch(
        topic=fields.text("topic"),
        partition=_partition(fields),
        offset=offset,
        group_id=group_id,
        max_bytes=fields.integer("max_bytes", FETCH_BYTES_DEFAULT),
        max_wait_ms=fields.integer("max_wait_ms", 0),
        isolation=fields.choice("isolation", Isolation.READ_COMMITTED),
        encoding=fields.choice("encoding", Encoding.AUTO),
    )


def _offset_commit(fields: _Fields) -> OffsetCommit:
    group, topic, partition = fields.name("group"), fields.text("topic"), _partition(fields)
    return OffsetCommit(group, topic, partition, fields.integer("offset"), fields.text("metadata", ""))


def _create_topic(fields: _Fields) -> CreateTopic:
    partition_count = fields.integer("partition_count", None, at_most=_INT32_MAX)
    return CreateTopic(fields.text("topic"), partition_count, _settings(fields))


def _authenticate(fields: _Fields) -> Authenticate:
    user, token = fields.name("user", None), fields.name("token", None)
    password = fields.text("password", None)
    if (user is None) == (token is None) or (user is None) != (password is None):
        raise InvalidRequestError("Authenticate needs the fields 'user' and 'password', or 'token' alone")
    return Authenticate(user, password, token)


_READERS: Mapping[RequestType, Callable[[_Fields], Request]] = {
    RequestType.PRODUCE: _produce,
    RequestType.FETCH: _fetch,
    RequestType.OFFSET_COMMIT: _offset_commit,
    RequestType.OFFSET_FETCH: lambda fields: OffsetFetch(
        fields.name("group"), fields.text("topic"), _partition(fields)
    ),
    RequestType.CREATE_TOPIC: _create_topic,
    RequestType.LIST_TOPICS: lambda _: ListTopics(),
    RequestType.DESCRIBE_TOPIC: lambda fields: DescribeTopic(fields.text("topic")),
    RequestType.DESCRIBE_PARTITION: lambda fields: DescribePartition(fields.text("topic"), _partition(fields)),
    RequestType.METRICS_FETCH: lambda fields: MetricsFetch(fields.text("prefix", "")),
    RequestType.PING: lambda _: Ping(),
    RequestType.AUTHENTICATE: _authenticate,
}


def _partition(fields: _Fields) -> int:
    partition: int = fields.integer("partition", at_most=_INT32_MAX)
    return partition


def _records(fields: _Fields) -> list[Record]:
    records = fields.take("records")
    if not isinstance(records, list) or not 0 < len(records) <= RECORDS_MAX:
        raise fields.wrong("records", f"a list of 1 to {RECORDS_MAX} records")
    if _count_headers(records) > HEADERS_MAX:
        raise fields.wrong("records", f"a list of records with at most {HEADERS_MAX} headers in all")
    return [_plain_record(record) or _record(record, f"record {number}") for number, record in enumerate(records)]


def _count_headers(records: Sequence[Any]) -> int:
    lists = [record.get("headers") for record in records if isinstance(record, dict) and "headers" in record]
    return sum(len(headers) for headers in lists if isinstance(headers, list))


def _plain_record(json_object: Any) -> Record | None:
    """Fast path for records with only text or only base64 fields, ten times as fast. None for other records."""
    try:
        if json_object.keys() <= _TEXTS:
            key, value = json_object.get("key"), json_object.get("value")
            return Record(None if key is None else key.encode(), None if value is None else value.encode())
        if json_object.keys() <= _BASE64:
            key, value = json_object.get("key_base64"), json_object.get("value_base64")
            return Record(None if key is None else _from_base64(key), None if value is None else _from_base64(value))
    except (AttributeError, TypeError, ValueError):
        # The record is invalid; `_record` raises the error that says why.
        return None
    return None


def _record(json_object: Any, where: str) -> Record:
    if not isinstance(json_object, dict):
        raise InvalidRequestError(f"{where} must be an object")
    fields = _Fields(json_object, where)
    headers = fields.take("headers", [])
    if not isinstance(headers, list):
        raise fields.wrong("headers", "a list")
    record = Record(
        key=fields.bytes("key"),
        value=fields.bytes("value"),
        headers=[_header(header, f"{where}, header {number}") for number, header in enumerate(headers)],
        timestamp=fields.integer("timestamp", NO_TIMESTAMP),
    )
    fields.end()
    return record


def _header(json_object: Any, where: str) -> Header:
    if not isinstance(json_object, dict):
        raise InvalidRequestError(f"{where} must be an object")
    fields = _Fields(json_object, where)
    header = fields.text("key"), fields.bytes("value")
    fields.end()
    return header


def _settings(fields: _Fields) -> dict[str, str]:
    settings = fields.take("settings", {})
    if not isinstance(settings, dict) or not all(isinstance(value, str) for value in settings.values()):
        raise fields.wrong("settings", "an object whose values are texts")
    return settings


def _put_bytes(json_object: dict[str, Any], name: str, data: bytes | None, encoding: Encoding) -> None:
    if data is None:
        json_object[name] = None
        return
    if encoding is Encoding.AUTO:
        try:
            json_object[name] = data.decode()
            return
        except UnicodeDecodeError:
            pass
    json_object[f"{name}_base64"] = b64encode(data).decode()


def _from_base64(text: str) -> bytes:
    """Raises ValueError."""
    return binascii.a2b_base64(text, strict_mode=True)


def _is_encodable(text: str) -> bool:
    """Return False for text with lone surrogates, which JSON can express but UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
