"""Levels of features: who may join, and when a level may be raised."""

import pytest

from logbrook.core.cluster.features import (
    CLUSTER_VERSION,
    FeatureRange,
    InvalidLevelError,
    UnsupportedLevelError,
    check_levels,
    check_upgrade,
    finalized_levels,
    supported_ranges,
)
from logbrook.model.identifiers import BrokerId

OLD = {CLUSTER_VERSION: FeatureRange(1, 1)}
NEW = {CLUSTER_VERSION: FeatureRange(1, 2)}
NEWER = {CLUSTER_VERSION: FeatureRange(2, 3), "other.version": FeatureRange(1, 1)}
ONE, TWO = BrokerId(1), BrokerId(2)


def test_state_without_a_feature_level_is_at_level_1() -> None:
    assert finalized_levels({}) == {CLUSTER_VERSION: 1}
    assert finalized_levels({CLUSTER_VERSION: 2}) == {CLUSTER_VERSION: 2}
    assert supported_ranges({}) == OLD
    assert supported_ranges({CLUSTER_VERSION: [1, 2]}) == NEW


@pytest.mark.parametrize(
    ("levels", "supported", "reason"),
    [
        ({CLUSTER_VERSION: 2}, OLD, r"at level 2 of logbrook.version, and this version supports 1; install a newer"),
        ({CLUSTER_VERSION: 1}, NEWER, r"at level 1 of logbrook.version, and this version supports 2 to 3; install an"),
        ({"other.version": 1}, NEW, r"at level 1 of other.version, and this version does not have this feature"),
    ],
)
def test_a_broker_cannot_join_a_cluster_at_a_level_that_it_does_not_support(
    levels: dict[str, int], supported: dict[str, FeatureRange], reason: str
) -> None:
    with pytest.raises(UnsupportedLevelError, match=reason):
        check_levels(levels, supported)


def test_a_broker_can_join_at_every_level_of_its_range() -> None:
    check_levels({CLUSTER_VERSION: 1}, NEW)
    check_levels({CLUSTER_VERSION: 2}, NEW)


@pytest.mark.parametrize(
    ("feature", "level", "nodes", "reason"),
    [
        (CLUSTER_VERSION, 2, {ONE: NEW, TWO: OLD}, "node 2 supports 1 of logbrook.version, not level 2; upgrade it"),
        (CLUSTER_VERSION, 0, {ONE: NEW}, "logbrook.version is at level 1, and levels are never lowered"),
        ("other.version", 1, {ONE: NEWER, TWO: NEW}, "node 2 does not have other.version, not level 1"),
    ],
)
def test_a_level_that_a_node_does_not_support_is_not_finalized(
    feature: str, level: int, nodes: dict[BrokerId, dict[str, FeatureRange]], reason: str
) -> None:
    with pytest.raises(InvalidLevelError, match=reason):
        check_upgrade(feature, level, {CLUSTER_VERSION: 1}, nodes)


def test_a_level_that_all_nodes_support_may_be_finalized() -> None:
    check_upgrade(CLUSTER_VERSION, 2, {CLUSTER_VERSION: 1}, {ONE: NEW, TWO: NEW})
    check_upgrade(CLUSTER_VERSION, 1, {CLUSTER_VERSION: 1}, {ONE: NEW, TWO: OLD})
