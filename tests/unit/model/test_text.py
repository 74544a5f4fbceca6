"""Escaping of untrusted text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbrook.model.text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, Größe 大", "plain text, Größe 大"),
        ("a\nb\r", "a\\nb\\r"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("\u202egnp\u2028", "\\u202egnp\\u2028"),
        ("\udcff", "\\udcff"),
        ("\\n", "\\\\n"),
    ],
)
def test_non_printing_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_everything_prints_and_nothing_is_lost(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown.encode("latin-1", "backslashreplace").decode("unicode_escape") == text


@given(st.text(), st.text())
def test_different_texts_never_look_alike(first: str, second: str) -> None:
    assert (printable(first) == printable(second)) == (first == second)
