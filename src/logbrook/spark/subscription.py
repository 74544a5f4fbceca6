"""Which topics a query reads: by name, by pattern, or by partitions that are named one by one."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader

_OPTIONS = ("assign", "subscribe", "subscribePattern")


class Subscription(NamedTuple):
    """One of the three is there."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    @property
    def names(self) -> tuple[str, ...] | None:
        """The topics that must be there; None when any that fits the pattern will do."""
        if self.pattern is not None:
            return None
        return self.topics if self.assigned is None else tuple(self.assigned)

    def fits(self, topic: str) -> bool:
        return self.pattern is not None and re.fullmatch(self.pattern, topic) is not None

    def choose(self, topic: str, partitions: Iterable[int]) -> list[int]:
        """Those of the topic's partitions that are meant."""
        if self.assigned is None:
            return sorted(partitions)
        return sorted(self.assigned[topic])

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics like {self.pattern!r}"
        return ", ".join(self.names or ())


def read_subscription(options: OptionReader) -> Subscription:
    """Raises OptionError unless exactly one way is given."""
    given = options.only_one_of(*_OPTIONS)
    if given is None:
        raise OptionError("subscribe", f"one of {', '.join(_OPTIONS)} says what is to be read, and none is given")
    if given == "subscribe":
        topics = tuple(name.strip() for name in options.required("subscribe").split(",") if name.strip())
        if not topics:
            raise OptionError("subscribe", "it names no topic")
        return Subscription(topics=tuple(dict.fromkeys(topics)))
    if given == "subscribePattern":
        pattern = options.required("subscribePattern")
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError("subscribePattern", f"{pattern!r} is not a regular expression: {error}") from None
        return Subscription(pattern=pattern)
    return Subscription(assigned=_read_assigned(options))


def _read_assigned(options: OptionReader) -> dict[str, tuple[int, ...]]:
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, partitions in (options.json_object("assign") or {}).items():
        is_list = isinstance(partitions, list) and bool(partitions)
        if not is_list or not all(type(one) is int and one >= 0 for one in partitions):
            raise OptionError("assign", f'{topic!r} needs a list of partitions, as in {{"{topic}": [0, 1]}}')
        assigned[topic] = tuple(sorted(set(partitions)))
    if not assigned:
        raise OptionError("assign", "it names no partition")
    return assigned
