"""Repair of damaged replicas from their leader.

A replica whose log is quarantined, or on a data directory that has failed while another one works, leaves the ISR, and
hands its leadership over. When another broker leads, its log is replaced by an empty one, which fetches everything
again. Before that the leader epoch is raised: a fetch that was sent earlier and arrives later reports records that are
gone. The only replica in sync keeps its place and its log: an operator decides (`logbrook log repair`).
"""

import asyncio
from collections.abc import Callable

from logbrook.core.cluster.image import ClusterImage, ImagePartition, PartitionKey
from logbrook.core.cluster.partition import PartitionRegistration, withdraw
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerId, LeaderEpoch
from logbrook.ports import Clock
from logbrook.ports.metadata_store import StoreTransaction
from logbrook.server.cluster.background import BackgroundTasks, pause
from logbrook.server.cluster.elector import Elector
from logbrook.server.cluster.replica import Replica, ReplicaTable
from logbrook.server.logs import RateLimitedWarnings
from logbrook.storage.data_directories import AnyDirectory
from logbrook.storage.errors import StorageError
from logbrook.storage.log import Log

_WITHDRAW_AGAIN_S = 1.0

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
        # Damaged logs, and the leader epochs when they were found: nothing is fetched to them since.
        self._damaged: dict[PartitionKey, tuple[Log, LeaderEpoch]] = {}
        self.repaired = 0

    def on_tick(self) -> None:
        """Time has passed: look for damaged replicas."""
        withdrawals: list[StoreTransaction] = []
        known, self._damaged = self._damaged, {}
        for replica in list(self._table.by_key.values()):
            log = replica.log
            if log is None or self._damage_of(log) is None:
                continue
            partition = self._image.partitions.get(replica.key)
            if partition is not None:
                as_now = (log, partition.registration.leader_epoch)
                before = known.get(replica.key, as_now)
                self._damaged[replica.key] = before if before[0] is log else as_now
                withdrawals += self._repair(replica, partition)
        if withdrawals and not self._is_withdrawing:
            self._is_withdrawing = True
            self._tasks.spawn(self._withdraw(withdrawals))

    async def stop(self) -> None:
        await self._tasks.stop()

    def _repair(self, replica: Replica, partition: ImagePartition) -> list[StoreTransaction]:
        """Replace the log, or return the change that makes this possible."""
        registration = partition.registration
        is_needed = self._broker_id in (*registration.isr, *registration.elr)
        if not is_needed and registration.leader_epoch > self._damaged[replica.key][1]:
            self._replace(replica, registration)
            return []
        after = withdraw(registration, self._broker_id, self._elector.epochs_of_candidates())
        if after is not None:
            return [self._elector.change_of(partition.epoch, replica.key, after)]
        if is_needed and replica.log is not None:
            self._warnings.warn(
                f"withdraw {replica.partition}",
                "damaged replica is the only one in sync",
                partition=replica.partition,
                error=self._damage_of(replica.log),
            )
        return []

    def _replace(self, replica: Replica, registration: PartitionRegistration) -> None:
        assert replica.log is not None
        if not self._image.has_live_leader(registration) or registration.leader == self._broker_id:
            return
        damage = self._damage_of(replica.log)
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

    def _damage_of(self, log: Log) -> StorageError | None:
        failure = log.environment.health.failure
        return failure if failure is not None and self._has_healthy_directory() else log.corruption

    def _has_healthy_directory(self) -> bool:
        return any(member.environment.health.failure is None for member in self._directory.members)

    async def _withdraw(self, withdrawals: list[StoreTransaction]) -> None:
        try:
            if not await self._elector.resign(withdrawals):
                await pause(_WITHDRAW_AGAIN_S)
        finally:
            self._is_withdrawing = False
