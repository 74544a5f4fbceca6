"""Replicas whose log is damaged, in simulated time: what the others have is kept, and replaces it."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports.metadata_store import StoreTransaction, TransactionResult
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.batch import HEADER_BYTES, read_header
from logbrook.server.cluster.background import pause
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.paths import log_path
from logbrook.testing.memory_metadata_store import MemoryMetadataStore
from tests.simulation.test_failover_scenarios import LEASE_S, TOPIC, ThreeBrokers

PARTITION = TopicPartition(TOPIC, 0)


def cut_file(cluster: ThreeBrokers, number: int, batches: int) -> None:
    """Leave only the first batches, all of the same size, in the log of a broker that is down."""
    with closing(cluster.brokers[number].files.open(log_path(PARTITION.directory, Offset(0)))) as file:
        file.truncate(batches * read_header(file.pread(HEADER_BYTES, 0), 0).size)


def overwrite_batch(cluster: ThreeBrokers, number: int, batch: int) -> None:
    with closing(cluster.brokers[number].files.open(log_path(PARTITION.directory, Offset(0)))) as file:
        file.pwrite(bytes(HEADER_BYTES), batch * read_header(file.pread(HEADER_BYTES, 0), 0).size)


async def write_in_two_epochs(cluster: ThreeBrokers) -> None:
    """Write two batches with broker 1 as the leader, and two more with broker 2. Both are in sync then."""
    await cluster.create_topic([1, 2])
    for _ in range(2):
        assert await cluster.produce(leader=1) == ErrorCode.NONE
    await cluster.kill(1)
    await pause(1.0)
    assert await cluster.produce(leader=2) == ErrorCode.NONE
    await cluster.brokers[1].start()
    await pause(2.0)
    assert set(cluster.registration().isr) == {1, 2}
    assert await cluster.produce(leader=2) == ErrorCode.NONE
    await pause(1.0)


async def kill_both(cluster: ThreeBrokers) -> None:
    """Kill brokers 1 and 2 at once, so that both stay in the ISR."""
    cluster.cut_off_from_store(2)
    await cluster.kill(1)
    await cluster.kill(2)


def test_a_healthy_follower_is_not_truncated_by_a_leader_that_found_damage_at_its_start() -> None:
    """The leader lacked the epochs after the damage, and took the records of the follower for uncommitted ones."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await write_in_two_epochs(cluster)
        await kill_both(cluster)
        overwrite_batch(cluster, 1, batch=1)
        await cluster.brokers[1].start()
        await pause(1.0)
        assert cluster.registration().leader == 1
        damaged = cluster.log(1)
        assert (damaged.corruption is not None, damaged.log_end_offset) == (True, 4)
        await cluster.brokers[2].start()
        await pause(5.0)
        assert set(cluster.registration().isr) == {1, 2}
        assert cluster.registration().leader == 2
        assert cluster.log(2).log_end_offset == 4
        assert (cluster.log(1).corruption, cluster.log(1).log_end_offset) == (None, 4)

    ThreeBrokers(segment_sync_min_bytes=1).run(scenario)


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_follower_keeps_what_the_short_log_of_its_leader_has_lost(restarts: int) -> None:
    """The second start of the leader told the short end of its log, and the follower was truncated there."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await write_in_two_epochs(cluster)
        await kill_both(cluster)
        cut_file(cluster, 1, batches=2)
        for number in range(restarts):
            await cluster.brokers[1].start()
            await pause(1.0)
            if number < restarts - 1:
                await cluster.kill(1)
        await cluster.brokers[2].start()
        await pause(5.0)
        assert cluster.log(2).log_end_offset == 4
        assert cluster.log(1).log_end_offset == 4
        assert set(cluster.registration().isr) == {1, 2}

    ThreeBrokers(segment_sync_min_bytes=1).run(scenario)


@pytest.mark.parametrize("min_insync", [1, 2])
def test_a_damaged_replica_that_takes_over_drops_no_other(min_insync: int) -> None:
    """The other one, which was complete, could not join the ISR again: the partition took no writes any more."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2], min_insync=min_insync)
        for _ in range(4):
            assert await cluster.produce(leader=1) == ErrorCode.NONE
        await pause(1.0)
        await kill_both(cluster)
        await pause(2 * LEASE_S)
        overwrite_batch(cluster, 1, batch=2)
        await cluster.brokers[1].start()
        await pause(1.0)
        await cluster.brokers[2].start()
        await pause(10.0)
        assert set(cluster.registration().isr) == {1, 2}
        assert cluster.log(1).corruption is None
        assert await cluster.produce(leader=cluster.registration().leader) == ErrorCode.NONE
        assert cluster.log(2).log_end_offset == 5

    ThreeBrokers(segment_sync_min_bytes=1).run(scenario)


