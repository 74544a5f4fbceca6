"""Limits the bytes per second that replicas outside the ISR copy, in one direction (KIP-73).

    leader.replication.throttled.rate         setting of a broker: bytes per second that it sends to throttled replicas
    follower.replication.throttled.rate       setting of a broker: bytes per second that it fetches as one
    leader.replication.throttled.replicas     setting of a topic: the throttled replicas, as PARTITION:BROKER, or *
    follower.replication.throttled.replicas   the same for followers

In-sync replicas are never throttled: writers wait for them.
"""

from typing import Literal

from logbrook.core.metadata import ClusterMetadata
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.ports import Clock

# Bytes of this long may be ahead of the rate: a fetch that is held back waits for up to half a second.
_AHEAD_S_MAX = 1.0


class ReplicationThrottle:
    """The limit of one broker in one direction. Settings take effect at once."""

    def __init__(
        self, metadata: ClusterMetadata, broker_id: BrokerId, clock: Clock, side: Literal["leader", "follower"]
    ) -> None:
        self._metadata = metadata
        self._broker_id = broker_id
        self._clock = clock
        self._rate_name = f"{side}.replication.throttled.rate"
        self._replicas_name = f"{side}.replication.throttled.replicas"
        # The time at which everything is copied, if it is copied at the rate.
        self._paid_until_s = 0.0

    @property
    def rate(self) -> int | None:
        """Bytes per second, None without a limit."""
        metadata = self._metadata
        value = metadata.broker_settings.get(self._rate_name) or metadata.broker_defaults.get(self._rate_name)
        return None if value is None else int(value)

    def applies_to(self, partition: TopicPartition) -> bool:
        """True if this broker's replica of the partition is throttled."""
        if self.rate is None:
            return False
        topic = self._metadata.topics.get(partition.topic)
        replicas = "" if topic is None else topic.settings.get(self._replicas_name, "")
        return replicas == "*" or f"{partition.partition}:{self._broker_id}" in replicas.split(",")

    def is_exceeded(self) -> bool:
        """True if the next bytes have to wait."""
        return self.rate is not None and self._paid_until_s - self._clock.monotonic_s() >= _AHEAD_S_MAX

    def record(self, size: int) -> None:
        """Count bytes that were copied."""
        rate = self.rate
        if rate is not None:
            self._paid_until_s = max(self._paid_until_s, self._clock.monotonic_s()) + size / max(rate, 1)
