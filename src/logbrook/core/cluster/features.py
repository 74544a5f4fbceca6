"""Feature levels of a cluster (KIP-584): what its brokers may write to the metadata store and send to each other.

A feature has a level, which is the same on all brokers: it is finalized in the metadata store. A broker supports a
range of levels and puts it into its node record. Brokers of different versions work together at the finalized level,
so they can be upgraded one by one. Then an operator raises the level. It is never lowered, and brokers whose range does
not include it cannot join.

    level of logbrook.version   since
    1                           the first version with clusters

A cluster that was founded before levels were recorded, and a node without ranges, are at level 1.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from logbrook.model import LogbrookError
from logbrook.model.identifiers import BrokerId

CLUSTER_VERSION = "logbrook.version"
_FIRST_LEVEL = 1


class FeatureRange(NamedTuple):
    """The levels of a feature that a broker supports."""

    first: int
    last: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.first <= level <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


# The levels that this version supports.
SUPPORTED: Mapping[str, FeatureRange] = {CLUSTER_VERSION: FeatureRange(_FIRST_LEVEL, 1)}


class UnsupportedLevelError(LogbrookError):
    """The cluster is at a level that this broker does not support; it cannot join."""

    def __init__(self, feature: str, level: int, supported: FeatureRange | None) -> None:
        range_ = "does not have this feature" if supported is None else f"supports {supported}"
        is_newer = supported is None or level > supported.last
        super().__init__(
            f"the cluster is at level {level} of {feature}, and this version {range_}; install "
            f"{'a newer' if is_newer else 'an older'} version of Logbrook"
        )


class InvalidLevelError(LogbrookError):
    """A level cannot be finalized: it is lower than the current one, or a broker does not support it."""


def finalized_levels(recorded: Mapping[str, int]) -> dict[str, int]:
    """Return the levels of a cluster, from those that are recorded in the metadata store."""
    return {CLUSTER_VERSION: _FIRST_LEVEL, **recorded}


def supported_ranges(recorded: Mapping[str, Sequence[int]]) -> dict[str, FeatureRange]:
    """Return the ranges of a node, from those of its record."""
    ranges = {name: FeatureRange(*levels) for name, levels in recorded.items()}
    return {CLUSTER_VERSION: FeatureRange(_FIRST_LEVEL, _FIRST_LEVEL), **ranges}


def check_levels(levels: Mapping[str, int], supported: Mapping[str, FeatureRange]) -> None:
    """Raises UnsupportedLevelError unless a broker with these ranges may join a cluster at these levels."""
    for feature, level in levels.items():
        if feature not in supported or level not in supported[feature]:
            raise UnsupportedLevelError(feature, level, supported.get(feature))


def check_upgrade(
    feature: str, level: int, levels: Mapping[str, int], nodes: Mapping[BrokerId, Mapping[str, FeatureRange]]
) -> None:
    """Raises InvalidLevelError unless the level may be finalized: no lower one, and supported by every node.

    `nodes` has the ranges of all nodes that the cluster knows, also of those that are down.
    """
    if level < levels.get(feature, 0):
        raise InvalidLevelError(f"{feature} is at level {levels[feature]}, and levels are never lowered")
    lacking = [node for node, ranges in nodes.items() if feature not in ranges or level not in ranges[feature]]
    if lacking:
        node = min(lacking)
        ranges = nodes[node].get(feature)
        what = f"does not have {feature}" if ranges is None else f"supports {ranges} of {feature}"
        raise InvalidLevelError(
            f"node {node} {what}, not level {level}; upgrade it first, or remove it if it is gone for good"
        )
