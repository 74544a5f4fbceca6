"""TOML with line numbers."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbrook.config.toml_lines import TomlSyntaxError, lines_of_keys, parse_toml

DOCUMENT = """\
# a comment
data = "d" # [not.a.table]

[network]   # a table
listen = "a"

"quoted key" = 1
text = '''
[log]
fake = 1
'''
many = [
  "x", # = in a comment
  "y",
]
[a.b]
c.d = 1
inline = { e = 1, f = { g = 2 } }
[[list]]
h = 1
"""

LINES = {
    ("data",): 2,
    ("network",): 4,
    ("network", "listen"): 5,
    ("network", "quoted key"): 7,
    ("network", "text"): 8,
    ("network", "many"): 12,
    ("a",): 16,
    ("a", "b"): 16,
    ("a", "b", "c"): 17,
    ("a", "b", "c", "d"): 17,
    ("a", "b", "inline"): 18,
    ("a", "b", "inline", "e"): 18,
    ("a", "b", "inline", "f"): 18,
    ("a", "b", "inline", "f", "g"): 18,
    ("list",): 19,
    ("list", "h"): 20,
}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_every_key_and_table_has_the_line_on_which_it_begins(line_end: str) -> None:
    assert lines_of_keys(DOCUMENT.replace("\n", line_end)) == LINES


def test_a_table_that_is_opened_by_a_key_of_another_has_the_line_of_that_key() -> None:
    assert lines_of_keys("network.listen = 'a'\nnetwork.advertise = 'b'") == {
        ("network",): 1,
        ("network", "listen"): 1,
        ("network", "advertise"): 2,
    }


def paths(table: dict[str, Any], above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    result = set()
    for name, value in table.items():
        result.add((*above, name))
        if isinstance(value, dict):
            result |= paths(value, (*above, name))
    return result


@given(st.lists(st.sampled_from([*DOCUMENT.splitlines(), "[log]", "x = 1", "log.y = 2", '"" = 1', '"a.b" = 1', "'''"])))
def test_no_key_of_a_valid_document_is_without_a_line(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert paths(document) <= set(lines_of_keys(text))


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"a = 1\nb 2\n", 2, "Expected '=' after a key in a key/value pair"),
        (b"a = 1\n\na = 2\n", 3, "Cannot overwrite a value"),
        (b"a = [1,\n2\n", 2, "Unclosed array"),
        (b"a = 1\nb = \xff\n", 2, "it is not UTF-8"),
    ],
)
def test_invalid_toml_is_refused_with_its_line(content: bytes, line: int, reason: str) -> None:
    with pytest.raises(TomlSyntaxError) as refused:
        parse_toml(content)
    assert (refused.value.line, refused.value.reason) == (line, reason)


@pytest.mark.parametrize("content", [b"a = " + b"[" * 100_000, b"a = " + b"9" * 5_000])
def test_a_value_that_the_parser_gives_up_on_is_refused(content: bytes) -> None:
    with pytest.raises(TomlSyntaxError):
        parse_toml(content)
