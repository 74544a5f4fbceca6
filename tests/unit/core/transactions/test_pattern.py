"""Patterns of transactional ids: RE2's syntax, limits and hostile patterns. Python's engine is the oracle."""

import re
import warnings

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from logbrook.core.transactions.errors import InvalidPatternError
from logbrook.core.transactions.shard import transactional_id_matcher


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("abc", ["abc"], ["", "ab", "abcd", "xabc", "aBc"]),
        ("a.c", ["abc", "a.c", "aöc"], ["ac", "a\nc"]),
        ("a|bc|", ["a", "bc", ""], ["ab", "b", "abc"]),
        ("orders-.*", ["orders-", "orders-1"], ["orders", "my-orders-1"]),
        ("(ab)*", ["", "ab", "abab"], ["a", "aba"]),
        ("(?:ab)+", ["ab", "abab"], ["", "aba"]),
        ("ab?c", ["ac", "abc"], ["abbc"]),
        ("a*?b+?c??", ["b", "aabbc"], ["a"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaaa"], ["a"]),
        ("a{1,3}", ["a", "aaa"], ["", "aaaa"]),
        ("a{0}b", ["b"], ["ab"]),
        ("a{,2}", ["a{,2}"], ["aa"]),
        ("a{", ["a{"], ["a"]),
        ("[a-c_]+", ["abc_"], ["d", ""]),
        ("[^a-c]", ["d", "\n"], ["a", "dd"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[[a]", ["[", "a"], ["b"]),
        ("[&&]", ["&"], ["&&"]),
        (r"[\]\d-]+", ["]", "12-"], ["a"]),
        (r"\d\D\w\W\s\S", ["1aa !b".replace("!", " ")], ["aaaaaa"]),
        (r"\d", ["1"], ["\u0661"]),
        (r"a\.b\\\[", [r"a.b\["], [r"axb\["]),
        ("^ab$", ["ab"], ["abab"]),
        ("(^a|b$)", ["a", "b"], ["ab"]),
        ("a^b|a$b", [], ["ab", "a^b", "a$b"]),
        ("^$", [""], ["a"]),
        ("a*$^", [""], ["a", "aa"]),
        ("x*^x*$", ["", "x"], ["y"]),
        ("", [""], ["a"]),
        ("(a|(b|c)d)*e", ["e", "abdcde"], ["abe"]),
    ],
)
def test_an_expression_matches_the_whole_text(pattern: str, yes: list[str], no: list[str]) -> None:
    matches = transactional_id_matcher(pattern)
    assert [text for text in [*yes, *no] if matches(text)] == yes


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "(a",
        "*",
        "a|*",
        "(*a)",
        "+",
        "[",
        "[a",
        "[z-a]",
        "\\",
        r"\q",
        r"\1",
        "a{3,2}",
        "a{1001}",
        "(?=a)",
    ],
)
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError) as caught:
        transactional_id_matcher(pattern)
    assert caught.value.pattern == pattern


@pytest.mark.parametrize("pattern", ["((a{100}){100}){100}", "(((){1000}){1000}){1000}", "(" * 1_001, "a" * 1_001])
def test_a_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError):
        transactional_id_matcher(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+", "(a|a)*", "(a|aa)+", "a*a*a*a*a*a*", "(.*)*(.*)*", "(a?){50}a{50}"])
def test_no_expression_takes_long(pattern: str) -> None:
    """A backtracking engine does not finish with some of these."""
    assert not transactional_id_matcher(pattern + "b")("a" * 1_000 + "c")


PARTS = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", "^", "$", ""]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("({0[0]}|{0[1]})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,1}"])).map("({0[0]}){0[1]}".format),
    ),
    max_leaves=8,
)


@given(PARTS, st.text("abc", max_size=8))
def test_it_agrees_with_pythons_engine(pattern: str, text: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            expected = re.fullmatch(pattern, text, re.ASCII) is not None
    except (re.error, Warning):
        assume(False)
    assert transactional_id_matcher(pattern)(text) is expected
