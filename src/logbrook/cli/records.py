r"""Text formats of records: JSON lines, which `consume --json` prints and `produce --json` reads, and templates.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1767225600000, "key": "k", "value": "v",
     "headers": [{"key": "h", "value": "x"}]}

A key, value or header value that is not UTF-8 is base64, and `key_encoding` or `value_encoding` beside it is "base64".
Templates have the letters of kcat: `%p:%o %k %v\n`.
"""

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Container, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias

from logbrook.cli.arguments import iso_time, parse_timestamp
from logbrook.cli.failures import refuse
from logbrook.cli.output import escape_bytes, escape_controls
from logbrook.model import TopicPartition
from logbrook.model.text import hex_dump
from logbrook.records.record import Header, RawRecord, Record

RecordFormat: TypeAlias = Callable[[TopicPartition, RawRecord], bytes]

ESCAPE_FORMS = r"\n, \t, \r, \0, \\ and \xHH"
TEMPLATE_LETTERS = (
    "%k key, %v or %s value, %K and %V or %S their lengths in bytes (-1 for null), %t topic, %p partition, %o offset, "
    "%T timestamp in ms, %d timestamp as ISO 8601, %h headers as name=value,..., %% a percent sign; "
    f"and {ESCAPE_FORMS}"
)

_BASE64 = "base64"
# Fields of a line of JSON. The last two are printed by `consume --json` and ignored by `produce --json`.
_FIELDS = ("key", "value", "headers", "partition", "timestamp", "key_encoding", "value_encoding", "topic", "offset")
_HEADER_FIELDS = ("key", "value", "value_encoding")
# Names that other tools give these fields.
_SYNONYMS = {"payload": "value", "message": "value", "ts": "timestamp"}
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_TOKEN = re.compile(
    r"%(?P<letter>.)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>[ntr0\\]))|(?P<text>[^%\\]+)|.", re.DOTALL
)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class ParsedRecord(NamedTuple):
    """A record from a line of input; `partition` is None if the line does not choose one."""

    record: Record
    partition: int | None


def record_as_json(topic: str, partition: int, record: RawRecord) -> str:
    """Format a record as one line of JSON, without its line end."""
    document: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    _put_bytes(document, "key", record.key)
    _put_bytes(document, "value", record.value)
    headers = []
    for name, value in record.headers:
        header: dict[str, Any] = {"key": name}
        _put_bytes(header, "value", value)
        headers.append(header)
    document["headers"] = headers
    return json.dumps(document, ensure_ascii=False)


def record_from_json(line: bytes, now_ms: int) -> ParsedRecord:
    """Parse a line of JSON. Missing fields are null, the timestamp is `now_ms`.

    Raises ValueError with a message for the user, also for an unknown field: a misspelled "value" would otherwise write
    a null value, which deletes the key in a compacted topic.
    """
    try:
        document = json.loads(line)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError('it is not a JSON object such as {"key": "k", "value": "v"}')
    _check_fields(document, _FIELDS, "it")
    partition = document.get("partition")
    if partition is not None and not _is_integer(partition, _INT32_MAX):
        raise ValueError(f"its partition is {partition!r}, but must be a number from 0 on")
    record = Record(
        _get_bytes(document, "key"),
        _get_bytes(document, "value"),
        _get_headers(document.get("headers")),
        _get_timestamp(document.get("timestamp"), now_ms),
    )
    return ParsedRecord(record, partition)


def parse_format(name: str, *, is_terminal: bool = False) -> RecordFormat:
    """Return the format raw, json, hex, or that of a template; end the command if the template is invalid.

    For a terminal, control characters of records are escaped; those of the template itself are not.
    """
    formats: dict[str, RecordFormat] = {"raw": _raw, "json": _json, "hex": _hex}
    if is_terminal:
        formats = {"raw": _escaped(_raw), "json": _terminal_json, "hex": _escaped(_hex)}
    if name in formats:
        return formats[name]
    if "%" not in name:
        refuse("--format", f"{name!r} is not raw, json or hex, and not a template with {TEMPLATE_LETTERS}")
    parts = list(_template_parts(name, is_terminal))
    return lambda partition, record: b"".join([part(partition, record) for part in parts])


