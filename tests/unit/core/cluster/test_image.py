"""The image of a cluster, and elections that are decided on it."""

import json

import pytest

from logbrook.core.cluster.elections import (
    ELECTIONS_PER_TRANSACTION,
    Election,
    election_transactions,
    find_elections,
    partition_change,
)
from logbrook.core.cluster.image import (
    BrokerRegistration,
    ClusterImage,
    NodeRecord,
    PartitionKey,
    broker_key,
    decode_partition,
    encode_broker,
    encode_node,
    encode_partition,
    node_key,
    partition_key,
)
from logbrook.core.cluster.partition import PartitionRegistration, new_partition
from logbrook.core.store_state import StoreState
from logbrook.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch
from logbrook.ports.metadata_store import Delete, Operation, Put, Revision, StoreTransaction

ONE, TWO, THREE = (BrokerId(number) for number in (1, 2, 3))
TOPIC = bytes(range(16))


class Cluster:
    """A store, and the image of a broker that has seen all of it."""

    def __init__(self, *broker_ids: BrokerId) -> None:
        self.store = StoreState(Revision(1))
        self.image = ClusterImage()
        for broker_id in broker_ids:
            self.write(Put(broker_key(broker_id), encode_broker(BrokerRegistration("h", 9092))))

    def write(self, *operations: Operation) -> None:
        assert self.commit(StoreTransaction((), operations))

    def commit(self, transaction: StoreTransaction) -> bool:
        operations = self.store.decide(transaction)
        if operations is None:
            return False
        self.store.apply(Revision(self.store.revision + 1), operations)
        for key, entry in self.store.changes_after(Revision(self.store.revision - 1))[0].events:
            if ClusterImage.has_key(key):
                self.image.replay(key, entry)
        self.image.validate()
        return True

    def add_partition(self, number: int, *replicas: BrokerId) -> PartitionKey:
        key = PartitionKey(TOPIC, number)
        registration = new_partition(replicas, list(self.image.brokers), self.image.broker_epochs)
        self.write(Put(partition_key(key), encode_partition(registration)))
        return key

    def elections(self, candidate: BrokerId, **options: object) -> list[Election]:
        epoch = self.image.brokers[candidate].epoch
        return list(find_elections(self.image, candidate, epoch, lambda _key: 1, **options))  # type: ignore[arg-type]


def test_the_create_revision_of_a_registration_is_the_broker_epoch() -> None:
    cluster = Cluster(ONE)
    first = cluster.image.brokers[ONE].epoch
    stopping = BrokerRegistration("h", 9092, rack="a", directory_id="d", is_stopping=True)
    cluster.write(Put(broker_key(ONE), encode_broker(stopping)))
    assert cluster.image.brokers[ONE] == (stopping, first)
    assert cluster.image.is_current(ONE, first)
    cluster.write(Delete(broker_key(ONE)))
    assert not cluster.image.is_current(ONE, first)
    cluster.write(Put(broker_key(ONE), encode_broker(stopping)))
    assert cluster.image.brokers[ONE].epoch > first


def test_the_mod_revision_of_a_registration_is_the_partition_epoch() -> None:
    cluster = Cluster(ONE, TWO)
    key = cluster.add_partition(0, ONE, TWO)
    before = cluster.image.partitions[key].epoch
    cluster.write(Put(partition_key(key), encode_partition(cluster.image.partitions[key].registration)))
    assert cluster.image.partitions[key].epoch > before
    cluster.write(Delete(partition_key(key)))
    assert not cluster.image.partitions


def test_nodes_remain_when_their_brokers_are_lost() -> None:
    cluster = Cluster(ONE)
    node = NodeRecord("directory", "registration", stopped_cleanly=True, boot_id="boot")
    cluster.write(Put(node_key(ONE), encode_node(node)), Delete(broker_key(ONE)))
    assert (cluster.image.nodes, cluster.image.brokers) == ({ONE: node}, {})
    cluster.write(Delete(node_key(ONE)))
    assert cluster.image.nodes == {}


