"""Filters of messages: which records match, which expressions are refused, and that hostile ones take no time."""

import json
import re
from typing import Any

import pytest

from logbrook.console.filters import InvalidFilterError, compile_filter, contains_text
from logbrook.model.identifiers import Offset
from logbrook.records.record import RawRecord

ORDER = {
    "country": "DE",
    "total": 12.5,
    "count": 3,
    "is_paid": True,
    "is_test": False,
    "note": None,
    "tags": ["new", 7],
    "items": [{"price": 5}, {"price": 8}],
    "customer": {"first-name": "Ada", "odd name.": 1},
}


def record(value: Any = None, key: bytes | None = b"42", data: bytes | None = None) -> RawRecord:
    encoded = json.dumps(value).encode() if data is None else data
    headers = (("trace", b"old"), ("trace", b"abc"), ("x-id", None))
    return RawRecord(Offset(1_200), 1_700_000_000_000, key, encoded, headers, b"")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('value.country == "DE"', True),
        ("value.country == 'FR'", False),
        ('value.country != "FR" and value.total > 10', True),
        ("value.total >= 12.5 and value.total <= 12.5", True),
        ("value.count < -1 or value.count == 3", True),
        ("not value.is_paid", False),
        ("not (value.is_test or value.note)", True),
        ("value.note == null and value.missing == null and value.country.deeper == null", True),
        ("value.items[1].price == 8 and value.items[2] == null", True),
        ('value.customer["odd name."] == 1 and value.customer.first-name == "Ada"', True),
        ('value.tags contains "new" and value.tags contains 7 and not value.tags contains "old"', True),
        ('value.country contains "E" and value.customer contains "first-name"', True),
        ('key == "42" and key == 42 and key.id == null', True),
        ('headers.trace == "abc" and headers["x-id"] == null', True),
        ("partition == 3 and offset > 1199 and offset <= 1200", True),
        ('timestamp >= "2023-11-14T22:00" and timestamp < 1700000000001', True),
        # Values of different types are not equal and have no order.
        ('value.count == "3" or value.is_paid == 1 or value.count == true', False),
        ('value.count < "4" or value.country < 4', False),
        ('value contains "customer"', True),
        ("value.count", True),
    ],
)
def test_records_match_by_their_fields(expression: str, expected: bool) -> None:
    assert compile_filter(expression)(3, record(ORDER)) is expected


def test_zero_is_a_value_and_text_is_compared_as_text() -> None:
    assert compile_filter("value.n")(0, record({"n": 0}))
    assert compile_filter('value == "plain text"')(0, record(data=b"plain text"))
    assert compile_filter('value == "quoted"')(0, record("quoted"))
    assert compile_filter('value == "said \\"no\\""')(0, record(data=b'said "no"'))
    assert compile_filter("value == null and key == null")(0, record(data=b"\xff\xfe\xfd", key=None))


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "a field of key"),
        ("country == 1", "a field of key"),
        ("value.country = 'DE'", "cannot be part of a filter; write == to compare"),
        ("value.country == DE", "a text in quotes"),
        ("value.country ==", "the filter ends"),
        ("value. == 1", "the name of a field"),
        ("value[-1] == 1", "a number or a string"),
        ("value[0 == 1", '"]"'),
        ("(value.a", '")"'),
        ("value.a == 1 value.b == 2", '"and", "or" or the end'),
        ("value.__class__()", '"and", "or" or the end'),
        ('timestamp > "noon"', "is not a time"),
        ("(" * 30 + "value" + ")" * 30, "nested"),
        ("value.a == 1 or " * 100 + "value.a", "at most 1000 characters"),
    ],
)
def test_invalid_filters_are_refused_with_the_place(expression: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        compile_filter(expression)


def test_hostile_values_do_not_match_and_raise_nothing() -> None:
    matches = compile_filter("value.a == 1")
    large = b'{"a": 1, "b": "' + b"x" * (1 << 20) + b'"}'
    for data in (b"[" * 200_000, b'{"a":' * 200_000, b"9" * 10_000, bytes(range(256)), large):
        assert not matches(0, record(data=data))
    with pytest.raises(InvalidFilterError):
        compile_filter('"' * 999)


def test_a_text_is_searched_in_keys_values_and_headers() -> None:
    assert contains_text("TRACE")(0, record())
    assert contains_text("AB")(0, record())
    assert contains_text("Ü")(0, record("Ü"[:0], data="Ü".encode()))
    assert not contains_text("nowhere")(0, record(ORDER))