def printed_parts(name: str, partition: TopicPartition) -> list[bytes | str] | None:
    """Return the parts of `parse_format(name)` as a layout of `records.columns.text`; None if it cannot print them."""
    topic = json.dumps(partition.topic, ensure_ascii=False)
    if name == "json":
        before = f'{{"topic": {topic}, "partition": {partition.partition}, "offset": '.encode()
        fields: list[bytes | str] = [before, "offset", b', "timestamp": ', "timestamp", b', "key": ', "key_json"]
        return [*fields, b', "value": ', "value_json", b', "headers": []}\n']
    if name == "hex":
        return None
    parts: list[bytes | str] = []
    constants = {"%": b"%", "t": partition.topic.encode(), "p": b"%d" % partition.partition}
    for token in _TOKEN.finditer(_RAW_TEMPLATE if name == "raw" else name):
        letter = token["letter"]
        if letter is not None and letter not in constants:
            if letter not in _PRINTED_FIELDS:
                return None
            parts.append(_PRINTED_FIELDS[letter])
        else:
            parts.append(constants[letter] if letter is not None else _constant_of(token))
    return parts


def template_of(*, key: bool, headers: bool, offset: bool, timestamp: bool, separator: str) -> str:
    """Return the template that prints these fields before the value."""
    fields = ((timestamp, "%d"), (offset, "%p:%o"), (headers, "%h"), (key, "%k"), (True, "%v"))
    escaped = separator.replace("%", "%%")
    return escaped.join(template for is_included, template in fields if is_included) + "\\n"


def template_tokens(template: str, letters: Container[str], legend: str) -> Iterator[str | bytes]:
    """Yield the letters of the fields as str and the text between them as bytes.

    Ends the command if the template is invalid; `legend` describes the letters that it can have.
    """
    for token in _TOKEN.finditer(template):
        if letter := token["letter"]:
            if letter != "%" and letter not in letters:
                refuse("--format", f"the template has %{letter}, which is none of {legend}")
            yield b"%" if letter == "%" else letter
        elif token["hex"] or token["escape"] or token["text"]:
            yield _constant_of(token)
        else:
            refuse("--format", f"the template has an incomplete {token[0]!r}; it can have {legend}")


def unescape(text: str, option: str) -> bytes:
    r"""Replace \n, \t, \r, \0, \\ and \xHH; end the command with an error about `option` if a backslash is invalid."""
    parts = []
    for token in _TOKEN.finditer(text.replace("%", "%%")):
        if token["letter"]:
            parts.append(b"%")
        elif token["hex"] or token["escape"] or token["text"]:
            parts.append(_constant_of(token))
        else:
            refuse(option, f"it has an incomplete {token[0]!r}; it can have {ESCAPE_FORMS}")
    return b"".join(parts)


def _put_bytes(document: dict[str, Any], name: str, data: bytes | None) -> None:
    try:
        document[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        document[name] = b64encode(data or b"").decode()
        document[f"{name}_encoding"] = _BASE64


def _get_bytes(document: dict[str, Any], name: str) -> bytes | None:
    value, encoding = document.get(name), document.get(f"{name}_encoding")
    if encoding not in (None, _BASE64):
        raise ValueError(f"its {name}_encoding is {encoding!r}, but can only be {_BASE64!r}")
    if value is None:
        return None
    if encoding == _BASE64:
        try:
            return b64decode(value, validate=True)
        except (ValueError, TypeError):
            raise ValueError(f"its {name} is not base64") from None
    # A value that is not a string is written as JSON.
    return _utf8(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), name)


def _get_headers(headers: Any) -> Sequence[Header]:
    if headers is None:
        return ()
    if isinstance(headers, dict):
        return tuple((name, _get_bytes({"value": value}, "value")) for name, value in headers.items())
    if not isinstance(headers, list) or not all(
        isinstance(header, dict) and isinstance(header.get("key"), str) for header in headers
    ):
        raise ValueError('its headers must be {"name": "value"} or [{"key": "name", "value": "value"}]')
    for header in headers:
        _check_fields(header, _HEADER_FIELDS, "its header")
    return tuple((header["key"], _get_bytes(header, "value")) for header in headers)


