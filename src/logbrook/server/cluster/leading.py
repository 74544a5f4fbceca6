"""The partitions that this broker leads: appends, fetches of followers, and the effects of `core.replication.leader`.

    append          the leader's log has grown: waiting fetches of followers are woken
    sync            the append is durable here; with acks=1 it is acknowledged
    fetch           a follower has everything below its fetch offset, durably
    high watermark  appends with acks=all below it are acknowledged, and consumers see them
    proposal        the leader changes the ISR in the metadata store

Appends that were not acknowledged fail when this broker stops leading: another leader may not have them.
"""

import asyncio
from bisect import insort
from collections.abc import Callable, Collection, Iterator

from logbrook.config import LogConfig
from logbrook.core.cluster.image import ClusterImage, ImagePartition, PartitionKey
from logbrook.core.cluster.partition import finish_reassignment, hand_over, step_down
from logbrook.core.replication.follower import EpochEnd, ReplicaFetch
from logbrook.core.replication.leader import AdvanceHighWatermark, LeaderEffect, PartitionLeader
from logbrook.model import TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from logbrook.ports import Clock
from logbrook.ports.metadata_store import StoreTransaction
from logbrook.server.cluster.background import BackgroundTasks, pause
from logbrook.server.cluster.deletions import RecordDeletions
from logbrook.server.cluster.elector import Elector
from logbrook.server.cluster.errors import (
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetNotAvailableError,
)
from logbrook.server.cluster.liveness import BrokerLiveness
from logbrook.server.cluster.log_comparison import divergence_of
from logbrook.server.cluster.membership import Membership
from logbrook.server.cluster.probe import ClusterProbe
from logbrook.server.cluster.registration_proposals import RegistrationProposals
from logbrook.server.cluster.replica import Replica, ReplicaTable, WaitingAppend
from logbrook.server.cluster.throttle import ReplicationThrottle
from logbrook.server.fetch_purgatory import FetchPurgatory
from logbrook.storage.environment import Environment
from logbrook.storage.log import Log
from logbrook.storage.pending_append import PendingAppend

NO_REPLICA = -1
_CONFIRMATION_S = 0.02
_HAND_OVER_AGAIN_S = 1.0
_FINISH_AGAIN_S = 0.5
_CONFIRMATION_S_MAX = 2.0

_logger = event_logger(__name__)


