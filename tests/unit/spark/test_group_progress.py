"""Progress committed under a group: a report that cannot fail the query."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import count
from typing import Any

import pytest
from pyspark.sql.types import StructType

from logbrook import Broker
from logbrook.client import BrokerError, Client, ClientError
from logbrook.client.coordinators import Coordinators
from logbrook.client.group_member import GroupMember
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.spark.group_progress import GroupProgress
from logbrook.spark.source import LogbrookDataSource

PARTITION = TopicPartition("t", 0)
_numbers = count(1)


class Committer:
    """Records the committed offsets, or raises `error`."""

    def __init__(self) -> None:
        self.commits: list[tuple[str, Mapping[TopicPartition, int]]] = []
        self.tries = 0
        self.error: ClientError | None = None

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.commits.append((group_id, offsets))


def test_offsets_are_committed_when_they_change() -> None:
    committer, progress = Committer(), GroupProgress("g")
    for offset in (3, 3, 5):
        progress.commit(committer, {PARTITION: offset})
    progress.commit(committer, {PARTITION: 5})
    assert committer.commits == [("g", {PARTITION: 3}), ("g", {PARTITION: 5})]


def test_a_failed_commit_is_logged_once_a_minute_and_repeated_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    times_s = [0.0]
    committer, progress = Committer(), GroupProgress("g", clock=lambda: times_s[-1])
    committer.error = BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, "committing for group g")
    tries = []
    with caplog.at_level(logging.WARNING):
        for now_s in (0.0, 1.0, 9.9, 10.0, 70.0):
            times_s.append(now_s)
            progress.commit(committer, {PARTITION: 3})
            tries.append(committer.tries)
    assert tries == [1, 1, 1, 2, 3]
    expected = "progress not committed group='g' error='committing for group g: UNKNOWN_MEMBER_ID'"
    assert [record.getMessage() for record in caplog.records] == [expected] * 2
    committer.error = None
    times_s.append(80.0)
    progress.commit(committer, {PARTITION: 3})
    assert committer.commits == [("g", {PARTITION: 3})]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with three records."""
    name = f"group-progress-{next(_numbers)}"
    broker.create_topic(name)
    with Client(broker.bootstrap_servers) as client:
        client.produce(name, 0, build_batch([Record(value=b"a")] * 3))
    return name


def run_two_triggers(broker: Broker, topic: str, **groups: str) -> None:
    """Plan a batch and, as Spark does when it is over, the next one."""
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingoffsets": "earliest"}
    source = LogbrookDataSource(options | {name.replace("__", "."): group for name, group in groups.items()})
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader: Any = source.streamReader(schema)
    reader.close = reader.stop
    with closing(reader):
        end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        assert end[topic]["offsets"] == {"0": 3}
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


def committed(broker: Broker, group_id: str) -> list[int]:
    with Client(broker.bootstrap_servers) as client:
        return [offset.offset for offset in Coordinators(client).committed(group_id).values()]


def test_nothing_is_committed_under_the_group_of_the_client(broker: Broker, topic: str) -> None:
    run_two_triggers(broker, topic, group__id=f"{topic}-asked", kafka__group__id=f"{topic}-client")
    assert committed(broker, f"{topic}-asked") == [3]
    assert committed(broker, f"{topic}-client") == []


def test_a_group_with_members_does_not_fail_the_query(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(broker.bootstrap_servers) as client, GroupMember(client, topic, [topic]) as member:
        member.join()
        run_two_triggers(broker, topic, group__id=topic)
    assert "progress not committed" in caplog.text
    assert "UNKNOWN_MEMBER_ID" in caplog.text
    assert committed(broker, topic) == []
