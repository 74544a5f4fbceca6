"""DeleteRecords."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from logbrook.protocol.messages.fetch import FetchResponse
from logbrook.testing import MemoryFiles
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.group_kit import commit
from tests.unit.server.handlers.kit import EARLIEST, FETCH_VERSION, Peer, distinct_versions, fetch_request, fresh

HIGH_WATERMARK = -1


def delete(
    peer: Peer, topic: str, offset: int, version: int | None = None, partition: int = 0
) -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])])
    (answer,) = peer.ask(request, DeleteRecordsResponse, version).topics
    assert answer.name == topic
    (result,) = answer.partitions
    assert result.partition_index == partition
    return result


def topic_with_records(peer: Peer, count: int) -> str:
    name = peer.create()
    peer.produce(name, *[b"v"] * count)
    return name


@distinct_versions(DeleteRecordsRequest)
def test_records_below_the_new_log_start_offset_cannot_be_read(peer: Peer, version: int) -> None:
    name = topic_with_records(peer, 10)
    result = delete(peer, name, 4, version)
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 4)
    assert peer.offset(name, EARLIEST) == 4
    response = peer.ask(fetch_request(name, 3, wait_ms=0), FetchResponse, FETCH_VERSION)
    assert response.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@distinct_versions(DeleteRecordsRequest)
def test_offset_minus_one_deletes_all_records(peer: Peer, version: int) -> None:
    name = topic_with_records(peer, 10)
    assert delete(peer, name, HIGH_WATERMARK, version).low_watermark == 10
    assert peer.offset(name, EARLIEST) == peer.offset(name) == 10


def test_a_start_never_moves_back(peer: Peer) -> None:
    name = topic_with_records(peer, 10)
    delete(peer, name, 6)
    result = delete(peer, name, 2)
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 6)


@distinct_versions(DeleteRecordsRequest)
@pytest.mark.parametrize("offset", [11, 2**62, -2])
def test_an_offset_that_the_log_has_not_reached_is_refused(peer: Peer, version: int, offset: int) -> None:
    name = topic_with_records(peer, 10)
    result = delete(peer, name, offset, version)
    assert (result.error_code, result.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert peer.offset(name, EARLIEST) == 0


@pytest.mark.parametrize("partition", [1, -1])
def test_a_partition_that_does_not_exist_is_refused(peer: Peer, partition: int) -> None:
    name = peer.create()
    assert delete(peer, name, 0, partition=partition).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(peer, "nobody", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_whose_records_are_only_compacted_keeps_them(peer: Peer) -> None:
    name = peer.create(settings={"cleanup.policy": "compact"})
    peer.produce(name)
    assert delete(peer, name, 1).error_code == ErrorCode.POLICY_VIOLATION
    both = peer.create(settings={"cleanup.policy": "compact,delete"})
    peer.produce(both)
    assert delete(peer, both, 1).error_code == ErrorCode.NONE


def test_internal_topics_keep_their_settings(peer: Peer) -> None:
    commit(peer, fresh("group"), peer.create(), 1)
    assert delete(peer, "__consumer_offsets", 1).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_waiting_fetches_below_the_new_log_start_are_answered_out_of_range(peer: Peer, other: Peer) -> None:
    name = topic_with_records(peer, 10)
    waiting = other.send(fetch_request(name, 5, wait_ms=600_000), FetchResponse, FETCH_VERSION)
    assert delete(peer, name, HIGH_WATERMARK).error_code == ErrorCode.NONE
    (topic,) = other.receive(waiting).responses
    assert topic.partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_deleted_records_stay_deleted_after_a_restart() -> None:
    files = MemoryFiles()
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        name = topic_with_records(peer, 10)
        delete(peer, name, 4)
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        assert peer.offset(name, EARLIEST) == 4
