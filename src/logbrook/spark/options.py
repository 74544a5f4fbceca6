"""Options of a reader or a writer, as Spark hands them over: texts under names in any letter case.

Whoever reads an option names it, and `finish` refuses by name whatever nobody has named, because a misspelt option that
is silently ignored is a bug that nobody finds. Names that belong to Kafka's clients are known with and without the
prefix `kafka.`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from logbrook.spark.errors import OptionError

KAFKA_PREFIX = "kafka."
_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
_BOOLEANS = {"true": True, "false": False}
# What Spark adds by itself, or takes for itself.
_SPARKS_OWN = frozenset({"checkpointlocation", "path", "queryname"})


class OptionReader:
    """Reads options one by one; `finish` looks at what is left. Every method may raise OptionError."""

    def __init__(self, options: Mapping[str, str], *, ignored: Iterable[str] = _SPARKS_OWN) -> None:
        self._texts: dict[str, str] = {}
        self._given: dict[str, str] = {}
        for name, text in options.items():
            short = _short(name)
            if short in self._texts and self._texts[short] != text:
                raise OptionError(name, f"it is given twice, as {self._texts[short]!r} and as {text!r}")
            self._texts[short] = text
            self._given[short] = name
        self._ignored = frozenset(map(_short, ignored))
        self._known: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        """Whether the option is given."""
        return self._find(name) is not None

    def text(self, name: str) -> str | None:
        """The option's text without blanks around it, or None when it is not given or empty."""
        text = self._find(name)
        return (text.strip() or None) if text is not None else None

    def required(self, name: str) -> str:
        text = self.text(name)
        if text is None:
            raise OptionError(name, "it is required")
        return text

    def integer(self, name: str, default: int | None = None, *, at_least: int | None = None) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        # Python would also take 1_000 and the digits of every script.
        if not _INTEGER.fullmatch(text):
            raise OptionError(name, f"{text!r} is not a whole number")
        value = int(text)
        if at_least is not None and value < at_least:
            raise OptionError(name, f"it must be at least {at_least}, not {value}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        try:
            return _BOOLEANS[text.lower()]
        except KeyError:
            raise OptionError(name, f"it must be true or false, not {text!r}") from None

    def choice(self, name: str, allowed: Iterable[str], default: str) -> str:
        """The word of `allowed` that was given, in any letter case."""
        text = self.text(name)
        words = {word.lower(): word for word in allowed}
        if text is None:
            return default
        if text.lower() not in words:
            raise OptionError(name, f"it must be {' or '.join(words.values())}, not {text!r}")
        return words[text.lower()]

    def json_object(self, name: str) -> dict[str, Any] | None:
        text = self.text(name)
        if text is None:
            return None

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            """Python would keep the last of two values under one name, and nobody would miss the first."""
            value: dict[str, Any] = {}
            for key, part in pairs:
                if key in value:
                    raise OptionError(name, f"it names {key!r} twice")
                value[key] = part
            return value

        try:
            value = json.loads(text, object_pairs_hook=unique)
        except ValueError as error:
            raise OptionError(name, f"it is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise OptionError(name, f"it must be a JSON object, not {text!r}")
        return value

    def only_one_of(self, *names: str) -> str | None:
        """The one of these that is given, None for none of them."""
        given = [name for name in names if self.text(name) is not None]
        if len(given) > 1:
            raise OptionError(given[1], f"it cannot be given together with {given[0]!r}")
        return given[0] if given else None

    def finish(self) -> None:
        """Refuse what nobody has asked for."""
        for short, given in self._given.items():
            if short in self._known or short in self._ignored:
                continue
            nearest = get_close_matches(short, self._known, 1)
            hint = f"did you mean {self._known[nearest[0]]!r}?" if nearest else "docs/SPARK.md lists them all"
            raise OptionError(given, f"there is no such option; {hint}")

    def _find(self, name: str) -> str | None:
        short = _short(name)
        self._known.setdefault(short, name)
        return self._texts.get(short)


def _short(name: str) -> str:
    return name.lower().removeprefix(KAFKA_PREFIX)
