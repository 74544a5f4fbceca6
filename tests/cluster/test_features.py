"""Feature levels of a cluster: a rolling upgrade, and brokers that do not support the level in force."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook.client.connection import Connection
from logbrook.config.network import split_address
from logbrook.core.cluster.features import CLUSTER_VERSION, FeatureRange, UnsupportedLevelError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from logbrook.testing.cluster import Cluster
from tests.unit.cli.shell import Shell

OLD = {CLUSTER_VERSION: FeatureRange(1, 1)}
NEW = {CLUSTER_VERSION: FeatureRange(1, 2)}
FEATURE = "logbrook.version"


@pytest.fixture
def old_cluster() -> Iterator[Cluster]:
    """A cluster that was founded by an old version, at level 1."""
    cluster = Cluster(nodes=3, lease_s=30)
    for broker in cluster.brokers.values():
        broker.features = OLD
    with cluster:
        yield cluster


@pytest.fixture
def shell(old_cluster: Cluster, tmp_path: Path) -> Shell:
    return Shell(old_cluster.bootstrap_servers, tmp_path)


def connect(cluster: Cluster, number: int = 1) -> Connection:
    return Connection(*split_address(cluster.brokers[number].bootstrap_servers))


def finalized(cluster: Cluster, number: int = 1) -> tuple[dict[str, int], int]:
    with connect(cluster, number) as connection:
        response = connection.request(ApiVersionsRequest(client_software_name="t"), ApiVersionsResponse)
    levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return levels, response.finalized_features_epoch


def upgrade(cluster: Cluster, number: int) -> None:
    """Restart a broker with the new version."""
    cluster.brokers[number].features = NEW
    cluster.restart(number)
    cluster.wait_until_registered(number)


def test_levels_are_raised_when_all_nodes_are_upgraded(old_cluster: Cluster, shell: Shell) -> None:
    cluster = old_cluster
    upgrade(cluster, 1)
    upgrade(cluster, 2)
    rows = {row["feature"]: row for row in shell.json("cluster", "features")}
    assert rows[FEATURE] == {
        "feature": FEATURE,
        "level": 1,
        "supported": [1, 1],
        "nodes": {"1": [1, 2], "2": [1, 2], "3": [1, 1]},
    }
    assert "1: 1 to 2, 2: 1 to 2, 3: 1" in shell.ok("cluster", "features")
    assert shell.ok("cluster", "features", "--upgrade").startswith("all features are at the highest level")
    assert shell.refused("cluster", "features", "--upgrade", f"{FEATURE}=2", "--yes") == (
        "raising logbrook.version: node 3 supports 1 of logbrook.version, not level 2; upgrade it first, or remove it "
        "if it is gone for good"
    )
    upgrade(cluster, 3)
    epoch = finalized(cluster)[1]
    assert "logbrook.version can be raised" in shell.run("cluster", "features").err
    assert "Raise logbrook.version from 1 to 2?" in shell.refused("cluster", "features", "--upgrade", code=2)
    assert shell.ok("cluster", "features", "--upgrade", "--yes") == "logbrook.version is now at level 2\n"
    for number in cluster.brokers:
        levels, newer_epoch = finalized(cluster, number)
        assert (levels[FEATURE], newer_epoch > epoch) == (2, True)


def test_a_broker_without_the_level_in_force_does_not_start(old_cluster: Cluster, shell: Shell) -> None:
    cluster = old_cluster
    for number in cluster.brokers:
        upgrade(cluster, number)
    shell.ok("cluster", "features", "--upgrade", "--yes")
    cluster.brokers[3].features = OLD
    with pytest.raises(UnsupportedLevelError, match=r"at level 2 of logbrook.version, and this version supports 1;"):
        cluster.restart(3)
    newcomer = cluster.new_broker(4)
    newcomer.features = OLD
    with pytest.raises(UnsupportedLevelError):
        newcomer.start()
    cluster.brokers[3].features = NEW
    cluster.brokers[3].start()
    cluster.wait_until_registered(3)


def test_a_node_that_is_down_counts_until_it_is_removed(old_cluster: Cluster, shell: Shell) -> None:
    cluster = old_cluster
    upgrade(cluster, 1)
    upgrade(cluster, 2)
    cluster.brokers[3].stop()
    sentence = shell.refused("cluster", "features", "--upgrade", f"{FEATURE}=2", "--yes")
    assert "node 3 supports 1 of logbrook.version" in sentence
    shell.ok("cluster", "remove", "3")
    del cluster.brokers[3]
    shell.ok("cluster", "features", "--upgrade", "--yes")
    assert finalized(cluster)[0][FEATURE] == 2


def test_a_new_cluster_is_at_the_highest_level_of_its_first_broker(tmp_path: Path) -> None:
    cluster = Cluster(nodes=1, lease_s=30)
    cluster.brokers[1].features = NEW
    with cluster:
        assert finalized(cluster)[0][FEATURE] == 2
        newcomer = cluster.new_broker(2)
        newcomer.features = OLD
        with pytest.raises(UnsupportedLevelError):
            newcomer.start()


def test_a_registration_with_other_levels_makes_upgrades_that_are_under_way_fail(old_cluster: Cluster) -> None:
    """They are written with the condition that the epoch is the one on which they were decided."""
    epoch = finalized(old_cluster)[1]
    old_cluster.restart(2)
    old_cluster.wait_until_registered(2)
    assert finalized(old_cluster)[1] == epoch
    upgrade(old_cluster, 2)
    assert finalized(old_cluster)[1] > epoch


def test_clients_get_the_features_of_a_cluster(cluster: Cluster) -> None:
    """Java clients 3.3 to 3.7 close the connection if a least level is 0; they ask in version 3."""
    with connect(cluster) as connection:
        for version, supported in ((3, [FEATURE]), (4, ["transaction.version", FEATURE])):
            response = connection.request(
                ApiVersionsRequest(client_software_name="t", client_software_version="1"), ApiVersionsResponse, version
            )
            assert [feature.name for feature in response.supported_features] == supported
            levels = {feature.name: feature.min_version_level for feature in response.finalized_features}
            assert levels == {"transaction.version": 2, FEATURE: 1}


@pytest.mark.parametrize(
    ("feature", "level", "code"),
    [
        (FEATURE, 1, ErrorCode.NONE),
        (FEATURE, 0, ErrorCode.INVALID_UPDATE_VERSION),
        (FEATURE, 2, ErrorCode.INVALID_UPDATE_VERSION),
        ("transaction.version", 2, ErrorCode.NONE),
        ("metadata.version", 1, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_only_levels_that_all_brokers_support_are_accepted(
    cluster: Cluster, feature: str, level: int, code: ErrorCode
) -> None:
    update = FeatureUpdateKey(feature=feature, max_version_level=level)
    with connect(cluster) as connection:
        request = UpdateFeaturesRequest(feature_updates=[update])
        assert connection.request(request, UpdateFeaturesResponse).error_code == code


def test_a_checked_upgrade_changes_nothing(old_cluster: Cluster) -> None:
    for number in old_cluster.brokers:
        upgrade(old_cluster, number)
    update = FeatureUpdateKey(feature=FEATURE, max_version_level=2)
    with connect(old_cluster) as connection:
        request = UpdateFeaturesRequest(feature_updates=[update], validate_only=True)
        assert connection.request(request, UpdateFeaturesResponse).error_code == ErrorCode.NONE
    assert finalized(old_cluster)[0][FEATURE] == 1