def test_fields_of_newer_versions_are_ignored() -> None:
    """During a rolling upgrade, brokers read what newer ones have written."""
    cluster = Cluster(ONE)
    broker = json.loads(encode_broker(BrokerRegistration("h", 9092))) | {"added_later": 1}
    node = json.loads(encode_node(NodeRecord("d", "r"))) | {"added_later": 1}
    cluster.write(Put(broker_key(TWO), json.dumps(broker).encode()), Put(node_key(TWO), json.dumps(node).encode()))
    assert cluster.image.brokers[TWO].registration == BrokerRegistration("h", 9092)
    assert cluster.image.nodes[TWO] == NodeRecord("d", "r")


def test_an_image_that_is_loaded_equals_one_that_was_replayed() -> None:
    cluster = Cluster(ONE, TWO)
    cluster.add_partition(0, ONE, TWO)
    cluster.write(
        Put("topics/t", b"{}"), Put(node_key(ONE), encode_node(NodeRecord("d", "r"))), Delete(broker_key(TWO))
    )
    loaded = ClusterImage()
    loaded.load(cluster.store.entries)
    replayed = cluster.image
    assert (loaded.brokers, loaded.nodes, loaded.partitions) == (replayed.brokers, replayed.nodes, replayed.partitions)
    assert not ClusterImage.has_key("topics/t")


@pytest.mark.parametrize(
    "registration",
    [
        PartitionRegistration((ONE, TWO), (TWO,), TWO, BrokerEpoch(7), LeaderEpoch(3)),
        PartitionRegistration((ONE, TWO, THREE), (ONE,), ONE, BrokerEpoch(7), LeaderEpoch(3), (TWO,), (THREE,), (ONE,)),
    ],
)
def test_a_registration_is_decoded_as_it_was_encoded(registration: PartitionRegistration) -> None:
    assert decode_partition(encode_partition(registration)) == registration


def test_a_broker_may_take_over_partitions_of_a_lost_leader() -> None:
    cluster = Cluster(ONE, TWO, THREE)
    led_by_one = cluster.add_partition(0, ONE, TWO, THREE)
    cluster.add_partition(1, TWO, THREE)
    assert cluster.elections(TWO) == []
    cluster.write(Delete(broker_key(ONE)))
    assert [(election.key, election.rank) for election in cluster.elections(TWO)] == [(led_by_one, 0)]
    assert [(election.key, election.rank) for election in cluster.elections(THREE)] == [(led_by_one, 1)]


def test_a_broker_that_was_restarted_counts_as_lost() -> None:
    cluster = Cluster(ONE, TWO)
    key = cluster.add_partition(0, ONE, TWO)
    cluster.write(Delete(broker_key(ONE)))
    cluster.write(Put(broker_key(ONE), encode_broker(BrokerRegistration("h", 9092))))
    # The broker itself may take over again, with a new epoch.
    (election,) = cluster.elections(ONE)
    assert (election.key, election.rank, election.after.leader_epoch) == (key, 0, 1)


def test_the_store_lets_one_candidate_win() -> None:
    cluster = Cluster(ONE, TWO, THREE)
    key = cluster.add_partition(0, ONE, TWO, THREE)
    cluster.write(Delete(broker_key(ONE)))
    attempts = []
    for candidate in (TWO, THREE):
        ((_, transaction),) = election_transactions(
            cluster.elections(candidate), candidate, cluster.image.brokers[candidate].epoch
        )
        attempts.append(transaction)
    assert [cluster.commit(attempt) for attempt in attempts] == [True, False]
    assert cluster.image.partitions[key].registration.leader == TWO