def test_a_damaged_eligible_replica_that_takes_over_drops_no_other() -> None:
    """The in-sync one, which was complete, could not join the ISR again."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2], min_insync=1)
        for _ in range(4):
            assert await cluster.produce(leader=1) == ErrorCode.NONE
        await pause(1.0)
        replicas = cluster.brokers[1].server.services.replicas
        assert replicas is not None
        replicas.leading.on_disk_full(cluster.log(1))
        while cluster.registration().leader != 2:
            await pause(0.0002)
        assert (cluster.registration().isr, cluster.registration().elr) == ((2,), (1,))
        await kill_both(cluster)
        await pause(2 * LEASE_S)
        overwrite_batch(cluster, 1, batch=2)
        await cluster.brokers[1].start()
        await pause(1.0)
        await cluster.brokers[2].start()
        await pause(20.0)
        assert set(cluster.registration().isr) == {1, 2}
        assert cluster.log(1).corruption is None

    ThreeBrokers(segment_sync_min_bytes=1).run(scenario)


def test_a_damaged_leader_hands_over_to_an_eligible_replica() -> None:
    """The other replica had left the ISR, which was below min.insync.replicas, before the damage was found."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2], min_insync=2)
        for _ in range(4):
            assert await cluster.produce(leader=1) == ErrorCode.NONE
        await pause(1.0)
        await cluster.kill(2)
        await pause(2 * LEASE_S)
        assert cluster.registration().isr == (1,)
        assert cluster.registration().elr == (2,)
        log = cluster.log(1)
        log.quarantine(CorruptLogError(log.partition, "a file", 0, Offset(2), "planted"))
        await cluster.brokers[2].start()
        await pause(10.0)
        assert set(cluster.registration().isr) == {1, 2}
        assert cluster.log(1).corruption is None
        assert await cluster.produce(leader=cluster.registration().leader) == ErrorCode.NONE

    ThreeBrokers().run(scenario)


@pytest.mark.parametrize("waiting", ["repair", "move"])
def test_a_change_is_tried_a_few_times_a_second_while_the_store_is_away(
    monkeypatch: pytest.MonkeyPatch, waiting: str
) -> None:
    """Each attempt left a task behind that asked the store five times a second."""
    requests = 0
    commit = MemoryMetadataStore.commit

    async def counted(store: MemoryMetadataStore, transaction: StoreTransaction) -> TransactionResult:
        nonlocal requests
        requests += 1
        return await commit(store, transaction)

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        if waiting == "repair":
            broker = 2
            cluster.cut_off_from_store(broker)
            log = cluster.log(broker)
            log.quarantine(CorruptLogError(log.partition, "a file", 0, Offset(0), "planted"))
        else:
            broker = 1
            replicas = cluster.brokers[broker].server.services.replicas
            assert replicas is not None
            lead = replicas.leading.lead

            def lead_and_cut(*arguments: Any) -> None:
                if arguments[2].registration.is_reassigning:
                    cluster.cut_off_from_store(broker)
                lead(*arguments)

            monkeypatch.setattr(replicas.leading, "lead", lead_and_cut)
            administrator = cluster.brokers[2].server.services.cluster_admin
            assert administrator is not None
            await administrator.reassign(PARTITION, [2])
        await pause(30.0)
        monkeypatch.setattr(MemoryMetadataStore, "commit", counted)
        await pause(10.0)
        monkeypatch.undo()
        cluster.cut_off_from_store(broker, is_cut_off=False)
        await pause(5.0)
        assert requests < 300
        expected: Sequence[int] = [1, 2] if waiting == "repair" else [2]
        assert sorted(cluster.registration().isr) == expected
        assert not cluster.registration().is_reassigning

    ThreeBrokers().run(scenario)