def _check_fields(document: dict[str, Any], fields: Sequence[str], subject: str) -> None:
    unknown = next((name for name in document if name not in fields), None)
    if unknown is None:
        return
    lower = unknown.lower()
    similar = get_close_matches(_SYNONYMS.get(lower, lower), fields, 1)
    advice = f"did you mean {similar[0]!r}?" if similar else f"the fields are {', '.join(fields)}"
    raise ValueError(f"{subject} has an unknown field {unknown!r} ({advice})")


def _get_timestamp(value: Any, now_ms: int) -> int:
    if value is None:
        return now_ms
    timestamp_ms = parse_timestamp(value) if isinstance(value, str) else value
    if timestamp_ms is None or not _is_integer(timestamp_ms, _INT64_MAX):
        raise ValueError(f"its timestamp is {value!r}, but must be milliseconds or a time such as 2026-01-31T12:00Z")
    return int(timestamp_ms)


def _is_integer(value: Any, at_most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= at_most


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"its {name} has an unpaired surrogate, which UTF-8 cannot encode") from None


def _raw(_: TopicPartition, record: RawRecord) -> bytes:
    return (record.value or b"") + b"\n"


def _json(partition: TopicPartition, record: RawRecord) -> bytes:
    return record_as_json(partition.topic, partition.partition, record).encode() + b"\n"


def _terminal_json(partition: TopicPartition, record: RawRecord) -> bytes:
    """JSON leaves DEL and the control characters from U+0080 on as they are."""
    return escape_controls(_json(partition, record).decode(), "\\u{:04x}").encode()


def _escaped(record_format: RecordFormat) -> RecordFormat:
    return lambda partition, record: escape_bytes(record_format(partition, record))


def _hex(partition: TopicPartition, record: RawRecord) -> bytes:
    lines = [f"{partition} offset {record.offset} at {iso_time(record.timestamp)}"]
    headers = [(f"header {name}", value) for name, value in record.headers]
    for name, data in (("key", record.key), ("value", record.value), *headers):
        lines.append(f"{name}: null" if data is None else f"{name}: {len(data)} bytes")
        lines += [f"  {line}" for line in hex_dump(data or b"")]
    return "\n".join(lines).encode() + b"\n"


def _template_parts(template: str, is_terminal: bool) -> Iterator[RecordFormat]:
    for token in template_tokens(template, _LETTERS, TEMPLATE_LETTERS):
        if isinstance(token, bytes):
            yield _constant(token)
        else:
            yield _escaped(_LETTERS[token]) if is_terminal else _LETTERS[token]


def _constant_of(token: re.Match[str]) -> bytes:
    """Return the bytes of a part of a template that is not a letter."""
    if token["hex"]:
        return bytes.fromhex(token["hex"])
    # Arguments may hold bytes that are not valid text; fsencode restores them.
    return _ESCAPES[token["escape"]] if token["escape"] else os.fsencode(token["text"])


def _constant(data: bytes) -> RecordFormat:
    return lambda _partition, _record: data


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _headers(record: RawRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (b"" if value is None else value) for name, value in record.headers)


_LETTERS: dict[str, RecordFormat] = {
    "k": lambda _, record: record.key or b"",
    "v": lambda _, record: record.value or b"",
    "s": lambda _, record: record.value or b"",
    "K": lambda _, record: _length(record.key),
    "V": lambda _, record: _length(record.value),
    "S": lambda _, record: _length(record.value),
    "t": lambda partition, _: partition.topic.encode(),
    "p": lambda partition, _: b"%d" % partition.partition,
    "o": lambda _, record: b"%d" % record.offset,
    "T": lambda _, record: b"%d" % record.timestamp,
    "d": lambda _, record: iso_time(record.timestamp).encode(),
    "h": lambda _, record: _headers(record),
}

_RAW_TEMPLATE = r"%v\n"
# The fields of `records.columns.text` that letters print.
_PRINTED_FIELDS = {
    "k": "key",
    "v": "value",
    "s": "value",
    "K": "key_length",
    "V": "value_length",
    "S": "value_length",
    "o": "offset",
    "T": "timestamp",
    "d": "iso_time",
}
