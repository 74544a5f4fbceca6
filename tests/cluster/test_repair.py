"""A damaged replica is repaired from its leader, whatever its role."""

from collections.abc import Callable

import pytest

from logbrook.model import TopicPartition
from logbrook.testing.cluster import Cluster, ClusterBroker

VALUES = [b"%03d" % number * 400 for number in range(8)]


def damage(broker: ClusterBroker, topic: str) -> None:
    """Flip a bit in a closed segment, and have the scrub find it."""

    async def flip_and_scrub() -> None:
        server = broker._running
        log = server.directory.get(TopicPartition(topic, 0))
        file = server.directory.environment.files.open(log.closed[1].path)
        last = file.pread(1, file.size() - 1)
        file.pwrite(bytes([last[0] ^ 1]), file.size() - 1)
        file.close()
        assert log.corruption is None
        await server.maintenance.scrubber.run_round()
        assert log.corruption is not None

    broker._active.call(flip_and_scrub())


def write(cluster: Cluster, topic: str) -> None:
    """Write the values one by one: each is in a segment of its own."""
    for value in VALUES:
        cluster.produce(topic, value)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_damaged_replica_is_fetched_again(
    cluster: Cluster, role: str, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    cluster.create_topic("orders", settings={"segment.bytes": "1000"}, assignments=[[1, 2, 3]])
    write(cluster, "orders")
    cluster.wait_for_isr("orders")
    wait_until(lambda: all(cluster.stored("orders", on=number) == VALUES for number in (1, 2, 3)))
    number = 1 if role == "leader" else 2
    damage(cluster.brokers[number], "orders")
    repair = cluster.brokers[number]._running.services.replicas.repair  # type: ignore[union-attr]
    wait_until(lambda: repair.repaired == 1)
    cluster.produce("orders", b"after")
    cluster.wait_for_isr("orders")
    assert cluster.stored("orders", on=number) == [*VALUES, b"after"]
    assert [record.value for record in cluster.records("orders")] == [*VALUES, b"after"]


def test_the_only_replica_keeps_its_damaged_log(cluster: Cluster) -> None:
    cluster.create_topic("alone", settings={"segment.bytes": "1000"}, assignments=[[1]])
    write(cluster, "alone")
    damage(cluster.brokers[1], "alone")
    cluster.create_topic("other", assignments=[[1, 2]])
    cluster.produce("other", b"1")
    assert cluster.leader("alone") == 1
    repair = cluster.brokers[1]._running.services.replicas.repair  # type: ignore[union-attr]
    assert repair.repaired == 0
    assert cluster.has_log("alone", on=1)
