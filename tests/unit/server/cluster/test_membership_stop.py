"""The records of a membership that stops after its node has registered again elsewhere."""

import asyncio

import pytest

from logbrook.core.cluster.features import SUPPORTED
from logbrook.core.cluster.image import BrokerRegistration, ClusterImage, broker_key
from logbrook.core.cluster.lifecycle import DirectoryLoss, directory_loss
from logbrook.model.identifiers import BrokerId
from logbrook.ports import SystemClock, SystemRandom
from logbrook.ports.metadata_store import LeaseNotFoundError
from logbrook.server.cluster.membership import Membership
from logbrook.testing.memory_files import MemoryFiles
from logbrook.testing.memory_metadata_store import MemoryStore

NODE = BrokerId(2)


def new_membership(store: MemoryStore, files: MemoryFiles) -> Membership:
    return Membership(
        store.connect(),
        NODE,
        [files],
        set,
        SystemClock(),
        SystemRandom(),
        lambda: None,
        lease_s=30,
        syncs_before_reply=True,
        boot_id="",
        features=SUPPORTED,
    )


def image_of(store: MemoryStore) -> ClusterImage:
    image = ClusterImage()
    image.load(store.state.entries)
    return image


def loss_of(store: MemoryStore, membership: Membership) -> DirectoryLoss:
    return directory_loss(image_of(store).nodes[NODE], membership._identity, "", syncs_before_reply=True)


def test_a_clean_stop_is_recorded_with_the_registration_that_stops() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        membership = new_membership(store, MemoryFiles())
        await membership.register(BrokerRegistration("first", 1), "cluster")
        await membership.begin_stop()
        assert image_of(store).brokers[NODE].registration.is_stopping
        await membership.stop()
        image = image_of(store)
        assert image.nodes[NODE].stopped_cleanly
        assert not image.brokers

    asyncio.run(scenario())


def test_a_process_whose_node_has_registered_on_another_machine_leaves_its_records_unchanged() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        old, new = new_membership(store, MemoryFiles()), new_membership(store, MemoryFiles())
        await old.register(BrokerRegistration("first", 1), "cluster")
        store.revoke_lease(store.state.entries[broker_key(NODE)].lease_id)
        await new.register(BrokerRegistration("second", 1), "cluster")
        before = dict(store.state.entries)
        with pytest.raises(LeaseNotFoundError):
            await old.begin_stop()
        await old.stop()
        assert dict(store.state.entries) == before
        assert loss_of(store, old) is DirectoryLoss.REPLACED
        assert loss_of(store, new) is DirectoryLoss.NOTHING
        store.close()

    asyncio.run(scenario())


def test_a_clean_stop_that_arrives_after_the_next_registration_is_not_recorded() -> None:
    """The next registration would look like that of a restored backup."""

    async def scenario() -> None:
        store, files = MemoryStore(), MemoryFiles()
        old = new_membership(store, files)
        await old.register(BrokerRegistration("first", 1), "cluster")
        new = new_membership(store, files)
        await new.register(BrokerRegistration("first", 1), "cluster")
        await old.stop()
        assert not image_of(store).nodes[NODE].stopped_cleanly
        assert loss_of(store, new) is DirectoryLoss.NOTHING
        store.close()

    asyncio.run(scenario())


def test_a_registration_that_replaced_the_own_one_is_not_marked_as_stopping() -> None:
    async def scenario() -> None:
        store, files = MemoryStore(), MemoryFiles()
        old = new_membership(store, files)
        await old.register(BrokerRegistration("first", 1), "cluster")
        # The directory is the same, so this one removes the old registration. The lease of that one still exists.
        new = new_membership(store, files)
        await new.register(BrokerRegistration("second", 1), "cluster")
        with pytest.raises(LeaseNotFoundError):
            await old.begin_stop()
        assert image_of(store).brokers[NODE].registration == new.registration
        store.close()

    asyncio.run(scenario())
