"""Produce to topics that require inspection of records: inspected in order, off the event loop, before the append."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from logbrook.client.errors import ConnectionClosedError
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from logbrook.records.batch import Codec, read_header
from logbrook.records.builder import build_batch, seal
from logbrook.records.inspection import inspect_batches
from logbrook.records.record import Record
from logbrook.server import record_inspection
from tests.unit.server.handler_kit import DispatchedRequest, HandlerClient, HandlerShell
from tests.unit.server.handlers.kit import Peer, fresh
from tests.unit.server.handlers.transaction_kit import (
    FIRST_PROTOCOL_END_VERSION,
    FIRST_PROTOCOL_PRODUCE_VERSION,
    add_partitions,
    end,
    init,
    stable_end,
)
from tests.unit.server.shell_kit import DEADLINE_S, PRODUCE_VERSION, produce_request

OK = ErrorCode.NONE
COMPACTED = {"cleanup.policy": "compact"}


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
    return shell.create(fresh(), settings=COMPACTED)


class SlowInspection:
    """Holds the inspection thread until `release`."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def release(self) -> None:
        self.released.set()

    def __call__(self, data: memoryview, rules: Any) -> memoryview:
        assert threading.current_thread() is not threading.main_thread(), "the event loop would be blocked"
        assert self.released.wait(DEADLINE_S)
        return inspect_batches(data, rules)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowInspection]:
    slow = SlowInspection()
    monkeypatch.setattr(record_inspection, "inspect_batches", slow)
    yield slow
    slow.release()


def keyed(*keys: bytes | None, codec: Codec = Codec.NONE, **how: Any) -> bytearray:
    return build_batch([Record(key=key, value=b"v", timestamp=1_000) for key in keys], codec=codec, **how)


def sequenced(sequence: int, codec: Codec) -> bytearray:
    return keyed(b"k", codec=codec, producer_id=ProducerId(77), producer_epoch=ProducerEpoch(0), base_sequence=sequence)


def send(client: HandlerClient, topic: str, batch: bytearray, **how: Any) -> DispatchedRequest[ProduceResponse]:
    return client.send(produce_request(topic, batch, **how), ProduceResponse, PRODUCE_VERSION)


def received(client: HandlerClient, sent: DispatchedRequest[ProduceResponse]) -> PartitionProduceResponse:
    (answer,) = client.receive(sent).responses
    (result,) = answer.partition_responses
    return result


def produce(client: HandlerClient, topic: str, batch: bytearray) -> PartitionProduceResponse:
    return received(client, send(client, topic, batch))


# A small batch is inspected at once, a compressed one in the thread.
BOTH_WAYS = pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])


