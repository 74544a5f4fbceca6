"""Administration of feature levels (KIP-584): those in force, those that brokers support, and raising them."""

from collections.abc import Mapping
from dataclasses import dataclass

from logbrook.client.client import Client
from logbrook.client.errors import check_code
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_SOFTWARE = "logbrook"


@dataclass(frozen=True, slots=True)
class FeatureInfo:
    """A feature. `level` is 0 if none is in force; `nodes` has the first and last level that each live broker supports.

    A broker that does not name the feature supports level 0 only.
    """

    name: str
    level: int
    nodes: Mapping[int, tuple[int, int]]

    @property
    def common(self) -> tuple[int, int] | None:
        """The levels that all live brokers support, None without any."""
        first = max(levels[0] for levels in self.nodes.values())
        last = min(levels[1] for levels in self.nodes.values())
        return (first, last) if first <= last else None

    @property
    def can_be_raised_to(self) -> int | None:
        """The highest level that all live brokers support, None if it is in force."""
        common = self.common
        return common[1] if common is not None and common[1] > self.level else None


class FeatureAdmin:
    """Every call may raise ClientError."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self) -> list[FeatureInfo]:
        """Ask all live brokers, and return the features by name."""
        supported: dict[int, dict[str, tuple[int, int]]] = {}
        levels: dict[str, int] = {}
        newest_epoch = -1
        request = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version="1")
        for broker in self._client.metadata([]).brokers:
            connection = self._client.connection((broker.host, broker.port))
            response = connection.request(request, ApiVersionsResponse)
            check_code(response.error_code, f"asking broker {broker.node_id} for its features")
            supported[broker.node_id] = {
                feature.name: (feature.min_version, feature.max_version) for feature in response.supported_features
            }
            if response.finalized_features_epoch > newest_epoch:
                newest_epoch = response.finalized_features_epoch
                levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
        names = sorted({*levels, *(name for ranges in supported.values() for name in ranges)})
        return [
            FeatureInfo(
                name,
                levels.get(name, 0),
                {broker_id: ranges.get(name, (0, 0)) for broker_id, ranges in sorted(supported.items())},
            )
            for name in names
        ]

    def upgrade(self, levels: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Raise the levels of features, all or none. INVALID_UPDATE_VERSION carries the broker's reason."""
        updates = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level in levels.items()]
        request = UpdateFeaturesRequest(
            feature_updates=updates, timeout_ms=self._client.timeout_ms, validate_only=validate_only
        )
        operation = f"raising {', '.join(levels)}"
        response = self._client.request_controller(request, UpdateFeaturesResponse)
        check_code(response.error_code, operation, response.error_message)
        for result in response.results:
            check_code(result.error_code, f"raising {result.feature}", result.error_message)
