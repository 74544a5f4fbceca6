"""OffsetForLeaderEpoch."""

from collections.abc import Iterator

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from logbrook.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from logbrook.testing import MemoryFiles
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import Peer, distinct_versions

WRITTEN, EMPTY, CUT = "written", "empty", "cut"
# The number of starts of the broker of these tests; its leader epochs count from 0.
CURRENT = 3


@pytest.fixture(scope="module")
def restarted() -> Iterator[Peer]:
    """A broker in its fourth epoch. In epochs 0 and 2 it wrote two records each, in 1 and 3 none."""
    files = MemoryFiles()
    for epoch in range(CURRENT):
        with HandlerShell(files=files) as broker, Peer(broker) as peer:
            if epoch == 0:
                for topic in (WRITTEN, EMPTY, CUT):
                    broker.create(topic)
            if epoch != 1:
                peer.produce(WRITTEN, b"a", b"b")
            if epoch == 2:
                peer.produce(CUT, b"a", b"b")
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        partition = DeleteRecordsPartition(partition_index=0, offset=1)
        peer.ask(
            DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=CUT, partitions=[partition])]), DeleteRecordsResponse
        )
        yield peer


def end_of(
    peer: Peer, topic: str, epoch: int, *, current: int = -1, partition: int = 0, version: int | None = None
) -> EpochEndOffset:
    wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    (answer,) = peer.ask(request, OffsetForLeaderEpochResponse, version).topics
    assert answer.topic == topic
    (end,) = answer.partitions
    assert end.partition == partition
    return end


@distinct_versions(OffsetForLeaderEpochRequest)
@pytest.mark.parametrize(
    ("topic", "epoch", "expected"),
    [
        (WRITTEN, 0, (0, 2)),
        # Epoch 1 has no records, so its end offset is that of epoch 0.
        (WRITTEN, 1, (0, 2)),
        (WRITTEN, 2, (2, 4)),
        # The current epoch has not ended.
        (WRITTEN, CURRENT, (CURRENT, 4)),
        (WRITTEN, CURRENT + 1, (-1, -1)),
        (WRITTEN, -1, (-1, -1)),
        (EMPTY, 0, (0, 0)),
        (EMPTY, CURRENT, (CURRENT, 0)),
        # Before all epochs that the log still has.
        (CUT, 1, (1, 1)),
    ],
)
def test_an_epoch_ends_where_the_next_begins(
    restarted: Peer, version: int, topic: str, epoch: int, expected: tuple[int, int]
) -> None:
    end = end_of(restarted, topic, epoch, version=version)
    assert end.error_code == ErrorCode.NONE
    assert (end.leader_epoch, end.end_offset) == expected


@distinct_versions(OffsetForLeaderEpochRequest)
@pytest.mark.parametrize(
    ("current", "code"),
    [
        (CURRENT, ErrorCode.NONE),
        (CURRENT - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (CURRENT + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_another_current_leader_epoch_is_refused(restarted: Peer, version: int, current: int, code: ErrorCode) -> None:
    assert end_of(restarted, WRITTEN, 0, current=current, version=version).error_code == code


@pytest.mark.parametrize(("topic", "partition"), [("nobody", 0), (WRITTEN, 1), (WRITTEN, -1)])
def test_a_partition_that_does_not_exist_is_refused(restarted: Peer, topic: str, partition: int) -> None:
    end = end_of(restarted, topic, 0, partition=partition)
    assert (end.error_code, end.leader_epoch, end.end_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_epochs_are_counted_from_the_first_start_on() -> None:
    with HandlerShell() as broker, Peer(broker) as peer:
        broker.create(WRITTEN)
        assert end_of(peer, WRITTEN, 0, current=0).end_offset == 0
        assert end_of(peer, WRITTEN, 0, current=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
