"""Formatting of sizes and times, and parsing of positions, partitions and settings."""

import pytest

from logbrook.client.offset_specs import AtOffset, AtTime, Earliest, Latest
from logbrook.console.formatting import (
    decode_text,
    format_size,
    format_time,
    parse_partitions,
    parse_position,
    parse_settings,
)
from logbrook.model.identifiers import Offset


def test_text_may_end_in_a_partial_character_but_has_no_control_characters() -> None:
    assert decode_text("aü".encode()[:2]) == "a"
    assert decode_text(b"\xffa") is None
    assert decode_text(b"\x00") is None


def test_sizes_and_times_are_formatted() -> None:
    assert [format_size(size) for size in (None, 0, 1023, 1536, 3 << 40)] == [
        "-",
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 TiB",
    ]
    assert format_time(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert format_time(-1) == format_time(10**18) == "-"


def test_positions_are_parsed_or_refused_with_a_message() -> None:
    assert parse_position("start", "") == Earliest()
    assert parse_position("end", "") == Latest()
    assert parse_position("offset", " 7 ") == AtOffset(Offset(7))
    assert parse_position("time", "1970-01-01T00:00:01") == parse_position("time", "1000") == AtTime(1_000)
    assert parse_position("time", "1970-01-01T01:00:01+01:00") == AtTime(1_000)
    for kind, text in (("offset", "-1"), ("offset", "²"), ("time", "noon"), ("middle", "")):
        with pytest.raises(ValueError, match="is no"):
            parse_position(kind, text)


def test_partitions_are_numbers_and_ranges() -> None:
    assert parse_partitions("") == []
    assert parse_partitions(" 7, 0, 2-4,") == [0, 2, 3, 4, 7]
    for text in ("-1", "a", "1-", "²", "9999999"):
        with pytest.raises(ValueError, match="is not a partition"):
            parse_partitions(text)


def test_settings_are_lines_of_name_and_value() -> None:
    assert parse_settings("a=1\n\n b.c = x=y ") == {"a": "1", "b.c": "x=y"}
    with pytest.raises(ValueError, match="is not a setting"):
        parse_settings("a")
