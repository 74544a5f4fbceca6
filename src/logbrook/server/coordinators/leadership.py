"""Loads and unloads the shards of the coordinators with the leadership of their partitions, in a cluster."""

from typing import Any

from logbrook.model import TopicPartition
from logbrook.server.coordinators.runtime import CoordinatorRuntime
from logbrook.server.services import Services
from logbrook.server.topics import CONSUMER_OFFSETS, TRANSACTION_STATE


class CoordinatorLeadership:
    """One per broker, on the event loop."""

    def __init__(self, services: Services) -> None:
        self._runtimes: dict[str, CoordinatorRuntime[Any]] = {
            CONSUMER_OFFSETS: services.groups.runtime,
            TRANSACTION_STATE: services.transactions.runtime,
        }
        assert services.replicas is not None, "the coordinators of a single node are always loaded"
        membership = services.replicas.membership
        for runtime in self._runtimes.values():
            runtime.start_unloaded()
            runtime.is_certain = lambda: membership.is_certain

    def on_leader(self, partition: TopicPartition) -> None:
        runtime = self._runtimes.get(partition.topic)
        if runtime is not None:
            runtime.load_soon(partition.partition)

    def on_resigned(self, partition: TopicPartition) -> None:
        runtime = self._runtimes.get(partition.topic)
        if runtime is not None:
            runtime.unload(partition.partition)
