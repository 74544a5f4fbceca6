"""Periodic work for the whole cluster. The live broker with the lowest id does it.

- Internal topics are created with as many replicas as there are brokers, up to three. They get the missing ones when
  brokers join.
- A topic with many partitions is created and deleted in several transactions. If the broker that does it ends in the
  middle, the creation is undone, and the deletion is finished.
- Partitions without a topic, and those beyond the partition count of their topic, are removed: a growth in several
  transactions was not finished, or the topic was deleted meanwhile.

Two brokers may do it at the same time, with different images: every change is conditional.
"""

from collections import Counter
from collections.abc import Mapping

from logbrook.core.cluster.image import ClusterImage, PartitionKey
from logbrook.core.cluster.placement import extend_replicas
from logbrook.core.metadata import Topic
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerId
from logbrook.ports import Clock
from logbrook.server.cluster.background import pause
from logbrook.server.cluster.cluster_admin import ClusterAdmin
from logbrook.server.cluster.topics import DEFAULT_REPLICATION_FACTOR_MAX, ClusterTopics

# A creation or deletion without progress for this long is abandoned.
_ABANDONED_S = 30.0

_logger = event_logger(__name__)


class ClusterMaintenance:
    """One per broker, on the event loop."""

    def __init__(
        self,
        broker_id: BrokerId,
        clock: Clock,
        image: ClusterImage,
        topics: ClusterTopics,
        cluster_admin: ClusterAdmin,
        *,
        interval_s: float,
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._image = image
        self._topics = topics
        self._cluster_admin = cluster_admin
        self._interval_s = interval_s
        self._hidden = _Progress()
        self._surplus = _Progress()

    async def run(self) -> None:
        """Work forever. What fails is tried again in the next round."""
        while True:
            await pause(self._interval_s)
            try:
                await self._work()
            except LogbrookError as error:
                _logger.warning("cluster maintenance failed", error=error)

    async def _work(self) -> None:
        if self._broker_id != min(self._image.brokers, default=None):
            self._hidden, self._surplus = _Progress(), _Progress()
            return
        for topic in self._abandoned():
            await self._topics.remove_abandoned(topic)
        for topic_id in self._surplus.without(self._topics.surplus(), self._clock.monotonic_s()):
            await self._topics.remove_surplus(topic_id)
        for name, topic in list(self._topics.metadata.topics.items()):
            if self._topics.is_internal(name) and not topic.is_hidden:
                await self._add_replicas(topic)

    def _abandoned(self) -> list[Topic]:
        hidden = {topic.id: topic for topic in self._topics.metadata.topics.values() if topic.is_hidden}
        counts = Counter(key.topic_id for key in self._image.partitions if key.topic_id in hidden) if hidden else {}
        states = {topic_id: (topic, counts.get(topic_id, 0)) for topic_id, topic in hidden.items()}
        return [hidden[topic_id] for topic_id in self._hidden.without(states, self._clock.monotonic_s())]

    async def _add_replicas(self, topic: Topic) -> None:
        racks = self._topics.placement_racks()
        if not racks:
            return
        factor = min(DEFAULT_REPLICATION_FACTOR_MAX, len(racks))
        for number in range(topic.partition_count):
            partition = self._image.partitions.get(PartitionKey(topic.id, number))
            if partition is None or partition.registration.is_reassigning:
                continue
            replicas = partition.registration.replicas
            if len(replicas) < factor and set(replicas) <= self._image.brokers.keys():
                extended = extend_replicas(replicas, racks, factor, start=number)
                await self._cluster_admin.reassign(TopicPartition(topic.name, number), extended)


class _Progress:
    """The states of changes by topic id, with the time at which each state was first seen."""

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[object, float]] = {}

    def without(self, states: Mapping[bytes, object], now_s: float) -> list[bytes]:
        """Return the topics whose state has been the same for so long that nobody goes on with the change."""
        before = self._seen
        self._seen = {
            topic_id: before[topic_id] if topic_id in before and before[topic_id][0] == state else (state, now_s)
            for topic_id, state in states.items()
        }
        return [topic_id for topic_id, (_, since_s) in self._seen.items() if now_s - since_s >= _ABANDONED_S]
