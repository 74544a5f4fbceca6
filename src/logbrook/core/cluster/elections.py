"""Elections without a controller: a replica that may lead takes the partition over, in one transaction of the store.

A broker may take a partition over when it is in sync (or eligible, see `partition.take_over`) and the leader is gone:
its registration is absent, or has another broker epoch than the partition names. The transaction repeats this as
conditions, so the store decides between brokers that try at the same time:

    the partition has not changed                                   (partition epoch)
    the leader's registration still does not have the epoch that the partition names
    the registration of the new leader is its own                    (broker epoch)

An address that refuses connections may stand in for an absent registration. Then the second condition is left out: it
only prevents needless elections, since only replicas with all committed records qualify and the new epoch fences the
old leader.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from logbrook.core.cluster.image import ClusterImage, PartitionKey, broker_key, encode_partition, partition_key
from logbrook.core.cluster.partition import PartitionRegistration, elect_unclean, take_over
from logbrook.model.identifiers import BrokerEpoch, BrokerId
from logbrook.ports.metadata_store import (
    Condition,
    Put,
    StoreTransaction,
    is_unmodified,
    was_created_at,
    was_not_created_at,
)

# A transaction of etcd has at most 128 conditions and as many operations. An election has a put and two conditions, as
# a change of the ISR, which adds one broker; the registration of the one that changes them is a condition of all.
ELECTIONS_PER_TRANSACTION = 40


class Election(NamedTuple):
    """A partition that this broker may take over.

    `rank` is the number of live replicas that come first: they try at once, this one a little later. `is_unclean`: it
    may lack committed records, which are then lost.
    """

    key: PartitionKey
    rank: int
    before: PartitionRegistration
    after: PartitionRegistration
    partition_epoch: int
    is_unclean: bool = False


def find_elections(
    image: ClusterImage,
    candidate: BrokerId,
    broker_epoch: BrokerEpoch,
    min_insync_of: Callable[[PartitionKey], int],
    keys: Iterable[PartitionKey] | None = None,
    refusing: Collection[BrokerId] = (),
    may_be_unclean: Callable[[PartitionKey], bool] = lambda _key: False,
    is_damaged: Callable[[PartitionKey], bool] = lambda _key: False,
) -> Iterator[Election]:
    """Yield the elections that the candidate may win, of these partitions or of all.

    `refusing` has the brokers whose address refuses connections; they count as dead. `may_be_unclean` is the topic's
    `unclean.leader.election.enable`: any live replica may lead if none with all committed records is registered.
    `is_damaged` tells whether the candidate's log of a partition is.
    """
    live = image.brokers.keys() - set(refusing)
    for key in image.partitions if keys is None else keys:
        partition = image.partitions.get(key)
        if partition is None:
            continue
        before = partition.registration
        if image.has_live_leader(before) and before.leader not in refusing:
            continue
        after = take_over(before, candidate, broker_epoch, live, min_insync_of(key), is_damaged=is_damaged(key))
        if after is not None:
            yield Election(key, _rank(before, candidate, live), before, after, partition.epoch)
        elif candidate in before.replicas and may_be_unclean(key):
            complete = {*before.isr, *before.elr}
            if complete.isdisjoint(image.brokers):
                ahead = before.replicas[: before.replicas.index(candidate)]
                rank = sum(replica in live for replica in ahead)
                after = elect_unclean(before, candidate, broker_epoch)
                yield Election(key, rank, before, after, partition.epoch, is_unclean=True)


def election_transactions(
    elections: Iterable[Election], candidate: BrokerId, broker_epoch: BrokerEpoch, refusing: Collection[BrokerId] = ()
) -> Iterator[tuple[Sequence[Election], StoreTransaction]]:
    """Bundle elections into transactions. If one of a bundle has been decided by another broker, the bundle fails."""
    remaining = iter(elections)
    while bundle := list(islice(remaining, ELECTIONS_PER_TRANSACTION)):
        conditions: dict[Condition, None] = {was_created_at(broker_key(candidate), broker_epoch): None}
        for election in bundle:
            conditions[is_unmodified(partition_key(election.key), election.partition_epoch)] = None
            before = election.before
            if before.has_leader and before.leader not in refusing:
                conditions[was_not_created_at(broker_key(before.leader), before.leader_broker_epoch)] = None
        puts = [Put(partition_key(election.key), encode_partition(election.after)) for election in bundle]
        yield bundle, StoreTransaction(list(conditions), puts)


def partition_change(
    key: PartitionKey,
    partition_epoch: int,
    after: PartitionRegistration,
    broker_id: BrokerId,
    broker_epoch: BrokerEpoch,
    joining: Iterable[tuple[BrokerId, BrokerEpoch]] = (),
) -> StoreTransaction:
    """Return the transaction by which a live broker changes a registration that it knows at `partition_epoch`.

    `joining` has the new members of the ISR, and the lives of their brokers that must be the registered ones (KIP-903).
    """
    conditions = [
        is_unmodified(partition_key(key), partition_epoch),
        was_created_at(broker_key(broker_id), broker_epoch),
        *(was_created_at(broker_key(member), epoch) for member, epoch in joining),
    ]
    return StoreTransaction(conditions, [Put(partition_key(key), encode_partition(after))])


def _rank(partition: PartitionRegistration, candidate: BrokerId, live: Collection[BrokerId]) -> int:
    eligible = partition.isr if candidate in partition.isr else partition.elr
    ahead = partition.replicas[: partition.replicas.index(candidate)]
    return sum(replica in live and replica in eligible for replica in ahead)