@BOTH_WAYS
def test_a_record_without_a_key_is_refused_by_a_compacted_topic_with_its_place_in_the_batch(
    shell: HandlerShell, client: HandlerClient, topic: str, codec: Codec
) -> None:
    result = produce(client, topic, keyed(b"a", None, b"b", None, codec=codec))
    assert (result.error_code, result.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert "One or more records have been rejected" in (result.error_message or "")
    assert [fault.batch_index for fault in result.record_errors] == [1, 3]
    assert all("without key" in (fault.batch_index_error_message or "") for fault in result.record_errors)
    assert shell.log(topic).log_end_offset == 0


@BOTH_WAYS
def test_records_with_keys_are_appended(shell: HandlerShell, client: HandlerClient, topic: str, codec: Codec) -> None:
    for offset in (0, 2):
        result = produce(client, topic, keyed(b"a", b"b", codec=codec))
        assert (result.error_code, result.base_offset, result.record_errors) == (OK, offset, [])
    assert shell.services.inspector.queued_bytes == 0


def test_a_policy_with_deletion_requires_keys_too_and_one_without_compaction_does_not(
    shell: HandlerShell, client: HandlerClient
) -> None:
    for policy, code in (("compact,delete", ErrorCode.INVALID_RECORD), ("delete", OK)):
        topic = shell.create(fresh(), settings={"cleanup.policy": policy})
        assert produce(client, topic, keyed(None)).error_code == code


def test_a_small_batch_waits_behind_a_large_one_of_its_partition(
    client: HandlerClient, topic: str, slow: SlowInspection
) -> None:
    sent = [send(client, topic, sequenced(number, codec)) for number, codec in enumerate([Codec.GZIP, Codec.NONE] * 3)]
    assert client.unanswered == 6
    slow.release()
    answers = [received(client, request) for request in sent]
    assert [(result.error_code, result.base_offset) for result in answers] == [(OK, offset) for offset in range(6)]


def test_a_batch_is_not_appended_to_the_successor_of_its_deleted_topic(
    shell: HandlerShell, client: HandlerClient, topic: str, slow: SlowInspection
) -> None:
    sent = send(client, topic, keyed(b"k", codec=Codec.GZIP))
    shell.run(shell.services.topics.delete(topic))
    shell.create(topic, settings=COMPACTED)
    slow.release()
    assert received(client, sent).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert shell.log(topic).log_end_offset == 0


def test_a_batch_is_not_appended_after_its_transaction_has_ended(
    shell: HandlerShell, topic: str, slow: SlowInspection
) -> None:
    with Peer(shell) as peer, Peer(shell) as other:
        producer = init(peer)
        add_partitions(peer, producer, {topic: [0]})
        batch = keyed(
            b"k",
            codec=Codec.GZIP,
            producer_id=ProducerId(producer.producer_id),
            producer_epoch=ProducerEpoch(producer.epoch),
            base_sequence=0,
            transactional=True,
        )
        request = produce_request(topic, batch)
        request.transactional_id = producer.transactional_id
        sent = peer.client.send(request, ProduceResponse, FIRST_PROTOCOL_PRODUCE_VERSION)
        assert end(other, producer, FIRST_PROTOCOL_END_VERSION, is_commit=False).error_code == OK
        slow.release()
        assert received(peer.client, sent).error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert stable_end(other, topic) == shell.log(topic).log_end_offset == 1


@pytest.mark.parametrize("setting", ["message.timestamp.before.max.ms", "message.timestamp.after.max.ms"])
def test_timestamps_outside_the_topics_limits_are_refused(
    shell: HandlerShell, client: HandlerClient, setting: str
) -> None:
    now_ms = shell.services.clock.now_ms()
    sign = -1 if "before" in setting else 1
    batch = build_batch([Record(timestamp=now_ms), Record(timestamp=now_ms + sign * 7_200_000)])
    limited = shell.create(fresh(), settings={setting: "3600000"})
    result = produce(client, limited, batch)
    assert (result.error_code, [fault.batch_index for fault in result.record_errors]) == (
        ErrorCode.INVALID_TIMESTAMP,
        [1],
    )
    # With log append time no timestamp is refused.
    stamped = shell.create(fresh(), settings={setting: "3600000", "message.timestamp.type": "LogAppendTime"})
    for topic in (stamped, shell.create(fresh())):
        assert produce(client, topic, batch).error_code == OK


@pytest.mark.parametrize("codec", Codec)
def test_a_topics_codec_is_applied(shell: HandlerShell, client: HandlerClient, codec: Codec) -> None:
    name = "uncompressed" if codec is Codec.NONE else codec.name.lower()
    topic = shell.create(fresh(), settings={"compression.type": name})
    for sent in Codec:
        assert produce(client, topic, keyed(b"a", b"b", codec=sent)).error_code == OK
    log = shell.log(topic)
    headers = [batch.header for batch in log.active.batches()]
    assert [header.codec for header in headers] == [codec] * len(Codec)
    assert [header.base_offset for header in headers] == [0, 2, 4, 6, 8]
    log.validate()


def test_the_size_limit_applies_to_the_batch_as_it_arrives_and_as_it_is_stored(
    shell: HandlerShell, client: HandlerClient
) -> None:
    for codec, stored in ((Codec.ZSTD, "uncompressed"), (Codec.NONE, "zstd")):
        topic = shell.create(fresh(), settings={"compression.type": stored, "max.message.bytes": "1000"})
        batch = build_batch([Record(value=bytes(2_000))], codec=codec)
        assert produce(client, topic, batch).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert produce(client, topic, build_batch([Record(value=bytes(200))], codec=codec)).error_code == OK


def test_full_validation_refuses_records_that_no_consumer_could_read(
    shell: HandlerShell, client: HandlerClient
) -> None:
    batch = keyed(b"k")
    # The length of the value.
    batch[-3] = 0x70
    seal(read_header(batch), batch)
    for validate, code in (("full", ErrorCode.INVALID_RECORD), ("header", OK)):
        assert produce(client, shell.create(fresh(), settings={"validate": validate}), batch).error_code == code


def test_no_acknowledgement_and_a_refused_record_cost_the_connection(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    client.send_unanswered(produce_request(topic, keyed(None, codec=Codec.GZIP), acks=0), PRODUCE_VERSION)
    with pytest.raises(ConnectionClosedError):
        client.request(ApiVersionsRequest(), ApiVersionsResponse, 3)
    assert shell.log(topic).log_end_offset == 0


def test_batches_of_closed_connections_are_appended_unless_too_many_are_waiting(
    shell: HandlerShell, topic: str, slow: SlowInspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bytes_max in (1 << 20, 1):
        monkeypatch.setattr(record_inspection, "_ABANDONED_BYTES_MAX", bytes_max)
        with closing(shell.client()) as client:
            send(client, topic, keyed(b"k", codec=Codec.GZIP), acks=0)
    slow.release()
    shell.until(lambda: shell.services.inspector.queued_bytes == 0)
    # The thread was already inspecting the first batch; the second was dropped.
    shell.until(lambda: shell.log(topic).high_watermark == 1)


def test_a_broker_stops_while_batches_wait_for_their_inspection(slow: SlowInspection) -> None:
    with HandlerShell() as shell:
        topic = shell.create(fresh(), settings=COMPACTED)
        client = shell.client()
        for _ in range(3):
            send(client, topic, keyed(b"k", codec=Codec.GZIP))
        threading.Timer(0.05, slow.release).start()
    assert client.unanswered == 3


def test_a_fault_of_the_inspection_itself_is_answered(
    client: HandlerClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Sequence[Any]) -> memoryview:
        raise ZeroDivisionError

    monkeypatch.setattr(record_inspection, "inspect_batches", fail)
    assert produce(client, topic, keyed(b"k")).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
