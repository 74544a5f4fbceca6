"""Where a query starts and where a batch ends, as people say it: the two ends, offsets, or times.

The forms are those of Spark's Kafka source, and their precedence too: one time for all partitions, before times by
partition, before offsets. Ours on top: a time may be said from now, as in "-10 minutes", also in place of offsets.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from logbrook.client import EARLIEST, LATEST
from logbrook.model import TopicPartition
from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader

_RELATIVE = re.compile(r"-\s*(\d+)\s*([a-z]+)", re.IGNORECASE)
_UNITS_MS = {"ms": 1, "millisecond": 1, "s": 1000, "sec": 1000, "second": 1000, "m": 60_000, "min": 60_000}
_UNITS_MS |= {"minute": 60_000, "h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000}
_WORDS = {"earliest": EARLIEST, "latest": LATEST}


class Edge(StrEnum):
    """Which end of the range a position is; the names begin their options."""

    STARTING = "starting"
    ENDING = "ending"


class Position(NamedTuple):
    """Offsets or times, for all partitions or for each. `everywhere` and `times` are in ms, or EARLIEST or LATEST."""

    option: str
    everywhere: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    times: Mapping[TopicPartition, int] | None = None

    @property
    def named(self) -> Mapping[TopicPartition, int] | None:
        """What is said of single partitions, if anything is."""
        return self.offsets if self.offsets is not None else self.times


def read_position(options: OptionReader, edge: Edge, now_ms: int, *, is_batch: bool) -> Position:
    """Raises OptionError. Without an option: everything there is, or for a stream everything from now on."""
    by_time, by_times, by_offsets = f"{edge}Timestamp", f"{edge}OffsetsByTimestamp", f"{edge}Offsets"
    # All of them are looked at, so that a wrong one is told even where another has its way.
    time_text, times, offsets_text = options.text(by_time), options.json_object(by_times), options.text(by_offsets)
    offsets = _read_offsets(by_offsets, offsets_text, edge, now_ms, is_batch=is_batch)
    if time_text is not None:
        return Position(by_time, everywhere=_read_time(by_time, time_text, now_ms))
    if times is not None:
        return Position(by_times, times=_read_times(by_times, times))
    if offsets is not None:
        return offsets
    is_start_of_batch = is_batch and edge is Edge.STARTING
    return Position(by_offsets, everywhere=EARLIEST if is_start_of_batch else LATEST)


def read_duration_ms(option: str, text: str) -> int:
    """A duration such as 15m, 10 minutes or 500ms. Raises OptionError."""
    found = _RELATIVE.fullmatch(f"-{text.strip()}")
    return _milliseconds(option, text, found)


def _read_offsets(name: str, text: str | None, edge: Edge, now_ms: int, *, is_batch: bool) -> Position | None:
    if text is None:
        return None
    word = _WORDS.get(text.lower())
    wrong_end = {Edge.STARTING: LATEST, Edge.ENDING: EARLIEST}[edge]
    refused = wrong_end if is_batch else None
    if word is not None:
        if word == refused:
            raise OptionError(name, f"a batch query cannot have {text.lower()!r} here: it would read nothing")
        return Position(name, everywhere=word)
    if found := _RELATIVE.fullmatch(text):
        return Position(name, everywhere=_before(now_ms, _milliseconds(name, text, found)))
    if not text.startswith("{"):
        raise OptionError(name, f"it must be earliest, latest, JSON or a time from now such as '-1h', not {text!r}")
    offsets = _by_partition(name, _json_of(name, text))
    for partition, offset in offsets.items():
        if offset < EARLIEST or offset == refused:
            raise OptionError(name, f"{offset} is not allowed for {partition}")
    return Position(name, offsets=offsets)


def _json_of(name: str, text: str) -> dict[str, Any]:
    return OptionReader({name: text}).json_object(name) or {}


def _read_time(option: str, text: str, now_ms: int) -> int:
    if text.isdecimal():
        return int(text)
    return _before(now_ms, _milliseconds(option, text, _RELATIVE.fullmatch(text)))


def _read_times(option: str, document: Mapping[str, Any]) -> dict[TopicPartition, int]:
    times = _by_partition(option, document)
    for partition, time_ms in times.items():
        # Below zero are not times for a broker, but questions of other kinds.
        if time_ms < 0:
            raise OptionError(option, f"{time_ms} is not a time for {partition}")
    return times


def _before(now_ms: int, ago_ms: int) -> int:
    return max(0, now_ms - ago_ms)


def _milliseconds(option: str, text: str, found: re.Match[str] | None) -> int:
    unit = found and found[2].lower()
    factor = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s")) if unit else None
    if found is None or factor is None:
        raise OptionError(option, f"{text!r} is not a time: milliseconds, or one with a unit such as '-10 minutes'")
    return int(found[1]) * factor


def _by_partition(option: str, document: Mapping[str, Any]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, values in document.items():
        if not isinstance(values, dict):
            raise OptionError(option, f'{topic!r} needs a number for each partition, as in {{"{topic}": {{"0": 23}}}}')
        for partition, value in values.items():
            if not partition.isdecimal() or type(value) is not int:
                raise OptionError(option, f"{topic!r} has {partition!r}: {value!r}, which is not a partition's number")
            found[TopicPartition(topic, int(partition))] = value
    if not found:
        raise OptionError(option, "it names no partition")
    return found