def test_a_takeover_on_an_old_image_is_refused_when_the_leader_is_registered_again() -> None:
    cluster = Cluster(ONE, TWO)
    key = cluster.add_partition(0, ONE, TWO)
    entry = cluster.store.entries[broker_key(ONE)]
    cluster.write(Delete(broker_key(ONE)))
    elections = cluster.elections(TWO)
    # As if the deletion had been seen by a stale image only: the registration has its old epoch.
    cluster.store.entries[broker_key(ONE)] = entry
    ((_, transaction),) = election_transactions(elections, TWO, cluster.image.brokers[TWO].epoch)
    assert not cluster.commit(transaction)
    # An address that refuses connections stands in for an absent registration.
    ((_, transaction),) = election_transactions(elections, TWO, cluster.image.brokers[TWO].epoch, refusing={ONE})
    assert cluster.commit(transaction)
    assert cluster.image.partitions[key].registration.leader == TWO


def test_a_leader_that_refuses_connections_may_be_replaced() -> None:
    cluster = Cluster(ONE, TWO)
    cluster.add_partition(0, ONE, TWO)
    assert cluster.elections(TWO) == []
    (election,) = cluster.elections(TWO, refusing={ONE})
    assert election.after.isr == (TWO,)


def test_a_candidate_that_is_no_longer_registered_wins_nothing() -> None:
    cluster = Cluster(ONE, TWO)
    cluster.add_partition(0, ONE, TWO)
    epoch = cluster.image.brokers[TWO].epoch
    cluster.write(Delete(broker_key(ONE)))
    elections = cluster.elections(TWO)
    cluster.write(Delete(broker_key(TWO)))
    ((_, transaction),) = election_transactions(elections, TWO, epoch)
    assert not cluster.commit(transaction)


def test_elections_are_bundled_within_the_limit_of_a_transaction() -> None:
    cluster = Cluster(ONE, TWO)
    for number in range(ELECTIONS_PER_TRANSACTION + 1):
        cluster.add_partition(number, ONE, TWO)
    cluster.write(Delete(broker_key(ONE)))
    epoch = cluster.image.brokers[TWO].epoch
    bundles = list(election_transactions(cluster.elections(TWO), TWO, epoch))
    assert [len(bundle) for bundle, _ in bundles] == [ELECTIONS_PER_TRANSACTION, 1]
    for _, transaction in bundles:
        # The leader's registration is a condition once, not once per partition.
        assert len(transaction.conditions) + len(transaction.operations) <= 128
        assert cluster.commit(transaction)
    assert {partition.registration.leader for partition in cluster.image.partitions.values()} == {TWO}


def test_a_change_of_an_old_partition_epoch_is_refused() -> None:
    cluster = Cluster(ONE, TWO)
    key = cluster.add_partition(0, ONE, TWO)
    partition = cluster.image.partitions[key]
    epoch = cluster.image.brokers[ONE].epoch
    assert cluster.commit(partition_change(key, partition.epoch, partition.registration, ONE, epoch))
    assert not cluster.commit(partition_change(key, partition.epoch, partition.registration, ONE, epoch))


def test_only_a_registered_life_joins_an_isr() -> None:
    cluster = Cluster(ONE, TWO)
    key = cluster.add_partition(0, ONE, TWO)
    partition, epochs = cluster.image.partitions[key], cluster.image.broker_epochs
    change = partition_change(key, partition.epoch, partition.registration, ONE, epochs[ONE], [(TWO, epochs[TWO])])
    cluster.write(Delete(broker_key(TWO)))
    assert not cluster.commit(change)
    cluster.write(Put(broker_key(TWO), encode_broker(BrokerRegistration("h", 9092))))
    assert not cluster.commit(change)
    epoch = cluster.image.brokers[TWO].epoch
    assert cluster.commit(
        partition_change(key, partition.epoch, partition.registration, ONE, epochs[ONE], [(TWO, epoch)])
    )


def test_partitions_that_are_gone_are_skipped() -> None:
    cluster = Cluster(ONE, TWO)
    assert cluster.elections(TWO, keys=[PartitionKey(TOPIC, 9)]) == []
