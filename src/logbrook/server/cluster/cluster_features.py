"""The feature levels of the cluster, as this broker sees and changes them (`core.cluster.features`).

The levels are part of the key `cluster` of the metadata store. A registration is written with the condition that the
key has not changed since the levels were compared, and changes it, without changing its value, if the node supports
other levels than at its last registration. So a level cannot be raised while a broker joins that does not support it.
"""

from collections.abc import Mapping

from logbrook.core.cluster.features import (
    FeatureRange,
    InvalidLevelError,
    check_upgrade,
    finalized_levels,
    supported_ranges,
)
from logbrook.core.cluster.image import ClusterImage
from logbrook.core.metadata import CLUSTER_KEY, ClusterMetadata
from logbrook.model.event_log import event_logger
from logbrook.ports.metadata_store import MetadataStore, Put, StoreTransaction
from logbrook.server.cluster.metadata_follower import MetadataFollower

_logger = event_logger(__name__)


class ClusterFeatures:
    """One per broker of a cluster, on the event loop. `supported` are the levels of this broker."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: ClusterMetadata,
        image: ClusterImage,
        follower: MetadataFollower,
        supported: Mapping[str, FeatureRange],
    ) -> None:
        self.supported = supported
        self._store = store
        self._metadata = metadata
        self._image = image
        self._follower = follower

    @property
    def finalized(self) -> dict[str, int]:
        """The levels that are in force."""
        return finalized_levels(self._metadata.feature_levels)

    @property
    def epoch(self) -> int:
        """A number that grows with every change of the levels."""
        return self._follower.revision_of(CLUSTER_KEY)

    async def upgrade(self, levels: Mapping[str, int], *, only_check: bool = False) -> None:
        """Raise levels, all or none. Raises InvalidLevelError or MetadataStoreError."""
        await self._follower.catch_up()
        while True:
            self._check(levels)
            before = self.finalized
            after = {**before, **levels}
            if only_check or after == before:
                return
            records = self._metadata.set_feature_levels(after)
            puts = [Put(key, value) for key, value in records if value is not None]
            transaction = StoreTransaction(self._follower.unmodified([CLUSTER_KEY]), puts)
            result = await self._store.commit(transaction)
            await self._follower.wait_for(result.revision)
            if result.is_committed:
                _logger.info("feature levels raised", levels=str(dict(levels)))
                return

    def _check(self, levels: Mapping[str, int]) -> None:
        nodes = {node_id: supported_ranges(node.features) for node_id, node in self._image.nodes.items()}
        for feature, level in levels.items():
            if feature not in self.supported:
                raise InvalidLevelError(f"there is no feature {feature!r}")
            check_upgrade(feature, level, self.finalized, nodes)
