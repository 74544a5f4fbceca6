"""Repair of damaged replicas from their leader.

A replica whose log is quarantined, or on a data directory that has failed while another one works, leaves the ISR, and
hands its leadership over. When another broker leads, its log is replaced by an empty one, which fetches everything
again. The only replica in sync keeps its place and its log: an operator decides (`logbrook log repair`).
"""

import asyncio
from collections.abc import Callable

from logbrook.core.cluster.image import ClusterImage, ImagePartition
from logbrook.core.cluster.partition import withdraw
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerId
from logbrook.ports import Clock
from logbrook.ports.metadata_store import StoreTransaction
from logbrook.server.cluster.background import BackgroundTasks
from logbrook.server.cluster.elector import Elector
from logbrook.server.cluster.replica import Replica, ReplicaTable
from logbrook.server.logs import RateLimitedWarnings
from logbrook.storage.data_directories import AnyDirectory
from logbrook.storage.errors import StorageError
from logbrook.storage.log import Log

_logger = event_logger(__name__)


class ReplicaRepair:
    """One per broker, on the event loop. `rebuild(replica)` replaces its log and fetches again; raises LogbrookError or
    OSError.

    `repaired` counts the logs that were replaced.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        image: ClusterImage,
        elector: Elector,
        table: ReplicaTable,
        directory: AnyDirectory,
        rebuild: Callable[[Replica], None],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._elector = elector
        self._table = table
        self._directory = directory
        self._rebuild = rebuild
        self._tasks = BackgroundTasks(loop, "the repair of replicas")
        self._warnings = RateLimitedWarnings(_logger, clock)
        self._is_withdrawing = False
        self.repaired = 0

    def on_tick(self) -> None:
        """Time has passed: look for damaged replicas."""
        withdrawals: list[StoreTransaction] = []
        for replica in list(self._table.by_key.values()):
            if replica.log is None or self._damage_of(replica.log) is None:
                continue
            partition = self._image.partitions.get(replica.key)
            if partition is not None:
                withdrawals += self._repair(replica, partition)
        if withdrawals and not self._is_withdrawing:
            self._is_withdrawing = True
            self._tasks.spawn(self._withdraw(withdrawals))

    async def stop(self) -> None:
        await self._tasks.stop()

    def _repair(self, replica: Replica, partition: ImagePartition) -> list[StoreTransaction]:
        """Replace the log, or return the change that makes this possible."""
        assert replica.log is not None
        registration, damage = partition.registration, self._damage_of(replica.log)
        if self._broker_id not in (*registration.isr, *registration.elr):
            if self._image.has_live_leader(registration) and registration.leader != self._broker_id:
                try:
                    self._rebuild(replica)
                except (LogbrookError, OSError) as error:
                    self._warnings.warn(
                        f"replace {replica.partition}",
                        "damaged replica not replaced",
                        partition=replica.partition,
                        error=error,
                    )
                else:
                    self.repaired += 1
                    _logger.warning(
                        "damaged replica replaced",
                        partition=replica.partition,
                        leader=registration.leader,
                        error=damage,
                    )
            return []
        live = {
            broker_id: broker.epoch
            for broker_id, broker in self._image.brokers.items()
            if not broker.registration.is_stopping
        }
        after = withdraw(registration, self._broker_id, live)
        if after is None:
            self._warnings.warn(
                f"withdraw {replica.partition}",
                "damaged replica is the only one in sync",
                partition=replica.partition,
                error=damage,
            )
            return []
        return [self._elector.change_of(partition.epoch, replica.key, after)]

    def _damage_of(self, log: Log) -> StorageError | None:
        failure = log.environment.health.failure
        return failure if failure is not None and self._has_healthy_directory() else log.corruption

    def _has_healthy_directory(self) -> bool:
        return any(member.environment.health.failure is None for member in self._directory.members)

    async def _withdraw(self, withdrawals: list[StoreTransaction]) -> None:
        try:
            await self._elector.resign(withdrawals)
        finally:
            self._is_withdrawing = False
