"""The registration of a partition in the metadata store, and the rules that change it.

    replicas    the brokers that have a copy; the first one is the preferred leader
    isr         in-sync replicas: every record below the high watermark is synced on all of them
    elr         eligible leader replicas (KIP-966): they left the ISR when it fell below `min.insync.replicas`, and the
                high watermark has not moved since, so they have every committed record, too
    leader      and the broker epoch of the life in which it leads: a broker that restarts leads nothing
    leader epoch  raised by every election, by every removal of a replica, and before one that is damaged is emptied;
                it fences the previous leader, and fetches that were sent before

Each function returns a new registration, or raises or returns None if the rule does not allow the change. The caller
writes it with the condition that the registration has not changed meanwhile. `min_insync` is the topic's
`min.insync.replicas`; a partition with fewer replicas than that needs all of them.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from logbrook.model import LogbrookError
from logbrook.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch

NO_LEADER = BrokerId(-1)
NO_BROKER_EPOCH = BrokerEpoch(-1)


class InvalidReassignmentError(LogbrookError):
    """The replicas of a reassignment are not valid."""


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """Immutable. The first replica is the preferred leader; the order of the other tuples has no meaning."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_broker_epoch: BrokerEpoch
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    elr: tuple[BrokerId, ...] = ()
    # A reassignment in progress: replicas that are being added, and those that are removed when the others are in sync.
    # A leader is in both that was being added when the reassignment was cancelled, until it has handed over.
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas after the reassignment in progress."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    def insync_min(self, min_insync: int) -> int:
        """Return the number of in-sync replicas without which nothing is committed."""
        return max(1, min(min_insync, len(self.replicas)))

    def may_commit(self, min_insync: int) -> bool:
        """True if the high watermark may move: enough replicas are in sync, and no other may be elected.

        After `min.insync.replicas` was lowered there may still be an ELR. The leader has to clear it first.
        """
        return not self.elr and len(self.isr) >= self.insync_min(min_insync)

    def validate(self) -> None:
        """Assert the invariants of every registration."""
        assert self.replicas, "a partition has at least one replica"
        assert len(set(self.replicas)) == len(self.replicas)
        assert set(self.isr) <= set(self.replicas)
        assert set(self.elr) <= set(self.replicas) - set(self.isr)
        assert not self.has_leader or self.leader in self.isr
        assert set(self.adding) | set(self.removing) <= set(self.replicas)
        assert len(set(self.adding) & set(self.removing)) <= 1
        assert self.leader_epoch >= 0


def new_partition(
    replicas: Sequence[BrokerId], live: Collection[BrokerId], epochs: "dict[BrokerId, BrokerEpoch]"
) -> PartitionRegistration:
    """Register a new partition. All its replicas are empty, so all live ones are in sync.

    `epochs` has the broker epochs of the live brokers. Without a live replica the partition has no leader, and the
    first replica is in sync: it leads when it is back.
    """
    isr = tuple(replica for replica in replicas if replica in live) or (replicas[0],)
    leader = isr[0] if isr[0] in live else NO_LEADER
    return PartitionRegistration(tuple(replicas), isr, leader, epochs.get(leader, NO_BROKER_EPOCH))


def change_isr(partition: PartitionRegistration, isr: Iterable[BrokerId], min_insync: int) -> PartitionRegistration:
    """The leader changes the ISR. Replicas that leave it stay eligible while it is below the minimum."""
    members = set(isr)
    assert partition.leader in members, "the leader is in sync with itself"
    return _with_isr(partition, members, min_insync)


def take_over(
    partition: PartitionRegistration,
    candidate: BrokerId,
    broker_epoch: BrokerEpoch,
    live: Collection[BrokerId],
    min_insync: int,
    *,
    is_damaged: bool = False,
) -> PartitionRegistration | None:
    """Elect the candidate after the leader was lost, or return None if it may not lead.

    An in-sync replica may; an eligible one may if no in-sync replica is alive. Dead replicas leave the ISR, unless the
    candidate's log is damaged: a damaged log takes no writes, and the dead replicas may have the records that it lost.
    """
    if candidate in partition.isr:
        members = {replica for replica in partition.isr if is_damaged or replica in live or replica == candidate}
    elif candidate in partition.elr and not any(replica in live for replica in partition.isr):
        members = {candidate, *(partition.isr if is_damaged else ())}
    else:
        return None
    return _led_by(_with_isr(partition, members, min_insync), candidate, broker_epoch)


