"""Records as lines of JSON, the same for reading and writing: what `consume --json` prints, `produce --json` takes.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1767225600000, "key": "k", "value": "v",
     "headers": [{"key": "h", "value": "x"}]}

A key, a value or a header's value that is not UTF-8 is base64, and then `key_encoding` or `value_encoding` beside it is
"base64". Null is null.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

from logbrook.cli.moments import timestamp_of
from logbrook.records.record import Header, RawRecord, Record

_BASE64 = "base64"
_INT64_MAX = 2**63 - 1


class ReadRecord(NamedTuple):
    """A record, and the partition it asks for, if it does."""

    record: Record
    partition: int | None


def record_as_json(topic: str, partition: int, record: RawRecord) -> str:
    """One line, without its end."""
    form: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    _put(form, "key", record.key)
    _put(form, "value", record.value)
    headers = []
    for name, value in record.headers:
        header: dict[str, Any] = {"key": name}
        _put(header, "value", value)
        headers.append(header)
    form["headers"] = headers
    return json.dumps(form, ensure_ascii=False)


def record_from_json(line: bytes, now_ms: int) -> ReadRecord:
    """Raises ValueError with a sentence. What is left out is null, or now; fields of other names are ignored."""
    try:
        form = json.loads(line)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not isinstance(form, dict):
        raise ValueError('it is no JSON object such as {"key": "k", "value": "v"}')
    partition = form.get("partition")
    if partition is not None and not _is_integer(partition, 2**31 - 1):
        raise ValueError(f"its partition is {partition!r}, and has to be a number")
    record = Record(
        _bytes_of(form, "key"),
        _bytes_of(form, "value"),
        _headers_of(form.get("headers")),
        _timestamp_of(form.get("timestamp"), now_ms),
    )
    return ReadRecord(record, partition)


def _put(form: dict[str, Any], name: str, data: bytes | None) -> None:
    try:
        form[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        form[name] = b64encode(data or b"").decode()
        form[f"{name}_encoding"] = _BASE64


def _bytes_of(form: dict[str, Any], name: str) -> bytes | None:
    value, encoding = form.get(name), form.get(f"{name}_encoding")
    if encoding not in (None, _BASE64):
        raise ValueError(f"its {name}_encoding is {encoding!r}, and can only be {_BASE64!r}")
    if value is None:
        return None
    if encoding == _BASE64:
        try:
            return b64decode(value, validate=True)
        except (ValueError, TypeError):
            raise ValueError(f"its {name} is not base64") from None
    # A value that is itself JSON is written as such.
    return _utf8(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), name)


def _headers_of(found: Any) -> Sequence[Header]:
    if found is None:
        return ()
    if isinstance(found, dict):
        return tuple((name, _bytes_of({"value": value}, "value")) for name, value in found.items())
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and isinstance(one.get("key"), str) for one in found
    ):
        raise ValueError('its headers have to be {"name": "value"} or [{"key": "name", "value": "value"}]')
    return tuple((one["key"], _bytes_of(one, "value")) for one in found)


def _timestamp_of(found: Any, now_ms: int) -> int:
    if found is None:
        return now_ms
    timestamp_ms = timestamp_of(found) if isinstance(found, str) else found
    if timestamp_ms is None or not _is_integer(timestamp_ms, _INT64_MAX):
        raise ValueError(f"its timestamp is {found!r}, and has to be milliseconds or a time such as 2026-01-31T12:00Z")
    return int(timestamp_ms)


def _is_integer(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"its {name} has half of a surrogate pair, which is no character") from None
