"""UpdateFeatures: the levels of features are fixed."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.unit.server.handlers.kit import Peer, distinct_versions

RESULTS_LAST = 1
FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2


def update(peer: Peer, *updates: FeatureUpdateKey, version: int | None = None) -> UpdateFeaturesResponse:
    return peer.ask(UpdateFeaturesRequest(feature_updates=updates), UpdateFeaturesResponse, version)


@distinct_versions(UpdateFeaturesRequest)
def test_an_update_to_the_current_level_succeeds_and_others_are_refused(peer: Peer, version: int) -> None:
    same = FeatureUpdateKey(feature=FEATURE, max_version_level=2)
    response = update(peer, same, version=version)
    assert response.error_code == ErrorCode.NONE
    assert [result.error_code for result in response.results] == [ErrorCode.NONE] * (version <= RESULTS_LAST)
    newer = FeatureUpdateKey(feature=FEATURE, max_version_level=3)
    response = update(peer, same, newer, version=version)
    assert (response.error_code, len(response.results)) == (ErrorCode.INVALID_UPDATE_VERSION, 0)
    assert response.error_message


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "code"),
    [
        (FEATURE, 1, UPGRADE, ErrorCode.INVALID_UPDATE_VERSION),
        (FEATURE, 1, SAFE_DOWNGRADE, ErrorCode.FEATURE_UPDATE_FAILED),
        (FEATURE, -1, SAFE_DOWNGRADE, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 1, UPGRADE, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_no_feature_changes_its_level(peer: Peer, feature: str, level: int, upgrade_type: int, code: ErrorCode) -> None:
    wanted = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
    assert update(peer, wanted).error_code == code