def elect_unclean(
    partition: PartitionRegistration, candidate: BrokerId, broker_epoch: BrokerEpoch
) -> PartitionRegistration:
    """Elect a replica that may lack committed records, by an operator's decision. The records it lacks are lost."""
    assert candidate in partition.replicas
    return _led_by(replace(partition, isr=(candidate,), elr=()), candidate, broker_epoch)


def hand_over(
    partition: PartitionRegistration, leader: BrokerId, broker_epoch: BrokerEpoch
) -> PartitionRegistration | None:
    """Move the leadership to another in-sync replica, or return None if it is not in sync or leads already."""
    if leader not in partition.isr or leader == partition.leader:
        return None
    return _led_by(partition, leader, broker_epoch)


def step_down(
    partition: PartitionRegistration, leader: BrokerId, broker_epoch: BrokerEpoch
) -> PartitionRegistration | None:
    """Move the leadership as `hand_over` does, from a leader whose disk is full: it steps aside, too."""
    after = hand_over(partition, leader, broker_epoch)
    return None if after is None else step_aside(after, partition.leader)


def step_aside(partition: PartitionRegistration, replica: BrokerId) -> PartitionRegistration:
    """A replica whose disk is full leaves the ISR, because writes would wait for it, and stays eligible.

    The leader clears the ELR before it commits anything. If it has just died, and lost its disk, the replica has the
    last complete copy.
    """
    assert replica in partition.isr
    assert replica != partition.leader
    isr = tuple(member for member in partition.isr if member != replica)
    return replace(partition, isr=isr, elr=(*partition.elr, replica))


def leave(partition: PartitionRegistration, replica: BrokerId) -> PartitionRegistration | None:
    """Remove a replica that lost its records from ISR and ELR; None if it is in neither.

    The others stay what they are: only the leader knows whether the high watermark has moved. If no other replica is
    left, the partition is offline until an operator accepts the loss (`elect_unclean`).
    """
    if replica not in partition.isr and replica not in partition.elr:
        return None
    isr = tuple(member for member in partition.isr if member != replica)
    elr = tuple(member for member in partition.elr if member != replica)
    left = replace(partition, isr=isr, elr=elr)
    if left.leader != replica:
        return left
    epoch = LeaderEpoch(left.leader_epoch + 1)
    return replace(left, leader=NO_LEADER, leader_broker_epoch=NO_BROKER_EPOCH, leader_epoch=epoch)


def withdraw(
    partition: PartitionRegistration, replica: BrokerId, epochs: "dict[BrokerId, BrokerEpoch]"
) -> PartitionRegistration | None:
    """Remove a replica that is going to lose its records from ISR and ELR; if it leads, another one takes over.

    That is one in sync, or else an eligible one, which has all committed records, too. The leader epoch is raised in
    any case, also if the replica is in neither: it fences fetches that the replica has sent, and which would report
    later what it has lost. `epochs` has the live brokers that may lead. None if no other complete replica may: then it
    keeps its place.
    """
    complete = (*partition.isr, *(partition.elr if partition.leader == replica else ()))
    successor = next((member for member in complete if member != replica and member in epochs), None)
    if successor is None:
        return None
    if successor in partition.elr:
        elr = tuple(member for member in partition.elr if member != successor)
        partition = replace(partition, isr=(*partition.isr, successor), elr=elr)
    if partition.leader == replica:
        partition = _led_by(partition, successor, epochs[successor])
    else:
        partition = _led_by(partition, partition.leader, partition.leader_broker_epoch)
    return leave(partition, replica) or partition


