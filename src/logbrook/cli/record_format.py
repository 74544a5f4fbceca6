"""How `consume` writes a record: as it is, as JSON, as hex, or by a template as kcat has them."""

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from logbrook.cli.failures import refuse
from logbrook.cli.moments import iso_time
from logbrook.cli.record_forms import record_as_json
from logbrook.model import TopicPartition
from logbrook.records.record import RawRecord

Part: TypeAlias = Callable[[TopicPartition, RawRecord], bytes]
Format: TypeAlias = Callable[[TopicPartition, RawRecord], bytes]

LETTERS = (
    "%k key, %v or %s value, %K and %V or %S their lengths in bytes (-1 for null), %t topic, %p partition, %o offset, "
    "%T timestamp in ms, %d timestamp as ISO 8601, %h headers as name=value,..., %% a percent sign; "
    r"and \n, \t, \r, \0, \\ and \xHH"
)

_HEX_BYTES_PER_LINE = 16
_TOKEN = re.compile(
    r"%(?P<letter>.)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>[ntr0\\]))|(?P<text>[^%\\]+)|.", re.DOTALL
)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def format_of(name: str) -> Format:
    """Ends the command for a template that says what no template can."""
    known: dict[str, Format] = {"raw": _raw, "json": _json, "hex": _hex}
    if name in known:
        return known[name]
    if "%" not in name:
        refuse("--format", f"{name!r} is not raw, json or hex, and as a template it has no {LETTERS}")
    parts = list(_parts(name))
    return lambda partition, record: b"".join([part(partition, record) for part in parts])


def template_of(*, key: bool, headers: bool, offset: bool, timestamp: bool, separator: str) -> str:
    """The template that writes these before the value."""
    wanted = ((timestamp, "%d"), (offset, "%p:%o"), (headers, "%h"), (key, "%k"), (True, "%v"))
    escaped = separator.replace("%", "%%")
    return escaped.join(template for is_wanted, template in wanted if is_wanted) + "\\n"


def _raw(_: TopicPartition, record: RawRecord) -> bytes:
    return (record.value or b"") + b"\n"


def _json(partition: TopicPartition, record: RawRecord) -> bytes:
    # Half of a surrogate pair cannot be in what was decoded from UTF-8.
    return record_as_json(partition.topic, partition.partition, record).encode() + b"\n"


def _hex(partition: TopicPartition, record: RawRecord) -> bytes:
    lines = [f"{partition} offset {record.offset} at {iso_time(record.timestamp)}"]
    named = [("key", record.key), ("value", record.value), *((f"header {name}", one) for name, one in record.headers)]
    for name, data in named:
        lines.append(f"{name}: null" if data is None else f"{name}: {len(data)} bytes")
        lines += _dump(data or b"")
    return "\n".join(lines).encode() + b"\n"


def _dump(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), _HEX_BYTES_PER_LINE):
        line = data[start : start + _HEX_BYTES_PER_LINE]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        yield f"  {start:08x}  {line.hex(' '):<{3 * _HEX_BYTES_PER_LINE}} {text}"


def _parts(template: str) -> Iterator[Part]:
    for token in _TOKEN.finditer(template):
        if letter := token["letter"]:
            if letter not in _LETTERS:
                refuse("--format", f"the template has %{letter}, which is none of {LETTERS}")
            yield _LETTERS[letter]
        elif token["hex"]:
            yield _constant(bytes.fromhex(token["hex"]))
        elif token["escape"]:
            yield _constant(_ESCAPES[token["escape"]])
        elif token["text"]:
            yield _constant(token["text"].encode())
        else:
            refuse("--format", f"the template has a {token[0]!r} that begins nothing; there are {LETTERS}")


def _constant(data: bytes) -> Part:
    return lambda _partition, _record: data


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _headers(record: RawRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (b"" if value is None else value) for name, value in record.headers)


_LETTERS: dict[str, Part] = {
    "%": _constant(b"%"),
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
