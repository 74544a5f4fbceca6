"""Bugs that are planted in the code of brokers, and that the simulation of a cluster must find.

Each function takes pytest's monkeypatch. docs/CLUSTER.md has the number of schedules after which each is found.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from logbrook.core.cluster import elections, partition
from logbrook.core.cluster.lifecycle import DirectoryLoss
from logbrook.core.cluster.partition import PartitionRegistration, elect_unclean, take_over
from logbrook.core.replication import leader as leader_rules
from logbrook.core.replication.follower import EpochEnd, FollowerEffect, PartitionFollower, ReplicaFetch, TruncateLog
from logbrook.core.replication.leader import LeaderEffect, PartitionLeader, ProposeRegistration
from logbrook.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from logbrook.ports import File
from logbrook.protocol.error_codes import ErrorCode
from logbrook.server.cluster import membership
from logbrook.server.cluster.leading import LeadingReplicas
from logbrook.server.cluster.membership import Membership
from logbrook.server.cluster.replica import Replica
from logbrook.server.cluster.replica_fetcher import ReplicaFetcher
from logbrook.server.cluster.replicas import ReplicaManager
from logbrook.server.coordinators.context import CoordinatorContext, complete
from logbrook.server.coordinators.runtime import CoordinatorRuntime
from logbrook.server.coordinators.transaction_joins import TransactionJoins
from logbrook.server.coordinators.transactions import TransactionCoordinatorService
from logbrook.server.errors import RequestRefusedError
from logbrook.server.handlers import write_txn_markers
from logbrook.server.pending_fetch import PendingFetch
from logbrook.storage.log import Log
from logbrook.storage.truncation import truncate

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledge_before_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    """acks=all is answered when the leader has synced the records."""
    on_synced = LeadingReplicas.on_synced

    def on_synced_at_once(leading: LeadingReplicas, *arguments: Any, waits: bool, timeout_s: float | None) -> None:
        del waits
        monkeypatch.setattr(type(leading._membership), "is_certain", True)
        on_synced(leading, *arguments, waits=False, timeout_s=timeout_s)

    monkeypatch.setattr(LeadingReplicas, "on_synced", on_synced_at_once)


def show_uncommitted_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers read up to the log end offset, of leaders and followers."""
    monkeypatch.setattr(PendingFetch, "_end_offset", lambda _, log: log.log_end_offset)


def change_the_isr_without_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader drops followers on its own."""

    carry_out = LeadingReplicas._carry_out

    async def apply(leading: LeadingReplicas, replica: Replica, leader: PartitionLeader, proposed: Any) -> None:
        effects = leader.on_registration(proposed.registration, leader.partition_epoch + 1)
        leader.partition_epoch = proposed.partition_epoch
        leading._carry_out(replica, effects)

    def carry_out_alone(leading: LeadingReplicas, replica: Replica, effects: Collection[LeaderEffect]) -> None:
        carry_out(leading, replica, [effect for effect in effects if not isinstance(effect, ProposeRegistration)])
        for effect in effects:
            if isinstance(effect, ProposeRegistration):
                assert replica.leader is not None
                leading._tasks.spawn(apply(leading, replica, replica.leader, effect))

    monkeypatch.setattr(LeadingReplicas, "_carry_out", carry_out_alone)


def acknowledge_after_a_failed_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync of the write-ahead log that fails is taken for one that succeeded."""

    def sync(file: File) -> None:
        with suppress(OSError):
            file.fsync()

    monkeypatch.setattr("logbrook.storage.wal.sync_file", sync)


def never_compare_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader does not look for records that only a follower has."""
    monkeypatch.setattr("logbrook.server.cluster.leading.divergence_of", lambda *_: None)


def reply_before_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinators reply when their records are appended."""

    def release(_: CoordinatorContext[Any], future: "asyncio.Future[Any]", result: object) -> None:
        complete(future, result)

    monkeypatch.setattr(CoordinatorContext, "release", release)


def join_transactions_without_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders append records of transactions whose coordinator does not know the partition."""

    async def join(*_: Any, **__: Any) -> None:
        """Ask nobody."""

    monkeypatch.setattr(TransactionCoordinatorService, "join", join)


def let_batches_overtake_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a transaction are appended when the coordinator has answered, in whatever order."""
    monkeypatch.setattr(TransactionJoins, "wait", lambda *_: False)
    monkeypatch.setattr(TransactionJoins, "begin", lambda *_: None)
    monkeypatch.setattr(TransactionJoins, "end", lambda *_, **__: None)


def let_the_high_watermark_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark moves with the leader's own log."""
    monkeypatch.setattr(PartitionLeader, "_synced_end_of", lambda leader, _: leader.synced_end_offset)


def forget_the_epochs_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower names no epoch, so that its leader cannot compare the logs."""
    monkeypatch.setattr("logbrook.server.cluster.replica_fetcher._last_epoch", lambda _: -1)


def show_uncommitted_records_of_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower shows records above its high watermark."""
    end_offset = PendingFetch._end_offset

    def end_of_follower(request: Any, log: Log) -> Offset | None:
        leads = request._services.topics.leads(log.partition)
        return end_offset(request, log) if leads else log.log_end_offset

    monkeypatch.setattr(PendingFetch, "_end_offset", end_of_follower)