def reassign(partition: PartitionRegistration, target: Sequence[BrokerId]) -> PartitionRegistration:
    """Begin to move the partition to `target`, or change the reassignment in progress.

    Raises InvalidReassignmentError.
    """
    if not target:
        raise InvalidReassignmentError("a partition needs at least one replica")
    if len(set(target)) != len(target):
        raise InvalidReassignmentError(f"the replicas {list(target)} name a broker twice")
    return _change_target(partition, target)


def cancel_reassignment(partition: PartitionRegistration) -> PartitionRegistration | None:
    """Return to the replicas from before the reassignment; None if there is none. Raises InvalidReassignmentError."""
    return _change_target(partition, _original(partition)) if partition.is_reassigning else None


def _original(partition: PartitionRegistration) -> tuple[BrokerId, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def _change_target(partition: PartitionRegistration, target: Sequence[BrokerId]) -> PartitionRegistration:
    """Drop the replicas at once that an earlier reassignment was adding and this one does not, except for the leader.

    Others could commit records without a leader that does not know yet that it was dropped: it hands over itself.
    """
    original = _original(partition)
    dropped = set(partition.adding) - set(target)
    leader = (partition.leader,) if partition.leader in dropped else ()
    adding = (*(replica for replica in target if replica not in original), *leader)
    removing = (*(replica for replica in original if replica not in target), *leader)
    changed = replace(partition, replicas=(*target, *removing), adding=adding, removing=removing)
    _check_complete(changed, dropped)
    dropped -= set(leader)
    return _without(changed, dropped) if dropped else changed


def finish_reassignment(
    partition: PartitionRegistration, epochs: "dict[BrokerId, BrokerEpoch]"
) -> PartitionRegistration | None:
    """Drop the old replicas once every new one is in sync; None before that.

    A leader that is dropped hands over to the first target in sync that is alive; `epochs` has the live brokers. If it
    is all that is left of a cancelled reassignment, it waits for no other replica.
    """
    target = partition.target
    in_sync = [replica for replica in target if replica in partition.isr]
    is_cancelled = set(partition.adding) == set(partition.removing)
    if not partition.is_reassigning or len(in_sync) < (1 if is_cancelled else len(target)):
        return None
    finished = replace(partition, replicas=target, adding=(), removing=())
    if partition.leader in target or not partition.has_leader:
        return _without(finished, set(partition.removing)) if partition.removing else finished
    leader = next((replica for replica in in_sync if replica in epochs), None)
    if leader is None:
        return None
    return replace(_without(finished, set(partition.removing)), leader=leader, leader_broker_epoch=epochs[leader])


def _with_isr(
    partition: PartitionRegistration, members: Collection[BrokerId], min_insync: int
) -> PartitionRegistration:
    isr = tuple(replica for replica in partition.replicas if replica in members)
    elr: tuple[BrokerId, ...] = ()
    if len(isr) < partition.insync_min(min_insync):
        eligible = {*partition.elr, *partition.isr} - set(isr)
        elr = tuple(replica for replica in partition.replicas if replica in eligible)
    return replace(partition, isr=isr, elr=elr)


def _without(partition: PartitionRegistration, dropped: Collection[BrokerId]) -> PartitionRegistration:
    """Remove replicas that are no longer in `replicas` from ISR and ELR; a new epoch fences their fetches."""
    isr = tuple(replica for replica in partition.isr if replica not in dropped)
    elr = tuple(replica for replica in partition.elr if replica not in dropped)
    return replace(partition, isr=isr, elr=elr, leader_epoch=LeaderEpoch(partition.leader_epoch + 1))


def _check_complete(partition: PartitionRegistration, dropped: Collection[BrokerId]) -> None:
    """Raises InvalidReassignmentError if no replica with all committed records would be left."""
    if dropped and not {*partition.isr, *partition.elr} - set(dropped):
        replicas = [replica for replica in partition.replicas if replica not in dropped]
        raise InvalidReassignmentError(f"of the replicas {replicas} none is in sync; wait until one is")


def _led_by(partition: PartitionRegistration, leader: BrokerId, broker_epoch: BrokerEpoch) -> PartitionRegistration:
    epoch = LeaderEpoch(partition.leader_epoch + 1)
    return replace(partition, leader=leader, leader_broker_epoch=broker_epoch, leader_epoch=epoch)
