"""Filters of messages by their fields: `value.country == "DE" and value.total >= 10`.

    expression  = conjunction {"or" conjunction}
    conjunction = condition {"and" condition}
    condition   = "not" condition | "(" expression ")" | field [operator literal]
    field       = root {"." name | "[" (number | string) "]"}
    root        = "key" | "value" | "headers" | "partition" | "offset" | "timestamp"
    operator    = "==" | "!=" | "<" | "<=" | ">" | ">=" | "contains"
    literal     = string | number | "true" | "false" | "null"

A field that does not exist is null. A field without an operator is true if it is neither null nor false. `key` and
`value` are decoded as JSON; compared with a string, they are text if they are no JSON string. The last header of a name
counts. A timestamp is compared with ms since 1970 or with a string such as "2026-01-31T12:00".

An expression is compiled to nested functions; nothing of it is executed as code. Its length and depth are limited, and
values above 1 MiB are not decoded, so that each record takes a bounded time.
"""

import json
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from logbrook.console.formatting import parse_timestamp_ms
from logbrook.records.record import Header, RawRecord

EXPRESSION_LENGTH_MAX = 1_000
_DEPTH_MAX = 20
_DECODED_BYTES_MAX = 1 << 20

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<symbol>==|!=|<=|>=|<|>|\(|\)|\[|\]|\.)
    |(?P<word>[^\W\d][\w-]*))""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARISONS = frozenset({"==", "!=", "contains", *_ORDERINGS})
_ROOTS = ("key", "value", "headers", "partition", "offset", "timestamp")
_CONSTANTS = {"true": True, "false": False, "null": None}

Predicate: TypeAlias = Callable[[int, RawRecord], bool]
Decode: TypeAlias = Callable[[bytes], Any]


class InvalidFilterError(ValueError):
    """An expression that cannot be parsed; the message says where and what was expected."""


