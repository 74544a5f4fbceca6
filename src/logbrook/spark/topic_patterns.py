"""Patterns of topic names (`subscribePattern`) in the syntax of Java's regular expressions, compiled for Python.

Spark's Kafka connector takes java.util.regex patterns. Python's syntax is the same but for a few constructs, which are
translated here: properties such as `\\p{Alpha}`, intersections and unions of character classes (`[a-z&&[^b]]`), quotes
(`\\Q…\\E`), named groups (`(?<name>…)`) and some escapes. A construct that has no equivalent is an error, never another
meaning.

Topic names consist of ASCII letters, digits, '.', '_' and '-'. A character class is therefore evaluated to the subset
of these that it contains, which is exact for topic names whatever alphabet a property covers.
"""

import re
import string
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

Characters = frozenset[str]

TOPIC_CHARACTERS: Characters = frozenset(string.ascii_letters + string.digits + "._-")
_DIGITS: Characters = frozenset(string.digits)
_WORD: Characters = TOPIC_CHARACTERS - frozenset(".-")
_NONE: Characters = frozenset()
# Class escapes; the upper-case letter is the complement.
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _NONE, "h": _NONE, "v": _NONE}
# Boundaries and backreferences. Both ends are the same, as a name has no line terminator.
_UNCHANGED = {character: character for character in "bBAZ123456789"} | {"z": "Z"}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_CATEGORY = re.compile(r"[LMNZCPS]|L[ultmo]|M[nce]|N[dlo]|Z[slp]|C[cfosn]|P[cdseifo]|S[mcko]")
_PROPERTY_KEYS = ("gc", "general_category", "sc", "script", "blk", "block")
_CODE_POINT = re.compile(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})")
_OCTAL = re.compile(r"0([0-3]?[0-7]{1,2})")
_GROUP_NAME = re.compile(r"k<([A-Za-z][A-Za-z0-9]*)>")
_PROPERTY = re.compile(r"[pP](?:\{([^}]*)\}|(.))", re.DOTALL)


@lru_cache
def topic_pattern(text: str) -> re.Pattern[str]:
    """Return the compiled pattern, to be used with `fullmatch`. Raises ValueError if it is not supported."""
    try:
        return re.compile(_Translator(text).translate())
    except re.error as error:
        raise ValueError(str(error)) from None


class _ClassMembers(NamedTuple):
    """A character class: the topic characters that it lists, or with `is_negated` all others."""

    members: Characters
    is_negated: bool = False

    @property
    def characters(self) -> Characters:
        return TOPIC_CHARACTERS - self.members if self.is_negated else self.members

    @property
    def python(self) -> str:
        """The class in Python's syntax. A negated one stays negated, for the flag (?i)."""
        if not self.members:
            return r"[\s\S]" if self.is_negated else r"[^\s\S]"
        return f"[{'^' * self.is_negated}{''.join(map(re.escape, sorted(self.members)))}]"