def truncate_to_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower of a new leader drops all records above its own high watermark (KIP-101)."""
    follow = ReplicaManager._follow

    def truncate_and_follow(replicas: ReplicaManager, replica: Replica, registration: PartitionRegistration) -> None:
        follower, log = replica.follower, replica.log
        assert log is not None
        if follower is None or follower.leader_epoch != registration.leader_epoch:
            truncate(log, log.high_watermark)
        follow(replicas, replica, registration)

    monkeypatch.setattr(ReplicaManager, "_follow", truncate_and_follow)


def count_unsynced_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower reports records that it has not synced."""
    append = ReplicaFetcher._append

    def append_without_waiting(fetcher: ReplicaFetcher, log: Log, records: memoryview) -> "asyncio.Future[None]":
        done = append(fetcher, log, records)
        if not done.done():
            done.set_result(None)
        return done

    monkeypatch.setattr(ReplicaFetcher, "_append", append_without_waiting)
    monkeypatch.setattr(Log, "synced_end_offset", property(lambda log: log.log_end_offset))


def elect_any_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that is not in sync takes over when no other is alive."""

    def take_over_anyway(
        partition: PartitionRegistration,
        candidate: BrokerId,
        broker_epoch: BrokerEpoch,
        live: Collection[BrokerId],
        min_insync: int,
        *,
        is_damaged: bool,
    ) -> PartitionRegistration | None:
        after = take_over(partition, candidate, broker_epoch, live, min_insync, is_damaged=is_damaged)
        if after is None and not any(replica in live for replica in (*partition.isr, *partition.elr)):
            return elect_unclean(partition, candidate, broker_epoch)
        return after

    monkeypatch.setattr(elections, "take_over", take_over_anyway)


def keep_replaced_disks_in_the_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with an empty disk keeps its place."""
    monkeypatch.setattr(membership, "directory_loss", lambda *_, **__: DirectoryLoss.NOTHING)


def elect_eligible_replicas_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas that left the ISR stay eligible, also when the high watermark has moved."""
    change = partition.change_isr

    def keep_eligible(
        registration: PartitionRegistration, isr: Collection[BrokerId], min_insync: int
    ) -> PartitionRegistration:
        after = change(registration, isr, min_insync)
        left = {*registration.isr, *registration.elr} - set(after.isr)
        return replace(after, elr=tuple(replica for replica in after.replicas if replica in left))

    monkeypatch.setattr(leader_rules, "change_isr", keep_eligible)
    monkeypatch.setattr(PartitionRegistration, "may_commit", lambda registration, _: bool(registration.isr))


def let_anybody_join_the_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower joins the ISR with its first fetch, wherever it is."""
    monkeypatch.setattr(PartitionLeader, "_has_caught_up", lambda *_: True)


def serve_before_offsets_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator loads before all committed records of its partition are known."""
    monkeypatch.setattr(PartitionLeader, "is_offset_known", True)


def coordinate_without_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator replies although another broker may have taken its partition over."""
    monkeypatch.setattr(Membership, "is_certain", True)


def forget_loaded_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that takes over starts with an empty state."""

    async def replay_nothing(*_: object) -> None:
        """Read no log."""

    monkeypatch.setattr(CoordinatorRuntime, "_replay_log", replay_nothing)


def truncate_to_the_end_of_the_leaders_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower takes the end of an epoch in its leader's log for the end of the common records (KIP-279).

    As with KIP-101 alone it does not look at the end of that epoch in its own log, and asks only once.
    """
    fetch = PartitionFollower.fetch
    # The ends at which followers take their logs for prefixes of their leaders'.
    agreed: WeakKeyDictionary[PartitionFollower, EpochEnd] = WeakKeyDictionary()

    def truncate_there(
        follower: PartitionFollower,
        divergence: EpochEnd,
        own_end: EpochEnd | None,
        log_start_offset: Offset,
        log_end_offset: Offset,
        leader_log_start_offset: Offset,
    ) -> list[FollowerEffect]:
        del own_end, leader_log_start_offset
        offset = Offset(max(log_start_offset, min(divergence.end_offset, log_end_offset)))
        agreed[follower] = EpochEnd(divergence.epoch, offset)
        return [TruncateLog(offset)]

    def fetch_from_there(
        follower: PartitionFollower,
        log_start_offset: Offset,
        log_end_offset: Offset,
        synced_end_offset: Offset,
        last_epoch: LeaderEpoch,
    ) -> ReplicaFetch:
        end = agreed.get(follower)
        if end is not None and end.end_offset == log_end_offset:
            last_epoch = end.epoch
        return fetch(follower, log_start_offset, log_end_offset, synced_end_offset, last_epoch)

    monkeypatch.setattr(PartitionFollower, "on_divergence", truncate_there)
    monkeypatch.setattr(PartitionFollower, "fetch", fetch_from_there)


def accept_markers_of_deposed_coordinators(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader does not compare the epoch of the coordinator that sends a transaction marker."""
    check = write_txn_markers._check

    def check_the_rest(*arguments: Any) -> None:
        try:
            check(*arguments)
        except RequestRefusedError as error:
            if error.code != ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                raise

    monkeypatch.setattr(write_txn_markers, "_check", check_the_rest)
