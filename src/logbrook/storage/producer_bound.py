"""Bound on the producer state of a data directory: `producer_ids_total_max` producers in all logs together.

A client can write batches with invented producer ids to every partition, so the bound of each partition does not bound
their sum. When the sum exceeds the bound, producers are dropped until it is 9/10 of it:

- The largest tables give first (`fair_shares`): who fills one partition does not cost the producers of others.
- In a log those that wrote longest ago are dropped, by offset. There is no order over logs: clients choose timestamps.
- Producers with an open transaction are kept. If they take more than 9/10 of the bound, there may be others besides
  them, up to a tenth of the bound, even where the sum then exceeds it.

An append does not count the producers of all logs. It counts its new producers, and all logs are counted only when as
many have come as there was room for: at most once per tenth of the bound.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from logbrook.model import TopicPartition
from logbrook.storage.producer_state import ProducerStateTable


class BoundedLog(Protocol):
    """A log, as the bound sees it."""

    producers: ProducerStateTable

    def expire_oldest_producers(self, count: int) -> None: ...


class ProducerBound:
    """The bound of one data directory. Owned by the environment; used by the thread that owns the logs."""

    __slots__ = ("_room", "_total_max", "logs")

    def __init__(self, total_max: int) -> None:
        self._total_max = total_max
        # At least this many producers fit before the bound is reached. Expiry and deletion make it an underestimate.
        self._room = total_max
        # All logs of the directory. Set by recovery, which creates the mapping.
        self.logs: Mapping[TopicPartition, BoundedLog] = {}

    def admit(self, count: int) -> None:
        """Note that `count` producers were added to `logs`. Drops the oldest if there are too many now."""
        self._room -= count
        if self._room < 0:
            self._enforce()

    def _enforce(self) -> None:
        logs = list(self.logs.values())
        open_count = sum(log.producers.open_count for log in logs)
        idle_counts = [len(log.producers) - log.producers.open_count for log in logs]
        idle_count = sum(idle_counts)
        if open_count + idle_count > self._total_max:
            shares = fair_shares(idle_counts, max(0, self._total_max * 9 // 10 - open_count))
            for log, count, share in zip(logs, idle_counts, shares, strict=True):
                if count > share:
                    log.expire_oldest_producers(count - share)
            idle_count = sum(shares)
        # Without a least room, open transactions that take all of it would make every append count all logs.
        self._room = max(self._total_max - open_count - idle_count, self._total_max // 10)


def fair_shares(counts: Sequence[int], total_max: int) -> list[int]:
    """Limit the largest counts to an equal share, so that all add up to `total_max` or less."""
    shares = [0] * len(counts)
    left = total_max
    smallest_first = sorted(range(len(counts)), key=counts.__getitem__)
    for taken, index in enumerate(smallest_first):
        shares[index] = min(counts[index], left // (len(counts) - taken))
        left -= shares[index]
    return shares
