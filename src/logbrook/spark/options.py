"""Parser for the options of a data source, which Spark passes as strings under case-insensitive names.

Every option that is read counts as known; `finish` rejects the remaining ones, because a misspelt option that is
silently ignored is hard to find. The prefix `kafka.` of client options is optional, except where a name has another
meaning without it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from logbrook.client.errors import SecurityOptionError
from logbrook.client.security import ClientSecurity, parse_client_security
from logbrook.client.security_options import is_security_option, shown_value
from logbrook.spark.errors import OptionError

# Default of an integer option; None if it has none.
D = TypeVar("D", int, None)

KAFKA_PREFIX = "kafka."
_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
_BOOLEANS = {"true": True, "false": False}
# In Spark's Kafka source the consumers' group, under which nothing is committed. `group.id` asks for commits.
_PREFIXED = frozenset({"kafka.group.id"})
# Options that Spark itself adds or consumes.
_SPARK_OPTIONS = frozenset({"checkpointlocation", "path", "queryname"})


class OptionReader:
    """Typed access to options by name. Every method may raise OptionError. Call `finish` last."""

    def __init__(self, options: Mapping[str, str], *, ignored: Iterable[str] = _SPARK_OPTIONS) -> None:
        self._texts: dict[str, str] = {}
        self._given: dict[str, str] = {}
        for name, text in options.items():
            normalized = _normalized(name)
            if normalized in self._texts and self._texts[normalized] != text:
                previous, other = (
                    shown_value(normalized, repr(self._texts[normalized])),
                    shown_value(normalized, repr(text)),
                )
                raise OptionError(name, f"it is given twice, as {previous} and as {other}")
            self._texts[normalized] = text
            self._given[normalized] = name
        self._ignored = frozenset(map(_normalized, ignored))
        self._known: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def given(self) -> Iterator[tuple[str, str, str]]:
        """Yield each option: its lower-case name without prefix, its name as given, and its text."""
        for normalized, name in self._given.items():
            yield normalized, name, self._texts[normalized]

    def text(self, name: str) -> str | None:
        """Return the option's stripped text, or None if it is not given or empty."""
        text = self._find(name)
        return (text.strip() or None) if text is not None else None

    def required(self, name: str) -> str:
        text = self.text(name)
        if text is None:
            raise OptionError(name, "it is required")
        return text

    def integer(self, name: str, default: D, *, at_least: int | None = None) -> int | D:
        text = self.text(name)
        if text is None:
            return default
        # int() would also accept 1_000 and non-ASCII digits.
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
        """Return the given value, which must be one of `allowed`, case-insensitively, in the spelling of `allowed`."""
        text = self.text(name)
        words = {word.lower(): word for word in allowed}
        if text is None:
            return default
        if text.lower() not in words:
            raise OptionError(name, f"it must be {' or '.join(words.values())}, not {text!r}")
        return words[text.lower()]

    def names(self, name: str) -> tuple[str, ...]:
        """Return a comma-separated list of different names; empty if the option is not given."""
        names = tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())
        if len(set(names)) < len(names):
            raise OptionError(name, "it names a column twice")
        return names

    def json_object(self, name: str) -> dict[str, Any] | None:
        text = self.text(name)
        if text is None:
            return None

        def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            """Reject duplicate keys, of which json.loads would silently keep the last."""
            members: dict[str, Any] = {}
            for key, member in pairs:
                if key in members:
                    raise OptionError(name, f"it names {key!r} twice")
                members[key] = member
            return members

        try:
            value = json.loads(text, object_pairs_hook=unique_keys)
        except ValueError as error:
            raise OptionError(name, f"it is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise OptionError(name, f"it must be a JSON object, not {text!r}")
        return value

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Return all options whose name begins with `prefix`, in lower case and without it."""
        names = [normalized for normalized in self._texts if normalized.startswith(prefix)]
        for normalized in names:
            self._known.setdefault(normalized, normalized)
        return {normalized.removeprefix(prefix): self._texts[normalized].strip() for normalized in names}

    def security(self) -> ClientSecurity:
        """Return the security of connections, from the options of Kafka's clients."""
        options = {name: text for name, text in self._texts.items() if is_security_option(name)}
        self._known.update(dict.fromkeys(options, ""))
        try:
            return parse_client_security(options)
        except SecurityOptionError as error:
            name = self._given.get(error.option, f"{KAFKA_PREFIX}{error.option}")
            raise OptionError(name, error.reason) from None

    def only_one_of(self, *names: str) -> str | None:
        """Return which of the mutually exclusive options is given, or None."""
        given = [name for name in names if self.text(name) is not None]
        if len(given) > 1:
            raise OptionError(given[1], f"it cannot be given together with {given[0]!r}")
        return given[0] if given else None

    def finish(self) -> None:
        """Reject options that were never read."""
        for normalized, given in self._given.items():
            if normalized in self._known or normalized in self._ignored:
                continue
            nearest = get_close_matches(normalized, self._known, 1)
            hint = f"did you mean {self._known[nearest[0]]!r}?" if nearest else "docs/SPARK.md lists them all"
            raise OptionError(given, f"there is no such option; {hint}")

    def _find(self, name: str) -> str | None:
        normalized = _normalized(name)
        self._known.setdefault(normalized, name)
        return self._texts.get(normalized)


def _normalized(name: str) -> str:
    lower = name.lower()
    return lower if lower in _PREFIXED else lower.removeprefix(KAFKA_PREFIX)
