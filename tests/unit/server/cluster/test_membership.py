"""A node that has lost records and registers, while a leader adds its earlier life to an ISR."""

import asyncio
from collections.abc import Callable

import pytest

from logbrook.core.cluster.elections import partition_change
from logbrook.core.cluster.features import SUPPORTED
from logbrook.core.cluster.image import (
    BrokerRegistration,
    ClusterImage,
    PartitionKey,
    broker_key,
    encode_partition,
    partition_key,
)
from logbrook.core.cluster.partition import PartitionRegistration, change_isr
from logbrook.model.identifiers import BrokerId
from logbrook.ports import SystemClock, SystemRandom
from logbrook.ports.metadata_store import Delete, Put, StoreTransaction
from logbrook.server.cluster.membership import Membership
from logbrook.testing.memory_files import MemoryFiles
from logbrook.testing.memory_metadata_store import MemoryMetadataStore, MemoryStore

ONE, TWO = BrokerId(1), BrokerId(2)
KEY = PartitionKey(b"t" * 16, 0)


class Node:
    """A broker's membership. The page cache is lost with every life: it does not sync before it replies."""

    def __init__(self, store: MemoryStore, broker_id: BrokerId, files: MemoryFiles, boot_id: str = "") -> None:
        self.connection = store.connect()
        self.membership = Membership(
            self.connection,
            broker_id,
            [files],
            set,
            SystemClock(),
            SystemRandom(),
            lambda: None,
            lease_s=60.0,
            syncs_before_reply=False,
            boot_id=boot_id,
            features=SUPPORTED,
        )

    async def register(self) -> None:
        await self.membership.register(BrokerRegistration("host", 9092), "cluster")


def image_of(store: MemoryStore) -> ClusterImage:
    image = ClusterImage()
    image.load(store.state.entries)
    return image


def before(connection: MemoryMetadataStore, name: str, act: Callable[[], object]) -> None:
    """Act once, before the next call of this method."""
    method = getattr(connection, name)

    async def call(*arguments: object) -> object:
        setattr(connection, name, method)
        act()
        return await method(*arguments)

    setattr(connection, name, call)


@pytest.mark.parametrize(
    ("request_name", "is_expired"),
    [("commit", False), ("grant_lease", True), ("grant_lease", False)],
    ids=["before its registration is removed", "after its lease", "after its registration was removed"],
)
def test_a_node_that_lost_records_is_in_no_isr_when_it_registers(request_name: str, is_expired: bool) -> None:
    asyncio.run(register_while_a_leader_proposes(request_name, is_expired=is_expired))


async def register_while_a_leader_proposes(request_name: str, *, is_expired: bool) -> None:
    store, files = MemoryStore(), MemoryFiles()
    leader, earlier = Node(store, ONE, MemoryFiles()), Node(store, TWO, files)
    await leader.register()
    await earlier.register()
    alone = PartitionRegistration((ONE, TWO), (ONE,), ONE, leader.membership.broker_epoch)
    await leader.connection.commit(StoreTransaction([], [Put(partition_key(KEY), encode_partition(alone))]))
    epoch = image_of(store).partitions[KEY].epoch
    # It has caught up in its earlier life. The proposal arrives late, or is repeated.
    joins = partition_change(
        KEY,
        epoch,
        change_isr(alone, (ONE, TWO), 1),
        ONE,
        leader.membership.broker_epoch,
        [(TWO, earlier.membership.broker_epoch)],
    )
    if is_expired:
        store.apply(StoreTransaction([], [Delete(broker_key(TWO))]))
    later = Node(store, TWO, files, boot_id="another")
    before(later.connection, request_name, lambda: store.apply(joins))
    await later.register()
    image = image_of(store)
    assert image.is_current(TWO, later.membership.broker_epoch)
    assert image.partitions[KEY].registration.isr == (ONE,)
    store.close()
