"""Fetch sessions (KIP-227) in a cluster: idle partitions are read again when the role of their replica changes."""

from collections.abc import Callable

import pytest

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.client.connection import Connection
from logbrook.config.network import split_address
from logbrook.core import session_partitions
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from logbrook.testing.cluster import Cluster

PARTITIONS = 3
TOPIC = "orders"
# The last version in which only leaders are read from, and one in which followers are, too.
LEADERS_ONLY, ANY_REPLICA = 10, 12
# The first leader epoch of a partition; a consumer that does not check the epoch.
FIRST_EPOCH, ANY_EPOCH = 0, -1
# The error code and the high watermark by partition.
State = dict[int, tuple[int, int]]


class Reader:
    """A consumer of one broker, at the end of all partitions, in a session."""

    def __init__(self, cluster: Cluster, number: int, version: int, leader_epoch: int) -> None:
        self._broker = cluster.brokers[number]
        self._version = version
        self._leader_epoch = leader_epoch
        self._session_id = 0
        self._epoch = 0
        self._offsets = dict.fromkeys(range(PARTITIONS), 0)
        # What the answers of the session add up to.
        self.state: State = {}

    def is_up_to_date(self) -> bool:
        """Fetch in the session. Return True if all its answers together say what a fetch of all partitions says."""
        with Connection(*split_address(self._broker.bootstrap_servers)) as connection:
            moved = self._read_on() if self._session_id else list(self._offsets)
            response = self._fetch(connection, self._session_id, self._epoch, moved)
            if response.error_code:
                # The broker was restarted.
                self._session_id, self._epoch, self.state = 0, 0, {}
                return False
            self._session_id, self._epoch = response.session_id, self._epoch + 1
            self.state |= _state(response)
            return not moved and self.state == _state(self._fetch(connection, 0, -1, list(self._offsets)))

    def _read_on(self) -> list[int]:
        """Move to the ends of the partitions. Return the numbers of those that have moved."""
        moved = []
        for number, (code, high_watermark) in self.state.items():
            if code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE):
                high_watermark = 0  # noqa: PLW2901 - the topic was created again
            elif code != ErrorCode.NONE:
                continue
            if self._offsets[number] != high_watermark:
                self._offsets[number] = high_watermark
                moved.append(number)
        return moved

    def _fetch(self, connection: Connection, session_id: int, epoch: int, named: list[int]) -> FetchResponse:
        wanted = [
            FetchPartition(
                partition=number,
                fetch_offset=self._offsets[number],
                partition_max_bytes=1 << 20,
                current_leader_epoch=self._leader_epoch,
            )
            for number in named
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic=TOPIC, partitions=wanted)] if wanted else [],
        )
        return connection.request(request, FetchResponse, self._version)


def _state(response: FetchResponse) -> State:
    return {
        partition.partition_index: (partition.error_code, partition.high_watermark)
        for topic in response.responses
        for partition in topic.partitions
    }


def test_a_session_learns_of_all_changes_of_its_partitions(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is found by reading idle partitions in turns.
    monkeypatch.setattr(session_partitions, "SWEEP_MS", 1 << 60)
    cluster.create_topic(TOPIC, PARTITIONS)
    kinds = [(LEADERS_ONLY, ANY_EPOCH), (ANY_REPLICA, ANY_EPOCH), (ANY_REPLICA, FIRST_EPOCH)]
    readers = [Reader(cluster, number, *kind) for number in cluster.brokers for kind in kinds]

    def check() -> None:
        for reader in readers:
            wait_until(reader.is_up_to_date)

    def errors() -> set[int]:
        return {code for reader in readers for code, _ in reader.state.values()}

    check()
    assert errors() == {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    for partition in range(PARTITIONS):
        cluster.produce(TOPIC, "a record", partition=partition)
    check()
    assert all((ErrorCode.NONE, 1) in reader.state.values() for reader in readers)
    assert ErrorCode.FENCED_LEADER_EPOCH not in errors()
    for number in list(cluster.brokers):
        cluster.restart(number)
        for partition in range(PARTITIONS):
            cluster.wait_for_isr(TOPIC, partition)
        check()
        assert ErrorCode.FENCED_LEADER_EPOCH in errors()
    cluster.kill(1)
    for partition in range(PARTITIONS):
        cluster.wait_for_leader(TOPIC, partition, other_than=1)
    cluster.restart(1)
    check()
    with Client(cluster.bootstrap_servers) as client:
        Admin(client).topics.delete([TOPIC])
    check()
    assert errors() == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    cluster.create_topic(TOPIC, PARTITIONS)

    def is_read_from_the_start() -> bool:
        check()
        return errors() == {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}

    wait_until(is_read_from_the_start)
