"""A history as a file of JSON lines, to look at and to check again: the kind of an event, then its fields in order."""

import json
from collections.abc import Iterable, Iterator
from typing import TextIO, get_args

from logbrook.model import TopicPartition
from logbrook.testing.history.events import Event

_KINDS = {kind.__name__: kind for kind in get_args(Event)}


def save(events: Iterable[Event], file: TextIO) -> None:
    for event in events:
        json.dump([type(event).__name__, *event], file, separators=(",", ":"))
        file.write("\n")


def load(file: TextIO) -> Iterator[Event]:
    """Raises ValueError for a line that is no event."""
    for number, line in enumerate(file, 1):
        try:
            kind, *values = json.loads(line)
            yield _event(kind, values)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"line {number} is no event: {error}") from error


def _event(kind: str, values: list[object]) -> Event:
    cls = _KINDS[kind]
    fields = dict(zip(cls._fields, values, strict=True))
    match fields.get("partition"):
        case [str(topic), int(number)]:
            fields["partition"] = TopicPartition(topic, number)
    match fields.get("records"):
        case list(records):
            fields["records"] = [(offset, value) for offset, value in records]
    event: Event = cls(**fields)
    return event
