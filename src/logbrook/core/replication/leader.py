"""The leader of a partition: the progress of its followers, the high watermark and the ISR.

The high watermark is the least synced end of all in-sync replicas; it never falls. While a change of the ISR is in
flight, both the old and the proposed members count (KIP-497): the leader does not know which of the two the store has.
With fewer in-sync replicas than `min.insync.replicas` it does not move, so that those who left the ISR stay eligible.

A follower joins the ISR when its synced end has reached the high watermark and the start of the leader's epoch, this
life of its broker is the registered one, and it is not stopping (KIP-841, KIP-903). The leader may not have heard of a
later life yet, so the store checks it again. It leaves when it has not caught up for `replica.lag.time.max.ms`.

A deletion of records (DeleteRecords) is acknowledged when all replicas have it that may be elected: those in sync, and
those of a change in flight, while no other is eligible. A follower that lacks it does not join the ISR.

A new leader does not know the high watermark: it is at least its own, and below the start of its epoch offsets are not
available until the high watermark has reached it (KIP-207).
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import TypeAlias

from logbrook.core.cluster.partition import PartitionRegistration, change_isr
from logbrook.model import LogbrookError
from logbrook.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, Offset

UNKNOWN_OFFSET = Offset(-1)
_NO_SESSION = 0


class NotAReplicaError(LogbrookError):
    """The fetching broker is not a replica of the partition."""

    def __init__(self, replica: BrokerId) -> None:
        super().__init__(f"broker {replica} is not a replica of this partition")


class StaleReplicaEpochError(LogbrookError):
    """The fetch is of an earlier life of its broker."""

    def __init__(self, replica: BrokerId, epoch: BrokerEpoch, current: BrokerEpoch) -> None:
        super().__init__(f"broker {replica} fetched with broker epoch {epoch}, but {current} is known")


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Make the records below the offset visible, and acknowledge those with acks=all."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class ProposeRegistration:
    """Write the registration if the partition epoch has not changed; then report the result to the leader.

    `joining` has the new members of the ISR with the broker epochs in which they have caught up; they must be the
    registered ones: a later life may have lost its disk.
    """

    registration: PartitionRegistration
    partition_epoch: int
    joining: tuple[tuple[BrokerId, BrokerEpoch], ...] = ()


LeaderEffect: TypeAlias = AdvanceHighWatermark | ProposeRegistration


@dataclass(slots=True)
class FollowerProgress:
    """A follower as its leader sees it."""

    broker_epoch: BrokerEpoch = BrokerEpoch(-1)
    synced_end_offset: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET
    # The last time at which it had everything that the leader had.
    caught_up_ms: int = 0
    fetched_ms: int = 0
    # The leader's log end offset at its last fetch.
    log_end_offset_then: Offset = UNKNOWN_OFFSET
    # The fetch session of the last fetch, and the number of fetches that followed one of the same session.
    session_id: int = _NO_SESSION
    fetches: int = 0


class PartitionLeader:
    """One term of a leader, from its election to the next registration with another leader epoch."""

    def __init__(
        self,
        broker_id: BrokerId,
        registration: PartitionRegistration,
        partition_epoch: int,
        *,
        log_end_offset: Offset,
        synced_end_offset: Offset,
        high_watermark: Offset,
        log_start_offset: Offset,
        min_insync: int,
        lag_ms_max: int,
        now_ms: int,
    ) -> None:
        assert registration.leader == broker_id
        self.broker_id = broker_id
        self.registration = registration
        self.partition_epoch = partition_epoch
        self.min_insync = min_insync
        self.high_watermark = high_watermark
        self.log_end_offset = log_end_offset
        self.synced_end_offset = synced_end_offset
        # A deletion that the leader has may have been acknowledged by an earlier one.
        self.deleted_before = log_start_offset
        # Records of this epoch start here.
        self.epoch_start_offset = log_end_offset
        self._lag_ms_max = lag_ms_max
        self._proposed: ProposeRegistration | None = None
        # Until this time no proposal is made: the last one failed.
        self._retry_ms = now_ms
        self._progress = {
            replica: FollowerProgress(caught_up_ms=now_ms) for replica in registration.replicas if replica != broker_id
        }

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.registration.leader_epoch

    @property
    def is_offset_known(self) -> bool:
        """False while a reader could see offsets fall: the previous leader may have had a larger high watermark."""
        return self.high_watermark >= self.epoch_start_offset

    def fetches(self) -> dict[BrokerId, int]:
        """Return the number of fetches in this term of each other replica that the store may have elected.

        A fetch counts if it follows one of the same session: then it was sent when that one had been answered.
        """
        candidates = {*self.registration.isr, *self.registration.elr, *self._proposed_isr}
        return {replica: progress.fetches for replica, progress in self._progress.items() if replica in candidates}

    def is_confirmed(self, before: dict[BrokerId, int]) -> bool:
        """True if no other leader had committed anything when `fetches` returned `before`.

        Every replica that may have been elected has fetched twice since. It sent the second fetch after that time, and
        was a follower of this term then: the fetch before it, of the same session, was answered after that time. The
        first one may have been under way for long, as may one of another connection.
        """
        return all(count >= before.get(replica, 0) + 2 for replica, count in self.fetches().items())

    def has_enough_in_sync(self) -> bool:
        """True if acks=all is accepted."""
        return len(self.registration.isr) >= self.registration.insync_min(self.min_insync)

    def follower_lags(self) -> dict[BrokerId, int]:
        """Return the offsets by which each follower is behind this log, without those that have not fetched yet."""
        return {
            replica: max(0, self.log_end_offset - progress.synced_end_offset)
            for replica, progress in self._progress.items()
            if progress.synced_end_offset != UNKNOWN_OFFSET
        }

    # Events

    def on_append(self, log_end_offset: Offset) -> None:
        """Records were appended; they are not synced yet."""
        assert log_end_offset >= self.log_end_offset
        self.log_end_offset = log_end_offset

    def on_sync(self, synced_end_offset: Offset) -> list[LeaderEffect]:
        """The leader's own log is durable up to this offset."""
        assert synced_end_offset <= self.log_end_offset
        self.synced_end_offset = max(self.synced_end_offset, synced_end_offset)
        return self._advance()

    def on_fetch(
        self,
        replica: BrokerId,
        broker_epoch: BrokerEpoch,
        fetch_offset: Offset,
        now_ms: int,
        *,
        log_start_offset: Offset,
        is_eligible: bool,
        session_id: int = _NO_SESSION,
    ) -> list[LeaderEffect]:
        """A follower, whose log agrees with this one, has fetched: everything below `fetch_offset` is synced there.

        It has deleted everything below `log_start_offset`. `is_eligible` is True if this life of the broker is
        registered and not stopping. `session_id` is that of the fetch session, 0 without one. Raises NotAReplicaError
        or StaleReplicaEpochError.
        """
        progress = self.check_fetch(replica, broker_epoch)
        if progress.broker_epoch != broker_epoch:
            # Another life may have lost what an earlier one has reported.
            progress.synced_end_offset = UNKNOWN_OFFSET
            progress.log_end_offset_then = UNKNOWN_OFFSET
            progress.broker_epoch = broker_epoch
        if fetch_offset >= self.log_end_offset:
            progress.caught_up_ms = now_ms
        elif progress.log_end_offset_then != UNKNOWN_OFFSET and fetch_offset >= progress.log_end_offset_then:
            progress.caught_up_ms = max(progress.caught_up_ms, progress.fetched_ms)
        progress.fetched_ms = now_ms
        progress.fetches += session_id != _NO_SESSION and session_id == progress.session_id
        progress.session_id = session_id
        progress.log_end_offset_then = self.log_end_offset
        progress.synced_end_offset = fetch_offset
        # Brokers of earlier versions do not tell theirs.
        progress.log_start_offset = self.deleted_before if log_start_offset == UNKNOWN_OFFSET else log_start_offset
        effects = self._advance()
        if is_eligible and replica not in self.registration.isr and self._has_caught_up(progress):
            # It joins at the high watermark, and has the whole time to reach the end of the log.
            progress.caught_up_ms = now_ms
            effects += self._propose({*self.registration.isr, replica}, now_ms)
        return effects

    def on_deletion(self, offset: Offset) -> None:
        """The leader has deleted the records before the offset, at a client's request."""
        self.deleted_before = max(self.deleted_before, offset)

    def has_deletion(self, offset: Offset) -> bool:
        """True if no replica without this deletion, which the leader has, may be elected."""
        return self.registration.may_commit(self.min_insync) and all(
            self._progress[member].log_start_offset >= offset for member in self._members() if member != self.broker_id
        )

    def check_fetch(self, replica: BrokerId, broker_epoch: BrokerEpoch) -> FollowerProgress:
        """Raises NotAReplicaError or StaleReplicaEpochError."""
        progress = self._progress.get(replica)
        if progress is None:
            raise NotAReplicaError(replica)
        if broker_epoch < progress.broker_epoch:
            raise StaleReplicaEpochError(replica, broker_epoch, progress.broker_epoch)
        return progress

    def on_tick(self, now_ms: int, live: Container[BrokerId] | None = None) -> list[LeaderEffect]:
        """Time has passed: drop followers that lag or are gone, and clear an ELR that nothing needs any more.

        `live` has the brokers that can be in sync, None if that is unknown.
        """
        lagging = {replica for replica in self.registration.isr if self._lags(replica, now_ms)}
        if live is not None:
            lagging.update(replica for replica in self.registration.isr if replica not in live)
            lagging.discard(self.broker_id)
        if lagging:
            return self._propose(set(self.registration.isr) - lagging, now_ms)
        if self.registration.elr and self.has_enough_in_sync():
            return self._propose(set(self.registration.isr), now_ms)
        return []

    def on_registration(self, registration: PartitionRegistration, partition_epoch: int) -> list[LeaderEffect]:
        """The store has a new registration with the same leader epoch, proposed by this leader or by another broker.

        The caller ends the term if the leader epoch or the leader has changed.
        """
        assert registration.leader_epoch == self.leader_epoch
        assert registration.leader == self.broker_id
        if partition_epoch <= self.partition_epoch:
            return []
        self.registration, self.partition_epoch = registration, partition_epoch
        self._proposed = None
        for replica in registration.replicas:
            if replica != self.broker_id and replica not in self._progress:
                self._progress[replica] = FollowerProgress()
        for replica in set(self._progress) - set(registration.replicas):
            del self._progress[replica]
        return self._advance()

    def on_min_insync(self, min_insync: int) -> list[LeaderEffect]:
        """The topic's `min.insync.replicas` has changed."""
        self.min_insync = min_insync
        return self._advance()

    def on_proposal_failed(
        self, proposal: ProposeRegistration, now_ms: int, retry_after_ms: int, *, is_unknown: bool
    ) -> None:
        """The outcome of an attempt is unknown, or it was refused. No effect if the proposal is not the one in flight.

        An unknown one may still take effect, so both sets count until a registration arrives. A refusal is reported
        when the changes of the store until then have arrived. If they had no other registration, a broker that the
        proposal depends on has registered anew, or is gone: then no attempt has taken effect, or ever will.
        """
        if proposal is not self._proposed:
            return
        self._retry_ms = now_ms + retry_after_ms
        if not is_unknown:
            self._proposed = None

    def retry_proposal(self, now_ms: int) -> list[LeaderEffect]:
        """Propose again what has an unknown outcome, after the time of `on_proposal_failed`.

        If the first attempt has taken effect, the partition epoch has changed, and this one is refused.
        """
        if self._proposed is None or now_ms < self._retry_ms:
            return []
        return [self._proposed]

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls."""
        self.registration.validate()
        assert self.synced_end_offset <= self.log_end_offset
        assert self.high_watermark <= self.log_end_offset
        assert set(self._progress) == set(self.registration.replicas) - {self.broker_id}

    # Rules

    def _advance(self) -> list[LeaderEffect]:
        if not self.registration.may_commit(self.min_insync):
            return []
        offset = min(self._synced_end_of(replica) for replica in self._members())
        if offset <= self.high_watermark:
            return []
        self.high_watermark = offset
        return [AdvanceHighWatermark(offset)]

    def _members(self) -> set[BrokerId]:
        """Return the in-sync replicas, with those of a change in flight."""
        return {*self.registration.isr, *self._proposed_isr}

    @property
    def _proposed_isr(self) -> tuple[BrokerId, ...]:
        return () if self._proposed is None else self._proposed.registration.isr

    def _synced_end_of(self, replica: BrokerId) -> Offset:
        if replica == self.broker_id:
            return self.synced_end_offset
        return self._progress[replica].synced_end_offset

    def _has_caught_up(self, progress: FollowerProgress) -> bool:
        return (
            progress.synced_end_offset >= max(self.high_watermark, self.epoch_start_offset)
            and progress.log_start_offset >= self.deleted_before
        )

    def _lags(self, replica: BrokerId, now_ms: int) -> bool:
        if replica == self.broker_id:
            return False
        return now_ms - self._progress[replica].caught_up_ms > self._lag_ms_max

    def _propose(self, isr: set[BrokerId], now_ms: int) -> list[LeaderEffect]:
        if self._proposed is not None or now_ms < self._retry_ms:
            return []
        after = change_isr(self.registration, isr, self.min_insync)
        joining = [replica for replica in after.isr if replica not in self.registration.isr]
        epochs = tuple((replica, self._progress[replica].broker_epoch) for replica in joining)
        self._proposed = ProposeRegistration(after, self.partition_epoch, epochs)
        return [self._proposed]