class LeadingReplicas:
    """One per broker, on the event loop. `fetch_purgatory` has the waiting fetches of consumers.

    `on_leader(partition)` is called when this broker leads a partition and knows all committed records, and
    `on_resigned(partition)` when that ends.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        image: ClusterImage,
        membership: Membership,
        elector: Elector,
        liveness: BrokerLiveness,
        table: ReplicaTable,
        fetch_purgatory: FetchPurgatory,
        throttle: ReplicationThrottle,
        probe: ClusterProbe,
        *,
        lag_ms_max: int,
    ) -> None:
        self.replica_fetches = FetchPurgatory(loop)
        self.deletions = RecordDeletions(table, loop, self.replica_fetches)
        self.on_leader: Callable[[TopicPartition], None] = lambda _: None
        self.on_resigned: Callable[[TopicPartition], None] = lambda _: None
        self._broker_id = broker_id
        self._clock = clock
        self._image = image
        self._membership = membership
        self._elector = elector
        self.liveness = liveness
        self._table = table
        self._fetches = fetch_purgatory
        self.throttle = throttle
        self._probe = probe
        self._lag_ms_max = lag_ms_max
        self._tasks = BackgroundTasks(loop, "the leading replicas")
        self._proposals = RegistrationProposals(elector, clock, self._tasks, probe)
        self._is_handing_over = False
        # Partitions whose reassignment is being finished in the store.
        self._finishing: set[PartitionKey] = set()

    async def stop(self) -> None:
        """Fail the appends that wait, and answer the followers."""
        await self._tasks.stop()
        for replica in self._table.by_key.values():
            self.resign(replica)
        self.replica_fetches.wake_all()

    # Roles

    def lead(self, replica: Replica, log: Log, partition: ImagePartition) -> None:
        """Begin to lead a partition, or go on with another registration of the same term."""
        registration = partition.registration
        leader = replica.leader
        if leader is not None and leader.leader_epoch == registration.leader_epoch:
            self._carry_out(replica, leader.on_registration(registration, partition.epoch))
            self._drop_followers(replica, leader)
            self._finish_reassignment(replica)
            return
        self.resign(replica)
        replica.leader = leader = PartitionLeader(
            self._broker_id,
            registration,
            partition.epoch,
            log_end_offset=log.log_end_offset,
            synced_end_offset=log.synced_end_offset,
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            min_insync=log.config.min_insync_replicas,
            lag_ms_max=self._lag_ms_max,
            now_ms=self._now_ms(),
        )
        self._probe.leader_terms += 1
        _logger.info("partition led", partition=replica.partition, leader_epoch=registration.leader_epoch)
        self._carry_out(replica, leader.on_sync(log.synced_end_offset))
        self._drop_followers(replica, leader)
        self._finish_reassignment(replica)
        self._announce(replica)

    def resign(self, replica: Replica) -> None:
        """End to lead: appends that wait fail, and fetches of this term are answered."""
        if replica.leader is None:
            return
        replica.leader = None
        replica.uncounted.clear()
        if replica.is_announced:
            # First: a coordinator that is unloaded does not load again when its appends fail.
            replica.is_announced = False
            self.on_resigned(replica.partition)
        waiting, replica.waiting = replica.waiting, []
        for entry in waiting:
            entry.append.error = NotLeaderError(replica.partition)
            entry.on_done(entry.append)
        self.deletions.fail(replica)
        self.replica_fetches.changed(replica.partition)
        self._fetches.changed(replica.partition)

    def _announce(self, replica: Replica) -> None:
        """Report a new leadership, once all records that earlier leaders committed are known to be committed."""
        if replica.leader is not None and replica.leader.is_offset_known and not replica.is_announced:
            replica.is_announced = True
            self.on_leader(replica.partition)

    def hand_overs(self, full: Environment | None = None) -> Iterator[StoreTransaction]:
        """Yield the changes by which other in-sync replicas take over what this broker leads.

        The first in the list of replicas takes over. A broker that stops stays in the ISR until the new leader drops
        it: if the new leader has died just now, this broker's copy may be the last one. A broker with a `full` data
        directory hands over what is there, to the replica after it, so that every one has its turn if others hand over,
        too; it leaves the ISR at once, since writes would wait for it, and stays eligible.
        """
        for replica in self._table.by_key.values():
            if replica.leader is None or replica.log is None:
                continue
            if full is not None and replica.log.environment is not full:
                continue
            registration = replica.leader.registration
            successors = registration.replicas
            if full is not None and self._broker_id in successors:
                place = successors.index(self._broker_id)
                successors = (*successors[place + 1 :], *successors[:place])
            for successor in successors:
                if successor == self._broker_id or successor not in self.liveness:
                    continue
                epoch = self._image.brokers[successor].epoch
                move = hand_over if full is None else step_down
                after = move(registration, successor, epoch)
                if after is not None:
                    yield self._elector.change_of(replica.leader.partition_epoch, replica.key, after)
                    break

    def on_disk_full(self, log: Log) -> None:
        """An append was refused: other in-sync replicas lead from now on. Without one this broker goes on leading."""
        if not self._is_handing_over:
            self._is_handing_over = True
            self._tasks.spawn(self._hand_over(log.environment))

    async def _hand_over(self, full: Environment) -> None:
        try:
            changes = list(self.hand_overs(full))
            if changes:
                _logger.warning("leadership handed over", reason="disk full", partitions=len(changes))
                await self._elector.resign(changes)
            await pause(_HAND_OVER_AGAIN_S)
        finally:
            self._is_handing_over = False

    def configure(self, replica: Replica, config: LogConfig) -> None:
        """The settings of the topic have changed."""
        if replica.leader is not None:
            self._carry_out(replica, replica.leader.on_min_insync(config.min_insync_replicas))

    def on_tick(self, now_s: float) -> None:
        """Time has passed: followers that lag leave the ISR, and appends that wait for too long fail."""
        now_ms = int(now_s * 1000)
        for replica in list(self._table.by_key.values()):
            if replica.leader is not None:
                self._drop_followers(replica, replica.leader)
                self._try_silent(replica, replica.leader)
                self._carry_out(replica, replica.leader.retry_proposal(now_ms))
                self._finish_reassignment(replica)
                replica.expire_appends(replica.leader, now_s)

    def drop_followers(self) -> None:
        """Drop followers from the ISR that stop or are gone: writes would wait for them."""
        for replica in list(self._table.by_key.values()):
            if replica.leader is not None:
                self._drop_followers(replica, replica.leader)

    def _drop_followers(self, replica: Replica, leader: PartitionLeader) -> None:
        if replica.log is not None and replica.log.corruption is not None:
            # It takes no writes that would wait for them, and they may have the records that are damaged here.
            return
        self._carry_out(replica, leader.on_tick(self._now_ms(), self.liveness))

    def _try_silent(self, replica: Replica, leader: PartitionLeader) -> None:
        for member in leader.registration.isr:
            if member != self._broker_id:
                self.liveness.try_if_silent(member, has_records=bool(replica.waiting))

    # Requests

    def terms(self) -> list[tuple[TopicPartition, PartitionLeader]]:
        """Return the partitions that this broker leads."""
        return [
            (replica.partition, replica.leader) for replica in self._table.by_key.values() if replica.leader is not None
        ]

    def leads(self, partition: TopicPartition) -> bool:
        replica = self._table.by_partition.get(partition)
        return replica is not None and replica.leader is not None

    def is_serving(self, topic: str, partition: int) -> bool:
        """True if this broker leads the partition and knows all committed records."""
        replica = self._table.by_partition.get(TopicPartition(topic, partition))
        return replica is not None and replica.is_announced

    @property
    def is_certain(self) -> bool:
        """True if no other broker can have taken over what this one leads."""
        return self._membership.is_certain

    def leader_of(self, partition: TopicPartition) -> PartitionLeader:
        """Raises NotLeaderError."""
        replica = self._table.by_partition.get(partition)
        if replica is None or replica.leader is None:
            raise NotLeaderError(partition)
        return replica.leader

    def leader_log(self, partition: TopicPartition) -> Log:
        """Raises NotLeaderError."""
        replica = self._table.by_partition.get(partition)
        if replica is None or replica.leader is None or replica.log is None:
            raise NotLeaderError(partition)
        return replica.log

    def readable_log(self, partition: TopicPartition, *, may_follow: bool) -> tuple[Log, LeaderEpoch]:
        """Raises NotLeaderError."""
        replica = self._table.by_partition.get(partition)
        if replica is not None and replica.log is not None:
            if replica.leader is not None:
                return replica.log, replica.leader.leader_epoch
            if may_follow and replica.follower is not None:
                return replica.log, replica.follower.leader_epoch
        raise NotLeaderError(partition)

    def replica_in_rack(self, partition: TopicPartition, rack: str) -> int:
        """Return an in-sync follower in this rack, NO_REPLICA if the leader is in it or there is none."""
        replica = self._table.by_partition.get(partition)
        if replica is None or replica.leader is None:
            return NO_REPLICA
        in_rack = [
            member
            for member in replica.leader.registration.isr
            if (broker := self._image.brokers.get(member)) is not None and broker.registration.rack == rack
        ]
        return NO_REPLICA if not in_rack or self._broker_id in in_rack else in_rack[0]

    def check_offset_known(self, partition: TopicPartition) -> None:
        """Raises OffsetNotAvailableError or NotLeaderError."""
        if not self.leader_of(partition).is_offset_known:
            raise OffsetNotAvailableError(partition)

    async def confirm(self, partition: TopicPartition) -> None:
        """Return when no other leader can have committed anything before this call.

        That is at once with a certain lease. Otherwise the other in-sync replicas must fetch, as they do while only the
        metadata store is away. Raises OffsetNotAvailableError or NotLeaderError.
        """
        leader = self.leader_of(partition)
        before = leader.fetches()
        until_s = self._clock.monotonic_s() + _CONFIRMATION_S_MAX
        while not self._membership.is_certain and not leader.is_confirmed(before):
            if self._clock.monotonic_s() > until_s:
                raise OffsetNotAvailableError(partition)
            await pause(_CONFIRMATION_S)
            if self.leader_of(partition) is not leader:
                raise NotLeaderError(partition)

    def check_in_sync(self, partition: TopicPartition) -> None:
        """Raises NotEnoughReplicasError or NotLeaderError."""
        leader = self.leader_of(partition)
        if not leader.has_enough_in_sync():
            required = leader.registration.insync_min(leader.min_insync)
            raise NotEnoughReplicasError(partition, len(leader.registration.isr), required)

    def on_append(self, log: Log) -> None:
        """The leader has appended."""
        replica = self._table.by_partition[log.partition]
        assert replica.leader is not None
        length = log.log_end_offset - replica.leader.log_end_offset
        replica.leader.on_append(log.log_end_offset)
        self.replica_fetches.committed(log.partition, max(1, length))

    def on_synced(
        self,
        term: PartitionLeader,
        log: Log,
        append: PendingAppend,
        length: int,
        on_done: Callable[[PendingAppend], None],
        *,
        waits: bool,
        timeout_s: float | None,
    ) -> None:
        """An append of this term is durable here, or has failed."""
        if append.error is not None:
            on_done(append)
            return
        replica = self._table.by_partition.get(log.partition)
        if replica is None or replica.leader is not term:
            append.error = NotLeaderError(log.partition)
            on_done(append)
            # This broker may have been elected again: the records then count for the new term.
            self.on_log_synced(log)
            return
        if not append.duplicate:
            replica.uncounted.append((append.next_offset, length))
        # Without a certain lease another leader may exist: then a write counts when all in-sync replicas have it.
        waits = waits or not self._membership.is_certain
        if waits and append.next_offset > term.high_watermark:
            deadline_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
            entry = WaitingAppend(append.next_offset, append, on_done, deadline_s)
            insort(replica.waiting, entry, key=lambda waiting: waiting.next_offset)
            self._carry_out(replica, term.on_sync(log.synced_end_offset))
        else:
            self._carry_out(replica, term.on_sync(log.synced_end_offset))
            on_done(append)

    def on_log_synced(self, log: Log) -> None:
        """Records are durable that this broker appended as a follower, or in an earlier term as a leader."""
        replica = self._table.by_partition.get(log.partition)
        if replica is not None and replica.leader is not None and replica.log is log:
            self._carry_out(replica, replica.leader.on_sync(log.synced_end_offset))

    def on_fetch(
        self,
        partition: TopicPartition,
        fetch: ReplicaFetch,
        replica_id: BrokerId,
        broker_epoch: BrokerEpoch,
        session_id: int,
    ) -> EpochEnd | None:
        """A follower fetches. Returns where its log diverges from this one, None if it does not.

        Raises NotLeaderError, NotAReplicaError, StaleReplicaEpochError or CorruptLogError.
        """
        replica = self._table.by_partition.get(partition)
        if replica is None or replica.leader is None or replica.log is None:
            raise NotLeaderError(partition)
        leader, log = replica.leader, replica.log
        leader.check_fetch(replica_id, broker_epoch)
        divergence = divergence_of(log, fetch)
        if divergence is None and log.log_start_offset <= fetch.offset <= log.log_end_offset:
            broker = self._image.brokers.get(replica_id)
            is_eligible = broker is not None and broker.epoch == broker_epoch and not broker.registration.is_stopping
            effects = leader.on_fetch(
                replica_id,
                broker_epoch,
                fetch.offset,
                self._now_ms(),
                log_start_offset=fetch.log_start_offset,
                is_eligible=is_eligible,
                session_id=session_id,
            )
            self._carry_out(replica, effects)
        return divergence

    def is_throttled(self, partition: TopicPartition, replica_id: BrokerId) -> bool:
        """True if a limit applies to what this follower fetches of the partition."""
        replica = self._table.by_partition.get(partition)
        if replica is None or replica.leader is None or replica_id in replica.leader.registration.isr:
            return False
        return self.throttle.applies_to(partition)

    # Effects

    def _carry_out(self, replica: Replica, effects: Collection[LeaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, AdvanceHighWatermark):
                self._advance(replica, effect.offset)
            else:
                self._proposals.add(replica, effect)
        if replica.deletions:
            self.deletions.complete(replica)

    def _advance(self, replica: Replica, offset: Offset) -> None:
        log = replica.log
        assert log is not None
        log.advance_high_watermark(offset)
        committed_bytes = 0
        while replica.uncounted and replica.uncounted[0][0] <= offset:
            committed_bytes += replica.uncounted.popleft()[1]
        if committed_bytes:
            self._fetches.committed(replica.partition, committed_bytes)
        else:
            # Records of earlier terms: their size is not known.
            self._fetches.changed(replica.partition)
        # Followers learn the high watermark from their next response.
        self.replica_fetches.changed(replica.partition)
        waiting = replica.waiting
        count = 0
        while count < len(waiting) and waiting[count].next_offset <= offset:
            count += 1
        if count:
            done, replica.waiting = waiting[:count], waiting[count:]
            for entry in done:
                entry.on_done(entry.append)
        self._announce(replica)

    def _finish_reassignment(self, replica: Replica) -> None:
        leader = replica.leader
        if leader is None or not leader.registration.is_reassigning or replica.key in self._finishing:
            return
        after = finish_reassignment(leader.registration, self._image.broker_epochs)
        if after is not None:
            change = self._elector.change_of(leader.partition_epoch, replica.key, after)
            self._finishing.add(replica.key)
            self._tasks.spawn(self._finish(replica.key, change, resigns=after.leader != self._broker_id))

    async def _finish(self, key: PartitionKey, change: StoreTransaction, *, resigns: bool) -> None:
        commit = self._elector.resign if resigns else self._elector.commit
        try:
            if not await commit([change]):
                await pause(_FINISH_AGAIN_S)
        finally:
            self._finishing.discard(key)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)
