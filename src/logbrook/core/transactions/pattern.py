"""Regular expressions by which operators choose transactional ids (KIP-1152).

Anybody who may list transactions sends one, and it is tried on every id. Python's own engine backtracks: there are
short expressions that it does not finish with in a lifetime, and the broker would stand still. Kafka uses RE2, which
never needs more than a step per character. So does this: an expression becomes a program of small instructions, a set
of places in the program is followed through the text, and a set that was met before is not worked out again.

It knows characters, `.`, classes, `\\d \\w \\s` and their opposites, groups, `|`, `* + ? {m,n}`, `^` and `$`. A match
is of the whole id, so it does not matter whether repeats are greedy.
"""

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from logbrook.core.transactions.errors import InvalidPatternError

_PATTERN_LENGTH_MAX = 1_000
_PROGRAM_LENGTH_MAX = 5_000
_REPEATS_MAX = 1_000
_NESTING_MAX = 100
_KNOWN_SETS_MAX = 1_000

_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_COUNTS = re.compile(r"\{(\d{1,4})(?:(,)(\d{1,4})?)?\}", re.ASCII)
_ESCAPES = "dDwWsStnrfv"

# What an instruction does: takes a character that it likes, goes to other places, or goes on at one end of the text.
_Take: TypeAlias = Callable[[str], object]
_BEGIN = "begin"
_END = "end"
_Instruction: TypeAlias = _Take | tuple[int, ...] | str
# A part of an expression: writes its instructions to the end of a program.
_Part: TypeAlias = Callable[[list[_Instruction]], None]
_Places: TypeAlias = frozenset[int]


class Pattern:
    """A regular expression. Raises InvalidPatternError if it does not read, or is too large."""

    def __init__(self, text: str) -> None:
        self._program = _Parser(text).program()
        self._start = self._reach([0], at_begin=True)
        self._known: dict[tuple[_Places, str], _Places] = {}
        self._known_ends: dict[_Places, bool] = {}

    def matches(self, text: str) -> bool:
        """Whether the whole text is an instance of the expression."""
        places = self._start
        for character in text:
            places = self._after(places, character)
            if not places:
                return False
        # Those of an empty text are no others': only the start has the first place of the program.
        is_end = self._known_ends.get(places)
        if is_end is None:
            reached = self._reach(places, at_begin=not text, at_end=True)
            is_end = self._known_ends[places] = len(self._program) in reached
        return is_end

    def _after(self, places: _Places, character: str) -> _Places:
        after = self._known.get((places, character))
        if after is None:
            if len(self._known) >= _KNOWN_SETS_MAX:
                self._known.clear()
                self._known_ends.clear()
            taken = [place + 1 for place in places if self._takes(place, character)]
            after = self._known[places, character] = self._reach(taken)
        return after

    def _takes(self, place: int, character: str) -> bool:
        instruction = self._program[place] if place < len(self._program) else None
        return callable(instruction) and bool(instruction(character))

    def _reach(self, places: Iterable[int], *, at_begin: bool = False, at_end: bool = False) -> _Places:
        """These places and all that can be got to from them without taking a character."""
        reached: set[int] = set()
        left = list(places)
        while left:
            place = left.pop()
            if place in reached:
                continue
            reached.add(place)
            instruction = self._program[place] if place < len(self._program) else None
            if isinstance(instruction, tuple):
                left += [place + distance for distance in instruction]
            elif (instruction == _BEGIN and at_begin) or (instruction == _END and at_end):
                left.append(place + 1)
        return frozenset(reached)


