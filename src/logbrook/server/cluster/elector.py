"""Changes of registrations that replicas make in the metadata store: elections, and changes by the leader.

When a leader is gone, replicas that may lead take its partitions over (`core.cluster.elections`): the first live one at
once, the others a little later each. A broker whose address refuses connections counts as dead (`liveness`).
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from logbrook.core.cluster.elections import (
    ELECTIONS_PER_TRANSACTION,
    Election,
    election_transactions,
    find_elections,
    partition_change,
)
from logbrook.core.cluster.image import ClusterImage, PartitionKey
from logbrook.core.cluster.partition import PartitionRegistration
from logbrook.core.replication.leader import ProposeRegistration
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerEpoch, BrokerId
from logbrook.ports import Clock
from logbrook.ports.metadata_store import MetadataStore, MetadataStoreError, StoreTransaction, TransactionResult
from logbrook.server.cluster.background import BackgroundTasks, pause
from logbrook.server.cluster.liveness import BrokerLiveness
from logbrook.server.cluster.membership import Membership
from logbrook.server.cluster.metadata_follower import MetadataFollower
from logbrook.server.cluster.probe import ClusterProbe
from logbrook.server.cluster.replica import ReplicaTable
from logbrook.server.logs import RateLimitedWarnings

# The second replica in line waits this long for the first one to take over, the third twice as long.
_ELECTION_STEP_S = 0.3
_RETRY_S = 0.2
# A difference of two times may be too small to be added to one.
_TIMER_S_MIN = 0.001
# An unclean leader is elected after this time without a replica that has all committed records.
_UNCLEAN_S = 10.0

_logger = event_logger(__name__)


class Elector:
    """One per broker, on the event loop. `table` has the replicas of this broker."""

    def __init__(
        self,
        broker_id: BrokerId,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        store: MetadataStore,
        image: ClusterImage,
        follower: MetadataFollower,
        membership: Membership,
        liveness: BrokerLiveness,
        probe: ClusterProbe,
        table: ReplicaTable,
        min_insync_of: Callable[[PartitionKey], int],
        may_be_unclean: Callable[[PartitionKey], bool],
    ) -> None:
        self._broker_id = broker_id
        self._loop = loop
        self._clock = clock
        self._store = store
        self._image = image
        self._follower = follower
        self._membership = membership
        self._liveness = liveness
        self._probe = probe
        self._table = table
        self._min_insync_of = min_insync_of
        self._may_be_unclean = may_be_unclean
        # When an election of a partition, at its partition epoch, was first seen as possible.
        self._possible_since: dict[tuple[PartitionKey, int], float] = {}
        # Changes that give leadership up, and whose outcome this broker has not found out yet.
        self._unknown_outcomes = 0
        # Changes are repeated while the store is away.
        self._warnings = RateLimitedWarnings(_logger, clock)
        self._tasks = BackgroundTasks(loop, "the elector")
        self._is_electing = False
        self._is_started = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Elect from now on: this broker is registered."""
        self._is_started = True
        self.elect_soon()

    def end_elections(self) -> None:
        """Take nothing over any more: the broker stops."""
        self._is_started = False
        if self._timer is not None:
            self._timer.cancel()

    async def stop(self) -> None:
        self.end_elections()
        await self._tasks.stop()

    # Elections

    def elect_soon(self) -> None:
        """Look for partitions to take over: brokers or registrations have changed."""
        if self._is_started and not self._is_electing:
            self._is_electing = True
            self._tasks.spawn(self._elect())

    def on_tick(self) -> None:
        """Time has passed."""
        if self._possible_since:
            self.elect_soon()

    async def _elect(self) -> None:
        try:
            due = self._due_elections()
            if due:
                await self._take_over(due)
        finally:
            self._is_electing = False
        if due:
            # Partitions that were not won are considered again: their winner may have died, too.
            self.elect_soon()

    def _due_elections(self) -> list[Election]:
        now_s = self._clock.monotonic_s()
        epoch = self._membership.broker_epoch
        if not self._image.is_current(self._broker_id, epoch):
            return []
        due: list[Election] = []
        possible: dict[tuple[PartitionKey, int], float] = {}
        next_s: float | None = None
        for election in find_elections(
            self._image,
            self._broker_id,
            epoch,
            self._min_insync_of,
            [key for key, replica in self._table.by_key.items() if replica.log is not None],
            self._liveness.gone(),
            self._may_be_unclean,
            self._is_damaged,
        ):
            seen = (election.key, election.partition_epoch)
            since_s = possible[seen] = self._possible_since.get(seen, now_s)
            due_s = since_s + election.rank * _ELECTION_STEP_S + (_UNCLEAN_S if election.is_unclean else 0.0)
            if due_s <= now_s:
                due.append(election)
            else:
                next_s = due_s if next_s is None else min(next_s, due_s)
        self._possible_since = possible
        if next_s is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(max(_TIMER_S_MIN, next_s - now_s), self.elect_soon)
        return due

    def _is_damaged(self, key: PartitionKey) -> bool:
        log = self._table.by_key[key].log
        return log is not None and log.corruption is not None

    async def _take_over(self, elections: Sequence[Election]) -> None:
        epoch, gone = self._membership.broker_epoch, self._liveness.gone()
        transactions = [
            transaction
            for election in elections
            for _, transaction in election_transactions([election], self._broker_id, epoch, gone)
        ]
        for election in elections:
            if election.is_unclean:
                self._probe.unclean_elections += 1
                partition = self._table.by_key[election.key].partition
                _logger.warning("unclean leader elected", partition=partition, leader=self._broker_id)
        if not await self.commit(transactions):
            await pause(_RETRY_S)

    # Changes

    def epochs_of_candidates(self) -> dict[BrokerId, BrokerEpoch]:
        """Return the epochs of the brokers that may lead: they neither stop nor refuse connections."""
        gone = self._liveness.gone()
        return {
            broker_id: broker.epoch
            for broker_id, broker in self._image.brokers.items()
            if not broker.registration.is_stopping and broker_id not in gone
        }

    def change_of(self, partition_epoch: int, key: PartitionKey, after: PartitionRegistration) -> StoreTransaction:
        """Return the transaction that changes a registration known at `partition_epoch`."""
        return partition_change(key, partition_epoch, after, self._broker_id, self._membership.broker_epoch)

    def change_of_leader(self, key: PartitionKey, proposal: ProposeRegistration) -> StoreTransaction:
        """Return the transaction of a proposal. All attempts have the same conditions: if one is refused, all are."""
        after = proposal.registration
        return partition_change(
            key, proposal.partition_epoch, after, self._broker_id, after.leader_broker_epoch, proposal.joining
        )

    async def resign(self, transactions: Sequence[StoreTransaction]) -> bool:
        """As `commit`, for changes that give leadership of this broker up. It is uncertain until its image has them.

        If their outcome is unknown, it is uncertain until its image is up to date.
        """
        with ExitStack() as uncertain:
            uncertain.enter_context(self._membership.resigning())
            is_complete = await self.commit(transactions)
            if not is_complete:
                self._unknown_outcomes += 1
                if self._unknown_outcomes == 1:
                    self._tasks.spawn(self._await_outcomes(uncertain.pop_all()))
            return is_complete

    async def _await_outcomes(self, uncertain: ExitStack) -> None:
        """End the uncertainty when the image is up to date with all changes whose outcome is unknown."""
        with uncertain:
            while self._unknown_outcomes:
                known = self._unknown_outcomes
                try:
                    await self._follower.catch_up()
                except MetadataStoreError:
                    await pause(_RETRY_S)
                else:
                    self._unknown_outcomes -= known

    async def commit(self, transactions: Sequence[StoreTransaction]) -> bool:
        """Commit changes of partitions in bundles, and wait until this broker's image has them.

        If a partition of a bundle has changed meanwhile, the others of the bundle are committed one by one. Return True
        if all are committed. An unreachable store is logged.
        """
        is_complete = True
        for number in range(0, len(transactions), ELECTIONS_PER_TRANSACTION):
            bundle = transactions[number : number + ELECTIONS_PER_TRANSACTION]
            try:
                results = await self.commit_bundle(bundle)
                await self.wait_for(results)
                is_complete &= all(result.is_committed for result in results)
            except MetadataStoreError as error:
                self._warnings.warn("change", "partition change failed", error=error)
                return False
        return is_complete

    async def commit_bundle(self, bundle: Sequence[StoreTransaction]) -> list[TransactionResult]:
        """Commit up to 40 changes in one transaction, or one by one if a partition has changed meanwhile.

        Return the result of each. Raises MetadataStoreError; then each may have been committed or not.
        """
        result = await self._store.commit(_combined(bundle))
        if result.is_committed or len(bundle) == 1:
            return [result] * len(bundle)
        return [await self._store.commit(transaction) for transaction in bundle]

    async def wait_for(self, results: Sequence[TransactionResult]) -> None:
        """Wait until this broker's image has the changes up to these results. Raises StoreUnavailableError."""
        await self._follower.wait_for(max(result.revision for result in results))


def _combined(transactions: Sequence[StoreTransaction]) -> StoreTransaction:
    conditions = {condition: None for transaction in transactions for condition in transaction.conditions}
    return StoreTransaction(
        list(conditions), [operation for transaction in transactions for operation in transaction.operations]
    )
