"""Topics by pattern: a TOPIC argument may be a glob such as orders-*, or a regular expression that begins with ^.

The name of a topic cannot have these characters, so a pattern is never a name. Patterns do not match internal topics,
unless these are listed.
"""

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import Annotated

import typer

from logbrook.cli.connection import topic_names
from logbrook.cli.failures import fail, refuse
from logbrook.client.admin import Admin

PATTERN_EPILOG = (
    "A TOPIC may be a pattern, in quotes: a glob ('orders-*', 'log-?') or a regular expression that begins with ^ "
    "('^orders-[0-9]+$')."
)

TopicPatterns = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC...", help="Names of the topics, or patterns.", autocompletion=topic_names),
]

_ARGUMENT = "TOPIC..."
_REGEX_START = "^"
_GLOB_CHARACTERS = frozenset("*?[")


def is_pattern(argument: str) -> bool:
    return argument.startswith(_REGEX_START) or not _GLOB_CHARACTERS.isdisjoint(argument)


def chosen_topics(admin: Admin, arguments: Sequence[str]) -> list[str]:
    """Return the named topics and those that match the patterns, each once; end the command if a pattern matches none.

    A name need not exist.
    """
    selection = TopicSelection(admin, arguments)
    for pattern, names in selection.matches().items():
        if not names:
            fail(f"no topic matches {pattern!r}; `logbrook topic list` shows the topics")
    return selection.topics()


class TopicSelection:
    """The topics that arguments choose, looked up anew at each call: new ones may match a pattern."""

    def __init__(self, admin: Admin, arguments: Sequence[str]) -> None:
        self._admin = admin
        self._arguments = arguments
        self._patterns = {argument: _compiled(argument) for argument in arguments if is_pattern(argument)}

    @property
    def has_patterns(self) -> bool:
        return bool(self._patterns)

    def matches(self) -> dict[str, list[str]]:
        """Return the topics of each pattern. Raises ClientError."""
        existing = self._admin.topics.names(with_internal=False) if self._patterns else []
        return {text: [name for name in existing if regex.search(name)] for text, regex in self._patterns.items()}

    def topics(self) -> list[str]:
        """Return the named topics and those that match now, each once. Raises ClientError."""
        matches = self.matches()
        return list(dict.fromkeys(name for argument in self._arguments for name in matches.get(argument, [argument])))


def matching_names(names: Iterable[str], arguments: Sequence[str]) -> set[str]:
    """Return those of `names` that are among the arguments or match one of them; all without arguments."""
    if not arguments:
        return set(names)
    patterns = [_compiled(argument) for argument in arguments if is_pattern(argument)]
    return {name for name in names if name in arguments or any(pattern.search(name) for pattern in patterns)}


def _compiled(argument: str) -> re.Pattern[str]:
    if not argument.startswith(_REGEX_START):
        return re.compile(f"^{translate(argument)}")
    try:
        return re.compile(argument)
    except re.error as error:
        refuse(_ARGUMENT, f"{argument!r} is not a regular expression: {error}")
