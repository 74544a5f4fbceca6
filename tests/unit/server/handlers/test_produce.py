"""Produce: appends, refusals with their error codes, and that only durable appends are acknowledged."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pytest

from logbrook.client.errors import ConnectionClosedError
from logbrook.model.identifiers import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.fetch import FetchResponse
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from logbrook.records.batch import Codec
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing import FaultyFiles, MemoryFiles
from logbrook.testing.clock import FakeClock
from tests.unit.server.handler_kit import HandlerClient, HandlerShell
from tests.unit.server.handlers.kit import distinct_versions, fresh
from tests.unit.server.shell_kit import (
    FETCH_VERSION,
    KIB,
    PRODUCE_VERSION,
    HeldFiles,
    batch_of,
    fetch_request,
    produce_request,
    until,
)

NOBODY = bytes([7]) * 16
IDS_VERSION = 13
OK = ErrorCode.NONE


@pytest.fixture(scope="module")
def shell() -> Iterator[HandlerShell]:
    with HandlerShell() as shell:
        yield shell


@pytest.fixture
def client(shell: HandlerShell) -> Iterator[HandlerClient]:
    with closing(shell.client()) as client:
        yield client


@pytest.fixture
def topic(shell: HandlerShell) -> str:
    return shell.create(fresh(), 3)


def produce(
    client: HandlerClient, topic: str, batch: Any = None, *, partition: int = 0, acks: int = -1
) -> PartitionProduceResponse:
    batch = batch_of() if batch is None else batch
    request = produce_request(topic, batch, partition=partition, acks=acks)
    (answer,) = client.request(request, ProduceResponse, PRODUCE_VERSION).responses
    (result,) = answer.partition_responses
    return result


def code_of(client: HandlerClient, topic: str, batch: Any = None, **how: Any) -> ErrorCode:
    result = produce(client, topic, batch, **how)
    if result.error_code:
        assert (result.base_offset, bool(result.error_message)) == (-1, True)
    return ErrorCode(result.error_code)


def several(topic: str, batches: Mapping[int, Any], **how: Any) -> ProduceRequest:
    data = [PartitionProduceData(index=number, records=batch) for number, batch in batches.items()]
    return ProduceRequest(timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=data)], **how)


def values_of(shell: HandlerShell, topic: str, partition: int = 0) -> int:
    """Return the number of readable records."""
    return shell.call(lambda: shell.log(topic, partition).high_watermark)


# Acknowledgements


@distinct_versions(ProduceRequest)
def test_every_version_appends_by_name_or_id(
    shell: HandlerShell, client: HandlerClient, topic: str, version: int
) -> None:
    request = produce_request(topic, batch_of(), acks=1)
    request.topic_data[0].topic_id = topic_id = shell.services.topics.metadata.topic(topic).id
    for offset in range(2):
        (answer,) = client.request(request, ProduceResponse, version).responses
        assert (answer.name, answer.topic_id) == ((topic, bytes(16)) if version < IDS_VERSION else ("", topic_id))
        (result,) = answer.partition_responses
        assert (result.index, result.error_code, result.base_offset, result.log_append_time_ms) == (0, OK, offset, -1)
        if version >= 5:
            assert result.log_start_offset == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_records_are_durable_before_acks_1_and_acks_all_are_answered(acks: int) -> None:
    files = HeldFiles(MemoryFiles())
    with HandlerShell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        files.hold()
        sent = client.send(produce_request("t", batch_of(), acks=acks), ProduceResponse, PRODUCE_VERSION)
        until(lambda: files.waiting)
        assert client.unanswered == 1
        assert values_of(shell, "t") == 0
        files.release()
        assert client.receive(sent).responses[0].partition_responses[0].base_offset == 0


def test_acks_0_is_not_answered(shell: HandlerShell, client: HandlerClient, topic: str) -> None:
    for _ in range(3):
        client.send_unanswered(produce_request(topic, batch_of(), acks=0), PRODUCE_VERSION)
    assert client.request(ApiVersionsRequest(), ApiVersionsResponse, 3).error_code == OK
    assert values_of(shell, topic) == 3


def test_an_error_with_acks_0_closes_the_connection(shell: HandlerShell, client: HandlerClient, topic: str) -> None:
    request = several(topic, {0: batch_of(), 7: batch_of()}, acks=0)
    client.send_unanswered(request, PRODUCE_VERSION)
    with pytest.raises(ConnectionClosedError):
        client.request(ApiVersionsRequest(), ApiVersionsResponse, 3)
    # Valid batches of the request are appended all the same.
    shell.until(lambda: shell.log(topic).high_watermark == 1)


@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_other_acknowledgements_are_refused(shell: HandlerShell, client: HandlerClient, topic: str, acks: int) -> None:
    assert code_of(client, topic, acks=acks) is ErrorCode.INVALID_REQUIRED_ACKS
    assert values_of(shell, topic) == 0


def test_one_partition_that_fails_does_not_keep_the_others(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    bad = batch_of()
    bad[-1] ^= 1
    batches = {0: batch_of(), 1: bad, 9: batch_of(), 2: batch_of(), -1: batch_of()}
    (answer,) = client.request(several(topic, batches, acks=-1), ProduceResponse, PRODUCE_VERSION).responses
    assert [
        (result.index, ErrorCode(result.error_code), result.base_offset) for result in answer.partition_responses
    ] == [
        (0, OK, 0),
        (1, ErrorCode.CORRUPT_MESSAGE, -1),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (2, OK, 0),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert [values_of(shell, topic, number) for number in range(3)] == [1, 0, 1]


def test_the_same_partition_twice_in_a_request_is_appended_twice(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    data = [PartitionProduceData(index=0, records=batch_of()) for _ in range(2)]
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    (answer,) = client.request(request, ProduceResponse, PRODUCE_VERSION).responses
    assert [result.base_offset for result in answer.partition_responses] == [0, 1]


def test_an_empty_request_is_answered(client: HandlerClient) -> None:
    assert client.request(ProduceRequest(acks=-1), ProduceResponse, PRODUCE_VERSION).responses == []


def test_a_batch_is_read_back_with_its_offset(shell: HandlerShell, client: HandlerClient, topic: str) -> None:
    records = [Record(key=b"k", value=b"v" * 500, headers=(("h", b"x"),), timestamp=5) for _ in range(10)]
    for codec in Codec:
        produce(client, topic, build_batch(records, codec=codec))
    response = client.request(fetch_request(topic), FetchResponse, FETCH_VERSION)
    data = response.responses[0].partitions[0].records
    epoch = shell.services.appender.leader_epoch
    expected = [
        build_batch(records, codec=codec, base_offset=Offset(10 * number), leader_epoch=LeaderEpoch(epoch))
        for number, codec in enumerate(Codec)
    ]
    assert bytes(data) == b"".join(expected)  # type: ignore[arg-type]


# Refusals


def test_an_unknown_topic_is_reported_by_name_or_id_as_requested(client: HandlerClient) -> None:
    assert code_of(client, "nobody") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = produce_request("", batch_of())
    request.topic_data[0].topic_id = NOBODY
    (answer,) = client.request(request, ProduceResponse, IDS_VERSION).responses
    assert answer.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("name", ["__consumer_offsets", "__cluster_metadata"])
def test_the_brokers_own_topics_are_not_for_clients(client: HandlerClient, name: str) -> None:
    assert code_of(client, name) is ErrorCode.INVALID_TOPIC_EXCEPTION


def no_batch(topic: str) -> Sequence[tuple[Any, ErrorCode]]:
    flipped = batch_of()
    flipped[-1] ^= 1
    old = batch_of()
    old[16] = 1
    short = batch_of()
    two = batch_of() + batch_of()
    control = build_batch([Record(key=b"\0\0\0\0", value=b"")], control=True)
    transactional = build_batch(
        [Record(value=b"v")],
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        transactional=True,
    )
    return [
        (b"", ErrorCode.INVALID_RECORD),
        (b"\0" * 60, ErrorCode.INVALID_RECORD),
        (flipped, ErrorCode.CORRUPT_MESSAGE),
        (short[:-1], ErrorCode.CORRUPT_MESSAGE),
        (old, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (two, ErrorCode.INVALID_RECORD),
        (control, ErrorCode.INVALID_RECORD),
        (transactional, ErrorCode.INVALID_TXN_STATE),
    ]


@pytest.mark.parametrize("number", range(8))
def test_data_other_than_one_valid_batch_is_refused_and_not_written(
    shell: HandlerShell, client: HandlerClient, topic: str, number: int
) -> None:
    batch, code = no_batch(topic)[number]
    assert code_of(client, topic, batch) is code
    assert (values_of(shell, topic), shell.log(topic).size) == (0, 0)


def test_no_records_at_all_are_refused(shell: HandlerShell, client: HandlerClient, topic: str) -> None:
    (answer,) = client.request(several(topic, {0: None}, acks=1), ProduceResponse, PRODUCE_VERSION).responses
    assert answer.partition_responses[0].error_code == ErrorCode.INVALID_RECORD


def test_a_request_with_a_transaction_is_refused(shell: HandlerShell, client: HandlerClient, topic: str) -> None:
    request = several(topic, {0: batch_of()}, acks=-1, transactional_id="tx")
    (answer,) = client.request(request, ProduceResponse, PRODUCE_VERSION).responses
    assert answer.partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE
    assert values_of(shell, topic) == 0


def test_a_batch_that_is_too_large_is_refused_by_the_topics_own_limit(
    shell: HandlerShell, client: HandlerClient
) -> None:
    batch = batch_of(1_000)
    small = shell.create(fresh(), 1, {"max.message.bytes": str(len(batch) - 1)})
    assert code_of(client, small, batch) is ErrorCode.MESSAGE_TOO_LARGE
    shell.run(shell.services.topics.change_topic(small, lambda _: {"max.message.bytes": str(len(batch))}))
    assert code_of(client, small, batch) is OK


def test_acks_all_is_refused_if_min_insync_replicas_is_two(shell: HandlerShell, client: HandlerClient) -> None:
    strict = shell.create(fresh(), 1, {"min.insync.replicas": "2"})
    assert code_of(client, strict, acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert values_of(shell, strict) == 0
    assert code_of(client, strict, acks=1) is OK


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_an_invalid_name_makes_no_large_response(client: HandlerClient, version: int) -> None:
    """The name is repeated in the error message of each of its partitions."""
    name = "\x01" * 30_000
    data = [PartitionProduceData(index=number, records=b"") for number in range(1_000)]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=name, partition_data=data)])
    (answer,) = client.request(request, ProduceResponse, version).responses
    messages = [result.error_message or "" for result in answer.partition_responses]
    assert sum(map(len, messages)) <= 300 * 1_000
    assert {result.error_code for result in answer.partition_responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# Idempotent producers


def sequenced(sequence: int, count: int = 1, *, producer_id: int = 77, epoch: int = 0) -> bytearray:
    records = [Record(value=b"v", timestamp=1_000)] * count
    return build_batch(
        records, producer_id=ProducerId(producer_id), producer_epoch=ProducerEpoch(epoch), base_sequence=sequence
    )


def test_a_duplicate_is_answered_with_the_offset_it_got_the_first_time(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    offsets = [produce(client, topic, sequenced(number)).base_offset for number in range(6)]
    assert offsets == [0, 1, 2, 3, 4, 5]
    again = [produce(client, topic, sequenced(number)) for number in range(1, 6)]
    assert [(result.error_code, result.base_offset) for result in again] == [(OK, number) for number in range(1, 6)]
    assert values_of(shell, topic) == 6


def test_a_sequence_out_of_order_is_refused(shell: HandlerShell, client: HandlerClient, topic: str) -> None:
    produce(client, topic, sequenced(0))
    assert code_of(client, topic, sequenced(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(client, topic, sequenced(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(client, topic, sequenced(1)) is OK


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_again(client: HandlerClient, topic: str) -> None:
    assert code_of(client, topic, sequenced(0, epoch=1)) is OK
    assert code_of(client, topic, sequenced(1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(client, topic, sequenced(1, epoch=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(client, topic, sequenced(0, epoch=2)) is OK


def test_pipelined_requests_of_a_producer_take_effect_in_their_order(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    requests = [produce_request(topic, sequenced(number)) for number in (0, 1, 2, 1, 3, 3, 5)]
    sent = [client.send(request, ProduceResponse, PRODUCE_VERSION) for request in requests]
    result = [client.receive(ticket).responses[0].partition_responses[0] for ticket in sent]
    assert [(ErrorCode(partition.error_code).name, partition.base_offset) for partition in result] == [
        ("NONE", 0),
        ("NONE", 1),
        ("NONE", 2),
        ("NONE", 1),
        ("NONE", 3),
        ("NONE", 3),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1),
    ]
    assert values_of(shell, topic) == 4


def test_batches_are_stamped_with_the_append_time_if_the_topic_requires_it() -> None:
    clock = FakeClock(5_000_000)
    with HandlerShell(clock=clock) as shell, closing(shell.client()) as client:
        shell.create("t", 1, {"message.timestamp.type": "LogAppendTime"})
        assert produce(client, "t", sequenced(0)).log_append_time_ms == 5_000_000
        clock.advance(1_000)
        assert produce(client, "t", sequenced(1)).log_append_time_ms == 5_001_000
        # A retry gets the timestamp of the first attempt.
        result = produce(client, "t", sequenced(0))
        assert (result.base_offset, result.log_append_time_ms) == (0, 5_000_000)
        assert shell.log("t").find_time(5_000_500).offset == 1  # type: ignore[union-attr]


# Disk failures


def test_a_full_disk_refuses_writes_serves_reads_and_accepts_writes_after_space_is_freed() -> None:
    files = MemoryFiles()
    with (
        HandlerShell({"storage": {"wal_file_bytes": 4 * KIB}}, files=files) as shell,
        closing(shell.client()) as client,
    ):
        shell.create("t")
        assert code_of(client, "t") is OK
        files.capacity_bytes = files.used_bytes()
        refused = produce(client, "t", batch_of(10_000))
        assert ErrorCode(refused.error_code) is ErrorCode.KAFKA_STORAGE_ERROR
        assert "the disk is full" in (refused.error_message or "")
        response = client.request(fetch_request("t"), FetchResponse, FETCH_VERSION)
        assert response.responses[0].partitions[0].high_watermark == 1
        files.capacity_bytes = None
        assert produce(client, "t", batch_of(10_000)).base_offset == 1


def test_a_sync_that_fails_acknowledges_nothing_any_more_and_reads_continue() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with HandlerShell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t", 2)
        assert code_of(client, "t") is OK
        files.fail_at = files.calls + 1
        result = produce(client, "t")
        assert (ErrorCode(result.error_code), result.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        for number in range(2):
            assert code_of(client, "t", partition=number) is ErrorCode.KAFKA_STORAGE_ERROR
        response = client.request(fetch_request("t"), FetchResponse, FETCH_VERSION)
        (data,) = response.responses[0].partitions
        assert (data.error_code, data.high_watermark, len(data.records or b"")) == (OK, 1, len(batch_of()))
        assert [call.op for call in files.refused] == ["fsync"]
        client.send_unanswered(produce_request("t", batch_of(), acks=0), PRODUCE_VERSION)
        with pytest.raises(ConnectionClosedError):
            client.request(ApiVersionsRequest(), ApiVersionsResponse, 3)


def test_a_failed_sync_with_acks_0_closes_the_connection() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with HandlerShell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        files.fail_at = files.calls + 1
        client.send_unanswered(produce_request("t", batch_of(), acks=0), PRODUCE_VERSION)
        with pytest.raises(ConnectionClosedError):
            client.request(ApiVersionsRequest(), ApiVersionsResponse, 3)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_restart_has_every_acknowledged_record_if_any_call_of_the_disk_fails(error: int) -> None:
    refusals = 0
    for fail_after in range(1, 14):
        memory = MemoryFiles()
        files = FaultyFiles(memory, error=error, only={"pwrite", "pwritev", "fsync", "fsync_dir", "create"})
        storage = {"wal_file_bytes": 4 * KIB}
        acknowledged = 0
        with HandlerShell({"storage": storage, "log": {"segment_bytes": 1_500}}, files=files) as shell:
            shell.create("t")
            files.fail_at = files.calls + fail_after
            with closing(shell.client()) as client:
                for _ in range(12):
                    result = produce(client, "t", batch_of(600))
                    if result.error_code:
                        refusals += 1
                        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                    else:
                        assert result.base_offset == acknowledged
                        acknowledged = result.base_offset + 1
            shown = shell.log("t").high_watermark
            image = MemoryFiles(memory)
        with HandlerShell({"storage": storage}, files=image) as again:
            assert again.log("t").high_watermark >= max(acknowledged, shown), f"call {fail_after}"
            again.call(lambda: again.log("t").validate())
    assert refusals > 0
