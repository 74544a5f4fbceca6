r"""Templates of `produce --format`: the fields of a line, such as '%k\t%v' or '%p|%T|%k|%v'.

A field ends where the text that follows it in the template occurs first; the last field takes the rest of the line. The
letters are those of `consume --format`, as far as a record can be given them, so that the output of a template can be
read by the same one if the separators do not occur in keys and values.
"""

from typing import NamedTuple

from logbrook.cli.arguments import parse_timestamp
from logbrook.cli.failures import refuse
from logbrook.cli.records import ESCAPE_FORMS, ParsedRecord, template_tokens
from logbrook.records.record import Header, Record

INPUT_LETTERS = (
    "%k key, %v or %s value, %p partition, %T timestamp in ms, %d timestamp as ISO 8601, %h headers as name=value,..., "
    f"%% a percent sign; and {ESCAPE_FORMS}"
)

_LETTERS = "kvspTdh"
# Letters with the same meaning.
_SYNONYMS = {"s": "v", "d": "T"}
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


class InputTemplate(NamedTuple):
    """A parsed template: the text before the first field, and each field with the text after it."""

    prefix: bytes
    fields: tuple[tuple[str, bytes], ...]

    @property
    def letters(self) -> frozenset[str]:
        return frozenset(_SYNONYMS.get(letter, letter) for letter, _ in self.fields)

    def parse(self, line: bytes, key: bytes | None, headers: tuple[Header, ...], now_ms: int) -> ParsedRecord:
        """Return the record of a line; `key`, `headers` and the time are for fields that the template does not have.

        Raises ValueError with a message for the user.
        """
        values = self._split(line)
        partition = _number(values["p"], "partition", _INT32_MAX) if "p" in values else None
        record = Record(
            values.get("k", key),
            values.get("v", values.get("s", b"")),
            (*headers, *_headers(values.get("h", b""))),
            _timestamp(values, now_ms),
        )
        return ParsedRecord(record, partition)

    def _split(self, line: bytes) -> dict[str, bytes]:
        if not line.startswith(self.prefix):
            raise ValueError(f"it does not begin with {_shown(self.prefix)}")
        rest = line.removeprefix(self.prefix)
        values = {}
        for letter, separator in self.fields[:-1]:
            values[letter], is_present, rest = rest.partition(separator)
            if not is_present:
                raise ValueError(f"it has no {_shown(separator)} after %{letter}")
        letter, suffix = self.fields[-1]
        if not rest.endswith(suffix):
            raise ValueError(f"it does not end with {_shown(suffix)}")
        values[letter] = rest.removesuffix(suffix)
        return values


def parse_template(text: str, delimiter: bytes) -> InputTemplate:
    """Parse a template for records between which there is `delimiter`; end the command if it is invalid.

    A delimiter at the end of the template, as output templates have it, is left out.
    """
    pieces: list[bytes] = [b""]
    letters: list[str] = []
    for token in template_tokens(text, _LETTERS, INPUT_LETTERS):
        if isinstance(token, bytes):
            pieces[-1] += token
        else:
            letters.append(token)
            pieces.append(b"")
    if not letters:
        refuse("--format", f"{text!r} is not raw or json, and not a template with {INPUT_LETTERS}")
    pieces[-1] = pieces[-1].removesuffix(delimiter)
    for before, separator, after in zip(letters, pieces[1:-1], letters[1:], strict=False):
        if not separator:
            refuse("--format", f"there is no text between %{before} and %{after} that separates them")
    template = InputTemplate(pieces[0], tuple(zip(letters, pieces[1:], strict=True)))
    if len(template.letters) < len(letters):
        refuse("--format", f"{text!r} has the same field twice")
    if any(delimiter in piece for piece in pieces):
        refuse("--format", f"it has {_shown(delimiter)}, which separates records; --delimiter chooses another one")
    return template


def _number(data: bytes, field: str, at_most: int) -> int:
    if not data.isdigit() or int(data) > at_most:
        raise ValueError(f"its {field} is {_shown(data)}, but must be a number from 0 on")
    return int(data)


def _timestamp(values: dict[str, bytes], now_ms: int) -> int:
    if "T" in values:
        return _number(values["T"], "timestamp", _INT64_MAX)
    if "d" not in values:
        return now_ms
    timestamp_ms = parse_timestamp(values["d"].decode(errors="replace"))
    if timestamp_ms is None or timestamp_ms < 0:
        raise ValueError(f"its timestamp is {_shown(values['d'])}, but must be a time such as 2026-01-31T12:00Z")
    return timestamp_ms


def _headers(data: bytes) -> list[Header]:
    headers: list[Header] = []
    for part in data.split(b",") if data else ():
        name, separator, value = part.partition(b"=")
        if not name or not separator:
            raise ValueError(f"its header {_shown(part)} is not name=value")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError:
            raise ValueError(f"its header name {_shown(name)} is not UTF-8") from None
    return headers


def _shown(data: bytes) -> str:
    return repr(data)[1:]