class _Parser:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._nesting = 0
        if len(text) > _PATTERN_LENGTH_MAX:
            raise InvalidPatternError(text[:100], f"is longer than {_PATTERN_LENGTH_MAX} characters")

    def program(self) -> list[_Instruction]:
        part = self._alternatives()
        if self._position < len(self._text):
            raise self._error("closes a group that is not open")
        program: list[_Instruction] = []
        part(program)
        return program

    def _alternatives(self) -> _Part:
        parts = [self._sequence()]
        while self._skip("|"):
            parts.append(self._sequence())
        while len(parts) > 1:
            last = parts.pop()
            parts[-1] = self._either(parts[-1], last)
        return parts[0]

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self._position < len(self._text) and self._text[self._position] not in "|)":
            parts.append(self._repeated(self._atom()))

        def write(program: list[_Instruction]) -> None:
            self._write(program, (1,))
            for part in parts:
                part(program)

        return write

    def _repeated(self, part: _Part) -> _Part:
        counts = self._counts()
        if counts is None:
            return part
        # Whether it takes much or little first is all the same.
        self._skip("?")
        if self._counts() is not None:
            raise self._error("repeats a repeat")
        return self._times(part, *counts)

    def _counts(self) -> tuple[int, int | None] | None:
        """How often the part before is repeated, at least and at most."""
        if self._skip("*"):
            return 0, None
        if self._skip("+"):
            return 1, None
        if self._skip("?"):
            return 0, 1
        found = _COUNTS.match(self._text, self._position)
        if found is None:
            return None
        self._position = found.end()
        at_least = int(found[1])
        at_most = int(found[3]) if found[3] else None if found[2] else at_least
        if max(at_least, at_most or 0) > _REPEATS_MAX or (at_most is not None and at_most < at_least):
            raise self._error(f"has a repeat of {found[0]}")
        return at_least, at_most

    def _atom(self) -> _Part:
        character = self._text[self._position]
        if character in "*+?":
            raise self._error("repeats nothing")
        if character == "[":
            return self._class()
        self._position += 1
        if character == "(":
            return self._group()
        if character == "\\":
            return self._escape()
        if character in "^$":
            return self._one(_BEGIN if character == "^" else _END)
        return self._one((lambda taken: taken != "\n") if character == "." else character.__eq__)

    def _group(self) -> _Part:
        self._nesting += 1
        if self._nesting > _NESTING_MAX:
            raise self._error(f"is nested more than {_NESTING_MAX} deep")
        self._skip("?:")
        part = self._alternatives()
        if not self._skip(")"):
            raise self._error("has a group that does not end")
        self._nesting -= 1
        return part

    def _class(self) -> _Part:
        """One character of several. For one character Python's engine has nothing to go back to."""
        found = _CLASS.match(self._text, self._position)
        if found is None:
            raise self._error("has a class that does not end")
        self._position = found.end()
        # Python keeps a doubled bracket or sign for a meaning to come, and warns.
        text = found[0][0] + re.sub(r"(?<!\\)([\[&~|])", r"\\\1", found[0][1:])
        try:
            return self._one(re.compile(text, re.ASCII).fullmatch)
        except re.error as error:
            raise self._error(f"has a class {found[0]} that does not read ({error.msg})") from None

    def _escape(self) -> _Part:
        character = self._text[self._position : self._position + 1]
        self._position += 1
        if character in _ESCAPES and character:
            return self._one(re.compile("\\" + character, re.ASCII).fullmatch)
        if not character or character.isalnum():
            raise self._error(f"has an escape \\{character}, which has no meaning here")
        return self._one(character.__eq__)

    def _one(self, instruction: _Instruction) -> _Part:
        return lambda program: self._write(program, instruction)

    def _either(self, first: _Part, second: _Part) -> _Part:
        def write(program: list[_Instruction]) -> None:
            fork = self._write_later(program)
            first(program)
            leave = self._write_later(program)
            program[fork] = (1, len(program) - fork)
            second(program)
            program[leave] = (len(program) - leave,)

        return write

    def _times(self, part: _Part, at_least: int, at_most: int | None) -> _Part:
        def write(program: list[_Instruction]) -> None:
            for _ in range(at_least):
                part(program)
            for _ in range(1 if at_most is None else at_most - at_least):
                fork = self._write_later(program)
                part(program)
                if at_most is None:
                    self._write(program, (fork - len(program),))
                program[fork] = (1, len(program) - fork)

        return write

    def _write(self, program: list[_Instruction], instruction: _Instruction) -> None:
        if len(program) >= _PROGRAM_LENGTH_MAX:
            raise self._error("is too large: it repeats too much")
        program.append(instruction)

    def _write_later(self, program: list[_Instruction]) -> int:
        """A place for an instruction that depends on what follows."""
        self._write(program, ())
        return len(program) - 1

    def _skip(self, expected: str) -> bool:
        is_next = self._text.startswith(expected, self._position)
        self._position += len(expected) if is_next else 0
        return is_next

    def _error(self, reason: str) -> InvalidPatternError:
        return InvalidPatternError(self._text, reason)