class _Translator:
    """Translates one pattern, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def translate(self) -> str:
        parts = []
        while self._at < len(self._text):
            if self._skip("\\"):
                parts.append(self._escape())
            elif self._skip("["):
                parts.append(self._class().python)
            elif self._text.startswith("(?<", self._at) and self._text[self._at + 3 : self._at + 4] not in ("=", "!"):
                self._skip("(?<")
                parts.append("(?P<")
            else:
                parts.append(self._next())
        return "".join(parts)

    def _escape(self) -> str:
        """Translate an escape outside a class; the backslash is skipped."""
        if self._skip("Q"):
            return re.escape(self._quoted())
        if (members := self._class_escape()) is not None:
            return members.python
        if match := self._match(_GROUP_NAME):
            return f"(?P={match[1]})"
        letter = self._text[self._at : self._at + 1]
        if letter in _UNCHANGED:
            return f"\\{_UNCHANGED[self._next()]}"
        return re.escape(self._character_escape())

    def _class(self) -> _ClassMembers:
        """Parse a character class; its opening bracket is skipped."""
        is_negated = self._skip("^")
        intersection = TOPIC_CHARACTERS
        members: Characters = _NONE
        is_empty = True
        while is_empty or not self._skip("]"):
            if self._at >= len(self._text):
                raise ValueError("a character class is not closed")
            if self._skip("&&"):
                if is_empty or self._text.startswith("]", self._at):
                    raise ValueError("&& needs a character class on both sides")
                intersection, members, is_empty = intersection & members, _NONE, True
                continue
            members |= self._class_item()
            is_empty = False
        return _ClassMembers(intersection & members, is_negated)

    def _class_item(self) -> Characters:
        """Parse a nested class, a class escape, a quote, a character or a range within a class."""
        if self._skip("["):
            return self._class().characters
        if self._skip("\\Q"):
            return TOPIC_CHARACTERS & frozenset(self._quoted())
        if self._skip("\\"):
            members = self._class_escape()
            if members is not None:
                return members.characters
            first = self._character_escape()
        else:
            first = self._next()
        end = self._text[self._at + 1 : self._at + 2]
        if self._text[self._at : self._at + 1] != "-" or end in ("", "]", "["):
            return TOPIC_CHARACTERS & {first}
        self._skip("-")
        last = self._character_escape() if self._skip("\\") else self._next()
        if last < first:
            raise ValueError(f"the range {first}-{last} is reversed")
        return frozenset(character for character in TOPIC_CHARACTERS if first <= character <= last)

    def _class_escape(self) -> _ClassMembers | None:
        """Parse an escape that stands for several characters; None if it is another."""
        if match := self._match(_PROPERTY):
            return _ClassMembers(_property_members(match[1] or match[2]), is_negated=match[0].startswith("P"))
        letter = self._text[self._at : self._at + 1]
        if letter.lower() not in _CLASSES:
            return None
        self._at += 1
        return _ClassMembers(_CLASSES[letter.lower()], is_negated=letter.isupper())

    def _character_escape(self) -> str:
        """Return the character that an escape stands for."""
        if match := self._match(_CODE_POINT):
            return chr(int(match[1] or match[2] or match[3], 16))
        if match := self._match(_OCTAL):
            return chr(int(match[1], 8))
        if self._skip("c"):
            return chr(ord(self._next()) ^ 64)
        letter = self._next()
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter.isascii() and letter.isalnum():
            raise ValueError(f"\\{letter} is not supported")
        return letter

    def _quoted(self) -> str:
        """Return the text up to \\E, or to the end."""
        quoted, end, _ = self._text[self._at :].partition("\\E")
        self._at += len(quoted) + len(end)
        return quoted

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise ValueError("it ends in the middle of an expression")
        self._at += 1
        return self._text[self._at - 1]

    def _skip(self, expected: str) -> bool:
        is_there = self._text.startswith(expected, self._at)
        self._at += len(expected) * is_there
        return is_there

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match


def _property_members(name: str) -> Characters:
    """Return the topic characters with a property of Java. Raises ValueError for an unknown one."""
    key, separator, value = name.partition("=")
    if separator and key.lower() not in _PROPERTY_KEYS:
        raise ValueError(f"\\p{{{name}}} is not supported")
    plain = value if separator else name
    for candidate in (plain, plain.removeprefix("Is"), plain.removeprefix("In")):
        if _CATEGORY.fullmatch(candidate):
            return frozenset(char for char in TOPIC_CHARACTERS if unicodedata.category(char).startswith(candidate))
        if (test := _PROPERTIES.get(candidate.lower().replace("_", ""))) is not None:
            return frozenset(filter(test, TOPIC_CHARACTERS))
    raise ValueError(f"\\p{{{name}}} is not supported")


def _is_any(character: str) -> bool:
    return bool(character)


def _is_none(character: str) -> bool:
    return not character


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation


def _is_hexadecimal(character: str) -> bool:
    return character in string.hexdigits


# By name in lower case without underscores: POSIX classes, methods of java.lang.Character, properties of Unicode.
_PROPERTIES: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(("lower", "lowercase", "javalowercase"), str.islower),
    **dict.fromkeys(("upper", "uppercase", "javauppercase"), str.isupper),
    **dict.fromkeys(("alpha", "alphabetic", "letter", "lc", "latin", "javaletter", "javaalphabetic"), str.isalpha),
    **dict.fromkeys(("digit", "javadigit"), str.isdigit),
    **dict.fromkeys(("alnum", "ld", "javaletterordigit"), str.isalnum),
    **dict.fromkeys(("punct", "punctuation"), _is_punctuation),
    **dict.fromkeys(("xdigit", "hexdigit"), _is_hexadecimal),
    **dict.fromkeys(("ascii", "graph", "print", "assigned", "basiclatin", "l1", "javadefined"), _is_any),
    **dict.fromkeys(("blank", "cntrl", "control", "space", "whitespace", "javawhitespace"), _is_none),
}
