"""The options that read certain ranges of offsets and nothing else, whatever has been written since."""

import json
from collections.abc import Callable, Iterable, Mapping

from logbrook.spark.splits import OffsetRange

_SUBSCRIPTIONS = frozenset({"assign", "subscribe", "subscribepattern"})


def reading_exactly(options: Mapping[str, str], ranges: Iterable[OffsetRange]) -> dict[str, str]:
    """`options` of a batch read, with the ranges in place of what they said of topics and of where to begin and end."""
    ranges = list(ranges)
    kept = {
        name: text
        for name, text in options.items()
        if name.lower() not in _SUBSCRIPTIONS and not name.lower().startswith(("starting", "ending"))
    }
    assigned: dict[str, list[int]] = {}
    for one in ranges:
        assigned.setdefault(one.partition.topic, []).append(one.partition.partition)
    return {
        **kept,
        "assign": json.dumps(assigned),
        "startingOffsets": _as_json(ranges, lambda one: one.start),
        "endingOffsets": _as_json(ranges, lambda one: one.end),
    }


def _as_json(ranges: list[OffsetRange], offset_of: Callable[[OffsetRange], int]) -> str:
    by_topic: dict[str, dict[str, int]] = {}
    for one in ranges:
        by_topic.setdefault(one.partition.topic, {})[str(one.partition.partition)] = offset_of(one)
    return json.dumps(by_topic)
