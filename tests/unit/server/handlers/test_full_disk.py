"""Requests that create something while the disk is full: their answers agree with what exists later."""

import asyncio
from collections.abc import Iterable, Iterator

import pytest

from logbrook.config import LogConfig
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from logbrook.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.server.coordinators.marker_writer import MarkerWriter
from logbrook.storage.errors import DiskFullError
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import Peer
from tests.unit.server.handlers.transaction_kit import end, init, write

PARTITIONS = 40
COMMIT_VERSION = 8


@pytest.fixture
def shell() -> Iterator[HandlerShell]:
    with HandlerShell() as shell:
        yield shell


def fill_disk(shell: HandlerShell, monkeypatch: pytest.MonkeyPatch) -> None:
    async def create(_partitions: Iterable[TopicPartition], _config: LogConfig) -> None:
        raise DiskFullError("a file", 1)

    monkeypatch.setattr(shell.services.topics._logs, "create", create)


def test_a_topic_whose_logs_cannot_be_created_does_not_exist(
    shell: HandlerShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(shell, monkeypatch)
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
    response = shell.client().request(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    assert response.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    shell.run(shell.services.topics.make_missing_logs())
    assert "t" not in shell.services.topics.metadata.topics
    assert shell.create("t", PARTITIONS)


def test_partitions_whose_logs_are_created_later_are_reported_as_created(
    shell: HandlerShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.create("t")
    fill_disk(shell, monkeypatch)
    topic = CreatePartitionsTopic(name="t", count=PARTITIONS, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1_000)
    response = shell.client().request(request, CreatePartitionsResponse)
    assert response.results[0].error_code == ErrorCode.NONE
    monkeypatch.undo()
    shell.run(shell.services.topics.make_missing_logs())
    assert len([log for log in shell.services.topics.logs() if log.partition.topic == "t"]) == PARTITIONS


def test_refused_writes_of_groups_are_logged_at_a_bounded_rate(
    shell: HandlerShell, caplog: pytest.LogCaptureFixture
) -> None:
    shell.create("t")
    client = shell.client()
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[offset])]
    request = OffsetCommitRequest(group_id="g", topics=topics)

    def commit() -> int:
        response = client.request(request, OffsetCommitResponse, COMMIT_VERSION)
        return response.topics[0].partitions[0].error_code

    assert commit() == ErrorCode.NONE
    shell.services.appender.refusal = DiskFullError("a file", 1)
    assert {commit() for _ in range(200)} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    lines = [line for line in caplog.messages if line.startswith("coordinator append refused ")]
    assert 1 <= len(lines) < 100


def test_markers_that_cannot_be_written_are_logged_at_a_bounded_rate(
    shell: HandlerShell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a full disk, each is tried again every second."""

    def refuse(_writer: MarkerWriter, *_marker: object) -> "asyncio.Future[None]":
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.set_exception(DiskFullError("a file", 1))
        return refused

    shell.create("t", PARTITIONS)
    with Peer(shell) as peer:
        identity = init(peer)
        for partition in range(PARTITIONS):
            assert write(peer, identity, "t", partition=partition) == ErrorCode.NONE
        monkeypatch.setattr(MarkerWriter, "write", refuse)
        assert end(peer, identity).error_code == ErrorCode.NONE
    lines = [line for line in caplog.messages if line.startswith("transaction marker write failed ")]
    assert 1 <= len(lines) < PARTITIONS // 2