def decode_json(data: bytes) -> Any:
    """Decode JSON. Raises ValueError."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def compile_filter(expression: str, decode: Decode = decode_json) -> Predicate:
    """Return a function of a partition and a record. Raises InvalidFilterError.

    `decode` decodes keys and values; those for which it raises ValueError have no fields.
    """
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise InvalidFilterError(f"a filter has at most {EXPRESSION_LENGTH_MAX} characters")
    condition = _Parser(expression).parse()
    return lambda partition, record: condition(_FilteredRecord(partition, record, decode))


class _FilteredRecord:
    """A record under test, whose key and value are decoded at most once."""

    __slots__ = ("_decode", "_decoded", "partition", "record")

    def __init__(self, partition: int, record: RawRecord, decode: Decode) -> None:
        self.partition = partition
        self.record = record
        self._decode = decode
        self._decoded: dict[str, Any] = {}

    def root(self, name: str) -> Any:
        match name:
            case "partition":
                return self.partition
            case "offset":
                return self.record.offset
            case "timestamp":
                return self.record.timestamp
            case "headers":
                return {name: _text(value) for name, value in self.record.headers}
        if name not in self._decoded:
            self._decoded[name] = self._decode_part(self.data(name))
        return self._decoded[name]

    def data(self, name: str) -> bytes | None:
        return self.record.key if name == "key" else self.record.value

    def _decode_part(self, data: bytes | None) -> Any:
        if data is None or len(data) > _DECODED_BYTES_MAX:
            return None
        try:
            return self._decode(data)
        except ValueError:
            return None


_Condition: TypeAlias = Callable[[_FilteredRecord], bool]


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


class _Parser:
    """Recursive descent over the tokens of an expression."""

    def __init__(self, expression: str) -> None:
        self._tokens = _tokens(expression)
        self._index = 0
        self._depth = 0

    def parse(self) -> _Condition:
        condition = self._expression()
        if self._next.kind != "end":
            raise self._unexpected('"and", "or" or the end')
        return condition

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _take(self, *texts: str) -> bool:
        """Advance if the next token is a symbol or word with one of these texts."""
        is_match = self._next.kind in ("symbol", "word") and self._next.text in texts
        self._index += is_match
        return is_match

    def _unexpected(self, expected: str) -> InvalidFilterError:
        token = self._next
        place = "the filter ends" if token.kind == "end" else f"{token.text!r} is at character {token.position + 1}"
        example = 'value.country == "DE" and value.total > 10'
        return InvalidFilterError(f"{place}, but {expected} was expected; an example of a filter: {example}")

    def _expression(self) -> _Condition:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise InvalidFilterError(f"a filter may be nested at most {_DEPTH_MAX} times")
        alternatives = [self._conjunction()]
        while self._take("or"):
            alternatives.append(self._conjunction())
        self._depth -= 1
        if len(alternatives) == 1:
            return alternatives[0]
        return lambda record: any(condition(record) for condition in alternatives)

    def _conjunction(self) -> _Condition:
        conditions = [self._condition()]
        while self._take("and"):
            conditions.append(self._condition())
        if len(conditions) == 1:
            return conditions[0]
        return lambda record: all(condition(record) for condition in conditions)

    def _condition(self) -> _Condition:
        is_negated = False
        while self._take("not"):
            is_negated = not is_negated
        if self._take("("):
            condition = self._expression()
            if not self._take(")"):
                raise self._unexpected('")"')
        else:
            condition = self._comparison()
        return (lambda record: not condition(record)) if is_negated else condition

    def _comparison(self) -> _Condition:
        root, path = self._field()
        if not (self._next.kind in ("symbol", "word") and self._next.text in _COMPARISONS):
            return lambda record: _is_set(_member(record.root(root), path))
        comparison = self._next.text
        self._index += 1
        literal = self._literal()
        if root == "timestamp" and isinstance(literal, str):
            literal = parse_timestamp_ms(literal)
        if root in ("key", "value") and not path and isinstance(literal, str):
            return lambda record: _compare(comparison, _as_text(record, root), literal)
        return lambda record: _compare(comparison, _member(record.root(root), path), literal)

    def _field(self) -> tuple[str, Sequence[str | int]]:
        root = self._next.text
        if self._next.kind != "word" or root not in _ROOTS:
            raise self._unexpected(f"a field of {', '.join(_ROOTS)}")
        self._index += 1
        path: list[str | int] = []
        while self._take(".", "["):
            is_index = self._tokens[self._index - 1].text == "["
            token = self._next
            allowed = ("number", "string") if is_index else ("word",)
            if token.kind not in allowed or (token.kind == "number" and not token.text.isdecimal()):
                raise self._unexpected("a number or a string" if is_index else "the name of a field")
            self._index += 1
            path.append(int(token.text) if token.kind == "number" else _unquoted(token))
            if is_index and not self._take("]"):
                raise self._unexpected('"]"')
        return root, path

    def _literal(self) -> Any:
        token = self._next
        self._index += 1
        match token.kind:
            case "string":
                return _unquoted(token)
            case "number":
                return float(token.text) if not token.text.lstrip("-").isdecimal() else int(token.text)
            case "word" if token.text in _CONSTANTS:
                return _CONSTANTS[token.text]
        self._index -= 1
        raise self._unexpected("a number, true, false, null, or a text in quotes")


def _tokens(expression: str) -> list[_Token]:
    tokens = []
    position = 0
    text = expression.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            rest = text[position:].strip()[:20]
            hint = "; write == to compare" if rest.startswith("=") else ""
            raise InvalidFilterError(f"{rest!r} cannot be part of a filter{hint}")
        tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        position = match.end()
    return [*tokens, _Token("end", "", position)]


def _unquoted(token: _Token) -> str:
    return _ESCAPE.sub(r"\1", token.text[1:-1]) if token.kind == "string" else token.text


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _as_text(record: _FilteredRecord, root: str) -> str | None:
    """Return a key or value to compare with a string: the content of a JSON string, otherwise the bytes as UTF-8."""
    decoded = record.root(root)
    if isinstance(decoded, str):
        return decoded
    data = record.data(root)
    return None if data is None or len(data) > _DECODED_BYTES_MAX else _text(data)


def _member(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _is_set(value: Any) -> bool:
    return value is not None and value is not False


def _compare(comparison: str, actual: Any, literal: Any) -> bool:
    if comparison in ("==", "!="):
        return _is_equal(actual, literal) is (comparison == "==")
    if comparison == "contains":
        return _contains(actual, literal)
    has_order = (_is_number(actual) and _is_number(literal)) or (isinstance(actual, str) and isinstance(literal, str))
    return has_order and _ORDERINGS[comparison](actual, literal)


def _is_equal(actual: Any, literal: Any) -> bool:
    # In Python, True equals 1.
    return isinstance(actual, bool) is isinstance(literal, bool) and bool(actual == literal)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains(actual: Any, literal: Any) -> bool:
    if isinstance(actual, str):
        return isinstance(literal, str) and literal in actual
    if isinstance(actual, dict):
        return literal in actual
    return isinstance(actual, list) and any(_is_equal(item, literal) for item in actual)


def contains_text(text: str) -> Predicate:
    """Return a test for a text in keys, values and headers; ASCII letters match in any case."""
    needle, exact = text.lower().encode(), text.encode()

    def has_text(part: bytes | None) -> bool:
        # bytes.lower() affects ASCII only; other letters are compared as they are.
        return part is not None and (needle in part.lower() or exact in part)

    def is_in_headers(headers: Sequence[Header]) -> bool:
        return any(has_text(name.encode()) or has_text(value) for name, value in headers)

    return lambda _, record: has_text(record.key) or has_text(record.value) or is_in_headers(record.headers)
