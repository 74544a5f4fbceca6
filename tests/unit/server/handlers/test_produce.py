"""Produce: what is appended, what is refused and how, and that nothing is acknowledged which is not durable."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pytest

from logbrook.client.connection import Connection
from logbrook.client.errors import ConnectionClosedError
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
from tests.unit.server.handlers.kit import every_version, fresh
from tests.unit.server.shell_kit import (
    FETCH_VERSION,
    KIB,
    PRODUCE_VERSION,
    HeldFiles,
    Shell,
    batch_of,
    fetch_request,
    produce_request,
    until,
)

NOBODY = bytes([7]) * 16
IDS_VERSION = 13
OK = ErrorCode.NONE


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with Shell() as shell:
        yield shell


@pytest.fixture
def client(shell: Shell) -> Iterator[Connection]:
    with closing(shell.client()) as client:
        yield client


@pytest.fixture
def topic(shell: Shell) -> str:
    return shell.create(fresh(), 3)


def produce(
    client: Connection, topic: str, batch: Any = None, *, partition: int = 0, acks: int = -1
) -> PartitionProduceResponse:
    batch = batch_of() if batch is None else batch
    request = produce_request(topic, batch, partition=partition, acks=acks)
    (answer,) = client.request(request, ProduceResponse, PRODUCE_VERSION).responses
    (told,) = answer.partition_responses
    return told


def code_of(client: Connection, topic: str, batch: Any = None, **how: Any) -> ErrorCode:
    told = produce(client, topic, batch, **how)
    if told.error_code:
        assert (told.base_offset, bool(told.error_message)) == (-1, True)
    return ErrorCode(told.error_code)


def several(topic: str, batches: Mapping[int, Any], **how: Any) -> ProduceRequest:
    data = [PartitionProduceData(index=number, records=batch) for number, batch in batches.items()]
    return ProduceRequest(timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=data)], **how)


def values_of(shell: Shell, topic: str, partition: int = 0) -> int:
    """How many records can be read."""
    return shell.call(lambda: shell.log(topic, partition).high_watermark)


# What is acknowledged


@every_version(ProduceRequest)
def test_every_version_appends_by_name_or_id(shell: Shell, client: Connection, topic: str, version: int) -> None:
    request = produce_request(topic, batch_of(), acks=1)
    request.topic_data[0].topic_id = topic_id = shell.services.topics.metadata.topic(topic).id
    for offset in range(2):
        (answer,) = client.request(request, ProduceResponse, version).responses
        assert (answer.name, answer.topic_id) == ((topic, bytes(16)) if version < IDS_VERSION else ("", topic_id))
        (told,) = answer.partition_responses
        assert (told.index, told.error_code, told.base_offset, told.log_append_time_ms) == (0, OK, offset, -1)
        if version >= 5:
            assert told.log_start_offset == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_acknowledged_is_durable_whether_one_replica_is_asked_for_or_all(acks: int) -> None:
    files = HeldFiles(MemoryFiles())
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        files.hold()
        sent = client.send(produce_request("t", batch_of(), acks=acks), ProduceResponse, PRODUCE_VERSION)
        until(lambda: files.waiting)
        (connection,) = shell.connections()
        assert [turn.is_done for turn in shell.call(lambda: list(connection._turns))] == [False]
        assert values_of(shell, "t") == 0
        files.release()
        assert client.receive(sent).responses[0].partition_responses[0].base_offset == 0


def test_what_wants_no_acknowledgement_gets_no_answer(shell: Shell, client: Connection, topic: str) -> None:
    for _ in range(3):
        client.send_unanswered(produce_request(topic, batch_of(), acks=0), PRODUCE_VERSION)
    assert client.request(ApiVersionsRequest(), ApiVersionsResponse, 3).error_code == OK
    assert values_of(shell, topic) == 3


def test_what_wants_no_acknowledgement_and_fails_costs_the_connection(
    shell: Shell, client: Connection, topic: str
) -> None:
    request = several(topic, {0: batch_of(), 7: batch_of()}, acks=0)
    client.send_unanswered(request, PRODUCE_VERSION)
    with pytest.raises(ConnectionClosedError):
        client.request(ApiVersionsRequest(), ApiVersionsResponse, 3)
    # What was good in the request is appended all the same.
    shell.until(lambda: shell.log(topic).high_watermark == 1)


@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_other_acknowledgements_are_refused(shell: Shell, client: Connection, topic: str, acks: int) -> None:
    assert code_of(client, topic, acks=acks) is ErrorCode.INVALID_REQUIRED_ACKS
    assert values_of(shell, topic) == 0


def test_one_partition_that_fails_does_not_keep_the_others(shell: Shell, client: Connection, topic: str) -> None:
    bad = batch_of()
    bad[-1] ^= 1
    batches = {0: batch_of(), 1: bad, 9: batch_of(), 2: batch_of(), -1: batch_of()}
    (answer,) = client.request(several(topic, batches, acks=-1), ProduceResponse, PRODUCE_VERSION).responses
    assert [(told.index, ErrorCode(told.error_code), told.base_offset) for told in answer.partition_responses] == [
        (0, OK, 0),
        (1, ErrorCode.CORRUPT_MESSAGE, -1),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (2, OK, 0),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert [values_of(shell, topic, number) for number in range(3)] == [1, 0, 1]


def test_the_same_partition_twice_in_a_request_is_appended_twice(shell: Shell, client: Connection, topic: str) -> None:
    data = [PartitionProduceData(index=0, records=batch_of()) for _ in range(2)]
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    (answer,) = client.request(request, ProduceResponse, PRODUCE_VERSION).responses
    assert [told.base_offset for told in answer.partition_responses] == [0, 1]


def test_a_request_of_nothing_is_answered(client: Connection) -> None:
    assert client.request(ProduceRequest(acks=-1), ProduceResponse, PRODUCE_VERSION).responses == []


def test_what_comes_back_is_what_was_sent_with_its_offset(shell: Shell, client: Connection, topic: str) -> None:
    records = [Record(key=b"k", value=b"v" * 500, headers=(("h", b"x"),), timestamp=5) for _ in range(10)]
    for codec in Codec:
        produce(client, topic, build_batch(records, codec=codec))
    response = client.request(fetch_request(topic), FetchResponse, FETCH_VERSION)
    data = response.responses[0].partitions[0].records
    epoch = shell.services.appends.leader_epoch
    expected = [
        build_batch(records, codec=codec, base_offset=10 * number, leader_epoch=epoch)
        for number, codec in enumerate(Codec)
    ]
    assert bytes(data) == b"".join(expected)  # type: ignore[arg-type]


# What is refused


def test_a_topic_that_is_not_there_is_told_in_the_way_it_was_asked_for(client: Connection) -> None:
    assert code_of(client, "nobody") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = produce_request("", batch_of())
    request.topic_data[0].topic_id = NOBODY
    (answer,) = client.request(request, ProduceResponse, IDS_VERSION).responses
    assert answer.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("name", ["__consumer_offsets", "__cluster_metadata"])
def test_the_brokers_own_topics_are_not_for_clients(client: Connection, name: str) -> None:
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
        [Record(value=b"v")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
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
def test_what_is_not_one_good_batch_is_refused_and_nothing_is_written(
    shell: Shell, client: Connection, topic: str, number: int
) -> None:
    batch, code = no_batch(topic)[number]
    assert code_of(client, topic, batch) is code
    assert (values_of(shell, topic), shell.log(topic).size) == (0, 0)


def test_no_records_at_all_are_refused(shell: Shell, client: Connection, topic: str) -> None:
    (answer,) = client.request(several(topic, {0: None}, acks=1), ProduceResponse, PRODUCE_VERSION).responses
    assert answer.partition_responses[0].error_code == ErrorCode.INVALID_RECORD


def test_a_request_with_a_transaction_is_refused(shell: Shell, client: Connection, topic: str) -> None:
    request = several(topic, {0: batch_of()}, acks=-1, transactional_id="tx")
    (answer,) = client.request(request, ProduceResponse, PRODUCE_VERSION).responses
    assert answer.partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE
    assert values_of(shell, topic) == 0


def test_a_batch_that_is_too_large_is_refused_by_the_topics_own_limit(shell: Shell, client: Connection) -> None:
    batch = batch_of(1_000)
    small = shell.create(fresh(), 1, {"max.message.bytes": str(len(batch) - 1)})
    assert code_of(client, small, batch) is ErrorCode.MESSAGE_TOO_LARGE
    shell.run(shell.services.topics.configure_topic(small, {"max.message.bytes": str(len(batch))}))
    assert code_of(client, small, batch) is OK


def test_two_replicas_are_not_to_be_had_by_those_who_want_all(shell: Shell, client: Connection) -> None:
    strict = shell.create(fresh(), 1, {"min.insync.replicas": "2"})
    assert code_of(client, strict, acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert values_of(shell, strict) == 0
    assert code_of(client, strict, acks=1) is OK


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_name_that_is_no_name_makes_no_large_answer(client: Connection, version: int) -> None:
    """It is repeated in the message of each of its partitions."""
    name = "\x01" * 30_000
    data = [PartitionProduceData(index=number, records=b"") for number in range(1_000)]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=name, partition_data=data)])
    (answer,) = client.request(request, ProduceResponse, version).responses
    messages = [told.error_message or "" for told in answer.partition_responses]
    assert sum(map(len, messages)) <= 300 * 1_000
    assert {told.error_code for told in answer.partition_responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# Producers with sequences


def sequenced(sequence: int, count: int = 1, *, producer_id: int = 77, epoch: int = 0) -> bytearray:
    records = [Record(value=b"v", timestamp=1_000)] * count
    return build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_a_duplicate_is_answered_with_the_offset_it_got_the_first_time(
    shell: Shell, client: Connection, topic: str
) -> None:
    offsets = [produce(client, topic, sequenced(number)).base_offset for number in range(6)]
    assert offsets == [0, 1, 2, 3, 4, 5]
    again = [produce(client, topic, sequenced(number)) for number in range(1, 6)]
    assert [(told.error_code, told.base_offset) for told in again] == [(OK, number) for number in range(1, 6)]
    assert values_of(shell, topic) == 6


def test_what_is_out_of_order_is_refused(shell: Shell, client: Connection, topic: str) -> None:
    produce(client, topic, sequenced(0))
    assert code_of(client, topic, sequenced(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(client, topic, sequenced(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(client, topic, sequenced(1)) is OK


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_again(client: Connection, topic: str) -> None:
    assert code_of(client, topic, sequenced(0, epoch=1)) is OK
    assert code_of(client, topic, sequenced(1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(client, topic, sequenced(1, epoch=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(client, topic, sequenced(0, epoch=2)) is OK


def test_pipelined_requests_of_a_producer_take_effect_in_their_order(
    shell: Shell, client: Connection, topic: str
) -> None:
    requests = [produce_request(topic, sequenced(number)) for number in (0, 1, 2, 1, 3, 3, 5)]
    sent = [client.send(request, ProduceResponse, PRODUCE_VERSION) for request in requests]
    told = [client.receive(one).responses[0].partition_responses[0] for one in sent]
    assert [(ErrorCode(one.error_code).name, one.base_offset) for one in told] == [
        ("NONE", 0),
        ("NONE", 1),
        ("NONE", 2),
        ("NONE", 1),
        ("NONE", 3),
        ("NONE", 3),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1),
    ]
    assert values_of(shell, topic) == 4


def test_the_broker_stamps_its_own_time_where_the_topic_says_so() -> None:
    clock = FakeClock(5_000_000)
    with Shell(clock=clock) as shell, closing(shell.client()) as client:
        shell.create("t", 1, {"message.timestamp.type": "LogAppendTime"})
        assert produce(client, "t", sequenced(0)).log_append_time_ms == 5_000_000
        clock.advance(1_000)
        assert produce(client, "t", sequenced(1)).log_append_time_ms == 5_001_000
        # A retry is told the time it got the first time.
        told = produce(client, "t", sequenced(0))
        assert (told.base_offset, told.log_append_time_ms) == (0, 5_000_000)
        assert shell.log("t").find_time(5_000_500).offset == 1  # type: ignore[union-attr]


# Disks that fail


def test_a_full_disk_refuses_keeps_serving_reads_and_takes_records_again_when_there_is_room() -> None:
    files = MemoryFiles()
    with Shell({"storage": {"wal_file_bytes": 4 * KIB}}, files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        assert code_of(client, "t") is OK
        files.capacity_bytes = files.used_bytes()
        refused = produce(client, "t", batch_of(10_000))
        assert ErrorCode(refused.error_code) is ErrorCode.KAFKA_STORAGE_ERROR
        assert "no room on the disk" in (refused.error_message or "")
        response = client.request(fetch_request("t"), FetchResponse, FETCH_VERSION)
        assert response.responses[0].partitions[0].high_watermark == 1
        files.capacity_bytes = None
        assert produce(client, "t", batch_of(10_000)).base_offset == 1


def test_a_sync_that_fails_acknowledges_nothing_any_more_and_reads_go_on() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t", 2)
        assert code_of(client, "t") is OK
        files.fail_at = files.calls + 1
        told = produce(client, "t")
        assert (ErrorCode(told.error_code), told.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        for number in range(2):
            assert code_of(client, "t", partition=number) is ErrorCode.KAFKA_STORAGE_ERROR
        response = client.request(fetch_request("t"), FetchResponse, FETCH_VERSION)
        (data,) = response.responses[0].partitions
        assert (data.error_code, data.high_watermark, len(data.records or b"")) == (OK, 1, len(batch_of()))
        assert [call.op for call in files.refused] == ["fsync"]
        client.send_unanswered(produce_request("t", batch_of(), acks=0), PRODUCE_VERSION)
        with pytest.raises(ConnectionClosedError):
            client.request(ApiVersionsRequest(), ApiVersionsResponse, 3)


def test_what_wants_no_acknowledgement_hears_of_a_failed_sync_by_being_hung_up_on() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        files.fail_at = files.calls + 1
        client.send_unanswered(produce_request("t", batch_of(), acks=0), PRODUCE_VERSION)
        with pytest.raises(ConnectionClosedError):
            client.request(ApiVersionsRequest(), ApiVersionsResponse, 3)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_whichever_call_of_the_disk_fails_nothing_is_acknowledged_that_a_restart_does_not_have(error: int) -> None:
    refusals = 0
    for fail_after in range(1, 14):
        memory = MemoryFiles()
        files = FaultyFiles(memory, error=error, only={"pwrite", "pwritev", "fsync", "fsync_dir", "create"})
        storage = {"wal_file_bytes": 4 * KIB}
        acknowledged = 0
        with Shell({"storage": storage, "log": {"segment_bytes": 1_500}}, files=files) as shell:
            shell.create("t")
            files.fail_at = files.calls + fail_after
            with closing(shell.client()) as client:
                for _ in range(12):
                    told = produce(client, "t", batch_of(600))
                    if told.error_code:
                        refusals += 1
                        assert told.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                    else:
                        assert told.base_offset == acknowledged
                        acknowledged = told.base_offset + 1
            shown = shell.log("t").high_watermark
            image = MemoryFiles(memory)
        with Shell({"storage": storage}, files=image) as again:
            assert again.log("t").high_watermark >= max(acknowledged, shown), f"call {fail_after}"
            again.call(lambda: again.log("t").validate())
    assert refusals > 0
