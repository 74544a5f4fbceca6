"""Nodes with two data directories: one fails, is replaced, or is left out."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logbrook.client import BrokerError, Client, ClientError
from logbrook.client.admin import Admin
from logbrook.config import BrokerConfig
from logbrook.model import TopicPartition
from logbrook.ports import OsFiles
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.broker import BrokerServer
from logbrook.server.cluster.background import pause
from logbrook.server.cluster.membership import Membership
from logbrook.testing.broker_faults import DiskFaults, FaultableFiles
from logbrook.testing.cluster import Cluster, ClusterBroker
from logbrook.testing.forwarding import MUTATING_CALLS

TOPICS = [f"topic-{number}" for number in range(4)]


class TwoDiskBroker(ClusterBroker):
    """A broker whose second data directory may fail alone, and may be left out."""

    second: Path
    second_faults: DiskFaults
    has_second = True

    def _new_server(self, config: BrokerConfig, files: FaultableFiles) -> BrokerServer:
        self._second_files = FaultableFiles(OsFiles(str(self.second)), self.second_faults)
        more_files = [self._second_files] if self.has_second else []
        return BrokerServer(config, files=files, more_files=more_files, cluster=self._link())

    def kill(self) -> None:
        self._second_files.kill()
        super().kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes; node 2 has two data directories."""
    with Cluster(nodes=1, lease_s=30) as cluster:
        broker = TwoDiskBroker(cluster._store, 2, "", {}, 30, 10_000, data=tmp_path / "first")
        broker.second, broker.second_faults = tmp_path / "second", DiskFaults()
        cluster.brokers[2] = broker
        broker.start()
        cluster.add()
        for topic in TOPICS:
            cluster.create_topic(topic, assignments=[[2, 1, 3]])
            cluster.produce(topic, "before")
            cluster.wait_for_isr(topic)
        yield cluster


def two_disks(cluster: Cluster) -> TwoDiskBroker:
    broker = cluster.brokers[2]
    assert isinstance(broker, TwoDiskBroker)
    return broker


def topics_on(cluster: Cluster, member: int) -> list[str]:
    directory = two_disks(cluster)._running.directory.members[member]
    return [topic for topic in TOPICS if TopicPartition(topic, 0) in directory]


def test_the_replicas_of_a_failed_directory_are_created_again_in_the_other_one(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    broker = two_disks(cluster)
    on_first, on_second = topics_on(cluster, 0), topics_on(cluster, 1)
    assert len(on_first) == len(on_second) == 2
    broker.second_faults.failing_calls = MUTATING_CALLS
    for topic in TOPICS:
        cluster.wait_for_leader(topic)
        wait_until(lambda topic=topic: is_written(cluster, topic))  # type: ignore[misc]
    wait_until(lambda: topics_on(cluster, 0) == TOPICS)
    for topic in TOPICS:
        cluster.wait_for_isr(topic)
        assert cluster.stored(topic, on=2)[0] == b"before"
    assert all(cluster.leader(topic) == 2 for topic in on_first), "the other directory is not affected"

    # The disk works again: its logs are older than those that were created meanwhile.
    broker.second_faults.failing_calls = frozenset()
    cluster.restart(2)
    for topic in TOPICS:
        cluster.wait_for_isr(topic)
        wait_until(lambda topic=topic: is_written(cluster, topic))  # type: ignore[misc]
        cluster.wait_for_isr(topic)
        values = [record.value for record in cluster.records(topic)]
        assert values[0] == b"before"
        assert values[-1] == b"after"
        assert cluster.stored(topic, on=2) == values
    assert topics_on(cluster, 1) == []


def test_a_topic_that_is_created_again_while_a_directory_is_failed_gets_a_log_in_the_other_one(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    for number in range(2):
        cluster.create_topic(f"alone-{number}", assignments=[[2]])
    second = two_disks(cluster)._running.directory.members[1]
    (topic,) = (f"alone-{number}" for number in range(2) if TopicPartition(f"alone-{number}", 0) in second)
    two_disks(cluster).second_faults.failing_calls = MUTATING_CALLS
    with Client(cluster.bootstrap_servers) as client:
        with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
            client.produce(topic, 0, build_batch([Record(value=b"refused")]))
        Admin(client).topics.delete([topic])
    cluster.create_topic(topic, assignments=[[2, 1]])
    wait_until(lambda: is_written(cluster, topic))
    assert cluster.stored(topic, on=2) == [b"after"]
    assert TopicPartition(topic, 0) not in second


def is_written(cluster: Cluster, topic: str) -> bool:
    """Write a record; False if the partition's leader is being replaced."""
    try:
        cluster.produce(topic, "after")
    except ClientError:
        return False
    return True


@pytest.mark.parametrize("how", ["replaced", "left out"])
def test_a_node_without_one_of_its_directories_leaves_the_isr_of_the_replicas_that_were_there(
    cluster: Cluster, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = two_disks(cluster)
    on_second = topics_on(cluster, 1)
    broker.kill()
    cluster.expire_lease(2)
    if how == "replaced":
        shutil.rmtree(broker.second)
    else:
        broker.has_second = False
    for topic in TOPICS:
        cluster.wait_for_leader(topic, other_than=2)
        cluster.produce(topic, "meanwhile")
    broker.restart()
    for topic in TOPICS:
        cluster.wait_for_isr(topic)
        assert cluster.stored(topic, on=2) == [b"before", b"meanwhile"]
    assert "data directory lacks records" in caplog.text
    assert on_second


def test_a_node_without_one_of_its_directories_creates_no_logs_before_it_has_left_the_isr(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power loss of all nodes it would lead with a new log, and acknowledged records would be lost."""
    try_register = Membership._try_register

    async def register_later(membership: Membership) -> bool:
        await pause(0.1)
        return await try_register(membership)

    monkeypatch.setattr(Membership, "_try_register", register_later)
    broker = two_disks(cluster)
    on_second = topics_on(cluster, 1)
    for number in (1, 3, 2):
        cluster.kill(number)
    shutil.rmtree(broker.second)
    broker.restart()
    assert not any(2 in cluster.isr(topic) for topic in on_second)
    cluster.restart(1)
    cluster.restart(3)
    for topic in TOPICS:
        cluster.wait_for_isr(topic)
        assert [record.value for record in cluster.records(topic)] == [b"before"]
    assert on_second
