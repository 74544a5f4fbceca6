"""Patterns of topics have the syntax of Java's regular expressions."""

import re
from string import ascii_letters, digits

import pytest

from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader
from logbrook.spark.read_options import read_subscription
from logbrook.spark.topic_patterns import TOPIC_CHARACTERS, topic_pattern


def matching(pattern: str) -> str:
    """Return the topic characters that the pattern matches, in the order of ASCII."""
    return "".join(sorted(char for char in TOPIC_CHARACTERS if topic_pattern(pattern).fullmatch(char)))


LETTERS = "".join(sorted(ascii_letters))
UPPER, LOWER = LETTERS[:26], LETTERS[26:]
ALL = "".join(sorted(TOPIC_CHARACTERS))


@pytest.mark.parametrize(
    ("pattern", "characters"),
    [
        (r"\p{Alpha}", LETTERS),
        (r"\p{Lower}", LOWER),
        (r"\p{javaUpperCase}", UPPER),
        (r"\p{Digit}", digits),
        (r"\p{Punct}", "-._"),
        (r"\p{ASCII}", ALL),
        (r"\p{Space}", ""),
        (r"\P{Space}", ALL),
        (r"\P{Alnum}", "-._"),
        (r"\pL", LETTERS),
        (r"\p{Lu}", UPPER),
        (r"\p{IsLl}", LOWER),
        (r"\p{gc=Nd}", digits),
        (r"\p{IsAlphabetic}", LETTERS),
        (r"\p{IsLatin}", LETTERS),
        (r"\p{script=Latin}", LETTERS),
        (r"\p{Pd}", "-"),
        (r"\p{XDigit}", f"{digits}ABCDEFabcdef"),
        (r"[\p{Upper}0-3_]", f"0123{UPPER}_"),
        (r"[\P{Alpha}x]", f"-.{digits}_x"),
        (r"[^\p{Alpha}]", f"-.{digits}_"),
        (r"[a-e&&[^bd]]", "ace"),
        (r"[a-e&&c-z]", "cde"),
        (r"[a-e&&[a-d]&&[b-z]]", "bcd"),
        (r"[a[bc][^\w.]]", "-abc"),
        (r"[^a-zA-Z[0-9]]", "-._"),
        (r"[]a]", "a"),
        (r"[a\-.]", "-.a"),
        (r"[a-]", "-a"),
        (r"[\d&&[^0]]", "123456789"),
        (r"[\Qa-z\E]", "-az"),
        (r"[\x{61}\u0062\x63\0144]", "abcd"),
        (r"\x{61}|\0142", "ab"),
        (r"[\h\v\s]", ""),
        (r"\H", ALL),
        (r"[/+]", ""),
        (r"[^/]", ALL),
        (r"(?i)[^ab]", "".join(char for char in ALL if char not in "abAB")),
        (r"(?i)[a-c&&b]", "Bb"),
        (r"\w", f"{digits}{UPPER}_{LOWER}"),
    ],
)
def test_character_classes_are_those_of_java(pattern: str, characters: str) -> None:
    assert matching(pattern) == "".join(sorted(characters))


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        (r"orders-\p{Alpha}+", ["orders-eu"], ["orders-1", "orders-"]),
        (r"\Qa.b\E.*", ["a.b", "a.bc"], ["axb"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"(?<zone>eu|us)-\k<zone>", ["eu-eu"], ["eu-us"]),
        (r"(eu|us)-\1", ["us-us"], ["eu-us"]),
        (r"(?<!a)b|ab(?<=b)", ["b", "ab"], ["cb"]),
        (r"\Aa\z", ["a"], ["ab"]),
        (r"a\Z|\bb\B.", ["a", "bb"], ["b"]),
        (r"a++b", ["aab"], ["b"]),
        (r"\.\-\_", [".-_"], ["a-_"]),
        (r"(?P<x>a)(?P=x)", ["aa"], ["ab"]),
        (r"\p{Upper}{2,3}", ["AB", "ABC"], ["A", "ABCD", "ab"]),
    ],
)
def test_the_rest_of_the_syntax_is_javas(pattern: str, matches: list[str], others: list[str]) -> None:
    compiled = topic_pattern(pattern)
    assert [name for name in matches + others if compiled.fullmatch(name)] == matches


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"\p{Klingon}", r"\p{Klingon} is not supported"),
        (r"\p{age=3.0}", r"\p{age=3.0} is not supported"),
        (r"\Ga", r"\G is not supported"),
        (r"\R", r"\R is not supported"),
        (r"[a&&]", "&& needs a character class on both sides"),
        (r"[&&a]", "&& needs a character class on both sides"),
        (r"[a", "a character class is not closed"),
        (r"[b-a]", "the range b-a is reversed"),
        (r"[\y]", r"\y is not supported"),
        (r"a\c", "it ends in the middle of an expression"),
        ("(", "missing )"),
        ("a\\", "it ends in the middle of an expression"),
        (r"(?d)a", "unknown extension"),
    ],
)
def test_a_pattern_that_cannot_be_translated_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(OptionError, match=re.escape(reason)) as refused:
        read_subscription(OptionReader({"subscribePattern": pattern}))
    assert str(refused.value).startswith(f"option 'subscribePattern': {pattern!r} is not a pattern of topics: ")


def test_a_subscription_matches_by_the_translated_pattern() -> None:
    subscription = read_subscription(OptionReader({"subscribePattern": r"\p{Alpha}+"}))
    assert subscription.pattern == r"\p{Alpha}+"
    assert subscription.matches("orders")
    assert not subscription.matches("orders-1")
