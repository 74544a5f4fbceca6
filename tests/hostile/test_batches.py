"""Record batches with invalid headers: each has its error code, and accepted batches are readable by every client."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from logbrook.client import BrokerError, Client, Connection, ConnectionClosedError
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from logbrook.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_batch,
    read_header,
    renew_crc,
)
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from tests.hostile.victim import Victim
from tests.unit.protocol.hostile_bytes import mutated

RECORDS = [Record(key=b"key", value=b"value" * 10, timestamp=1_700_000_000_000) for _ in range(3)]
TOPIC = "batches"
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1

# A change of the header, and the error code for it. All checksums are valid. If the length is smaller than the bytes
# that were sent, there is more than one batch.
LIES: dict[str, tuple[dict[str, int], ErrorCode]] = {
    "shorter than its header": ({"batch_length": 10}, ErrorCode.INVALID_RECORD),
    "of negative length": ({"batch_length": -1}, ErrorCode.INVALID_RECORD),
    "of the most negative length": ({"batch_length": -(2**31)}, ErrorCode.INVALID_RECORD),
    "longer than it is": ({"batch_length": 10_000}, ErrorCode.CORRUPT_MESSAGE),
    "as long as can be": ({"batch_length": INT32_MAX}, ErrorCode.CORRUPT_MESSAGE),
    "message format 0": ({"magic": 0}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "message format 1": ({"magic": 1}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "message format 3": ({"magic": 3}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "message format -1": ({"magic": -1}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "a control batch": ({"attributes": CONTROL_BIT}, ErrorCode.INVALID_RECORD),
    "a delete horizon": ({"attributes": DELETE_HORIZON_BIT}, ErrorCode.INVALID_RECORD),
    "log append times": ({"attributes": TIMESTAMP_TYPE_BIT}, ErrorCode.INVALID_RECORD),
    "unknown compression": ({"attributes": 5}, ErrorCode.INVALID_RECORD),
    "unknown attributes": ({"attributes": 0x100}, ErrorCode.INVALID_RECORD),
    "negative attributes": ({"attributes": -1}, ErrorCode.INVALID_TXN_STATE),
    "a transaction": ({"attributes": TRANSACTIONAL_BIT}, ErrorCode.INVALID_TXN_STATE),
    "a transaction's marker": ({"attributes": TRANSACTIONAL_BIT | CONTROL_BIT}, ErrorCode.INVALID_TXN_STATE),
    "no records": ({"count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
    "fewer than no records": ({"count": -1, "last_offset_delta": -2}, ErrorCode.INVALID_RECORD),
    "more offsets than records": ({"last_offset_delta": 1000}, ErrorCode.INVALID_RECORD),
    "fewer offsets than records": ({"last_offset_delta": 0}, ErrorCode.INVALID_RECORD),
    "a negative offset delta": ({"last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
    "more records than bytes": ({"count": INT32_MAX, "last_offset_delta": INT32_MAX - 1}, ErrorCode.INVALID_RECORD),
    "more compressed records than bytes": (
        {"attributes": 4, "count": INT32_MAX, "last_offset_delta": INT32_MAX - 1},
        ErrorCode.INVALID_RECORD,
    ),
    "fewer records than bytes": ({"count": 1, "last_offset_delta": 0}, ErrorCode.INVALID_RECORD),
    "a producer below -1": ({"producer_id": -2}, ErrorCode.INVALID_RECORD),
    "a producer without an epoch": ({"producer_id": 5, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
    "a producer without a sequence": ({"producer_id": 5, "producer_epoch": 0}, ErrorCode.INVALID_RECORD),
}


@pytest.fixture(scope="module")
def topic(victim: Victim) -> str:
    with Client(victim.address) as client:
        client.create_topic(TOPIC)
    return TOPIC


@pytest.fixture
def client(victim: Victim, topic: str) -> Iterator[Client]:
    with Client(victim.address) as client:
        yield client


def batch_with(**fields: Any) -> bytearray:
    """Return a batch with these header fields and a valid checksum."""
    batch = build_batch(RECORDS)
    size = len(batch)
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(**fields))
    renew_crc(memoryview(batch), 0, size)
    return batch


def code_of(client: Client, batch: bytes | bytearray) -> ErrorCode:
    with pytest.raises(BrokerError) as raised:
        client.produce(TOPIC, 0, batch)
    return raised.value.code


def code_or_none(client: Client, batch: bytes | bytearray) -> ErrorCode | None:
    try:
        client.produce(TOPIC, 0, batch)
    except BrokerError as error:
        return error.code
    return None


@pytest.mark.parametrize("lie", LIES)
def test_an_inconsistent_batch_header_has_its_error_code(client: Client, lie: str) -> None:
    fields, code = LIES[lie]
    before = client.list_offset(TOPIC, 0)
    assert code_of(client, batch_with(**fields)) is code
    assert client.list_offset(TOPIC, 0) == before


def test_every_bit_that_the_checksum_covers_is_checked(client: Client) -> None:
    batch = build_batch(RECORDS[:1])
    for position in range(17, len(batch)):
        flipped = bytearray(batch)
        flipped[position] ^= 1 << position % 8
        # The transactional bit is checked first: a request without a transactional id may not have such batches.
        expected = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_TXN_STATE if position == 22 else None}
        assert code_of(client, flipped) in expected


@pytest.mark.parametrize("fields", [{"base_offset": -1}, {"base_offset": INT64_MAX}, {"leader_epoch": INT32_MAX}])
def test_header_fields_of_the_leader_are_overwritten(client: Client, fields: dict[str, int]) -> None:
    before = client.list_offset(TOPIC, 0)
    assert client.produce(TOPIC, 0, batch_with(**fields)) == before
    (batch,) = client.fetch(TOPIC, 0, Offset(before)).batches
    header = check_batch(batch, 0, len(batch))
    assert header.base_offset == before
    assert header.leader_epoch < 1000


@pytest.mark.parametrize("timestamp", [-(2**63), -2, -1, 0, INT64_MAX])
def test_any_timestamp_is_accepted_or_refused_and_lookups_continue(client: Client, timestamp: int) -> None:
    batch = batch_with(base_timestamp=timestamp, max_timestamp=timestamp)
    assert code_or_none(client, batch) in (None, ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD)
    for wanted in (0, 1, 1_700_000_000_000, INT64_MAX, -3):
        assert -1 <= client.list_offset(TOPIC, 0, wanted) <= client.list_offset(TOPIC, 0)


@pytest.mark.parametrize("size", [0, 1, 11, 12, 16, 17, 60, 61])
def test_a_truncated_batch_is_refused(client: Client, size: int) -> None:
    before = client.list_offset(TOPIC, 0)
    assert code_of(client, build_batch(RECORDS)[:size]) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert client.list_offset(TOPIC, 0) == before


def test_bytes_after_a_batch_are_refused(client: Client) -> None:
    before = client.list_offset(TOPIC, 0)
    batch = build_batch(RECORDS)
    for more in (batch, b"\x00", bytes(61), batch[:-1]):
        assert code_of(client, batch + more) is ErrorCode.INVALID_RECORD
    assert client.list_offset(TOPIC, 0) == before


def test_a_batch_above_the_largest_is_refused(client: Client) -> None:
    assert code_of(client, build_batch([Record(value=bytes(2 << 20))])) is ErrorCode.MESSAGE_TOO_LARGE


def test_sequences_that_skip_or_repeat_have_their_error_codes(client: Client) -> None:
    def sent(epoch: int, sequence: int) -> bytearray:
        return batch_with(producer_id=77, producer_epoch=epoch, base_sequence=sequence)

    first = client.produce(TOPIC, 0, sent(3, 0))
    assert client.produce(TOPIC, 0, sent(3, 0)) == first, "a repeated one has the offset that it got"
    assert code_of(client, sent(3, 100)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(client, sent(3, INT32_MAX)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(client, sent(2, 3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.produce(TOPIC, 0, sent(3, 3)) == first + 3


def test_mutated_batches_are_refused_or_can_be_read(client: Client) -> None:
    random = Random("batches")
    start = client.list_offset(TOPIC, 0)
    for _ in range(300):
        batch = bytearray(mutated(bytes(build_batch(RECORDS)), random))
        if len(batch) > 61 and random.random() < 0.7:
            # Otherwise nearly all of them would be refused because of their checksum.
            renew_crc(memoryview(batch), 0, len(batch))
        assert code_or_none(client, batch) is not ErrorCode.UNKNOWN_SERVER_ERROR
    end = client.list_offset(TOPIC, 0)
    headers: list[BatchHeader] = []
    while start < end:
        for fetched in client.fetch(TOPIC, 0, Offset(start)).batches:
            headers.append(check_batch(fetched, 0, len(fetched)))
            assert headers[-1].base_offset == start
            start = headers[-1].next_offset
    assert start == end


def test_a_bad_batch_does_not_refuse_the_good_ones_of_its_request(victim: Victim, topic: str) -> None:
    good, bad = build_batch(RECORDS), batch_with(magic=1)
    with Client(victim.address) as client:
        topic_id = client.metadata([TOPIC]).topics[0].topic_id
        partitions = [
            PartitionProduceData(index=index, records=records) for index, records in [(0, bad), (0, good), (9, good)]
        ]
        data = [TopicProduceData(name=TOPIC, topic_id=topic_id, partition_data=partitions)]
        response = client.request(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), ProduceResponse)
    answers: list[PartitionProduceResponse] = list(response.responses[0].partition_responses)
    assert [partition.error_code for partition in answers] == [
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_bad_batch_without_acks_is_answered_by_closing_the_connection(victim: Victim, topic: str) -> None:
    with Connection(victim.host, victim.port) as connection:
        data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(records=batch_with(magic=0))])]
        connection.send_unanswered(ProduceRequest(acks=0, topic_data=data), 9)
        with pytest.raises(ConnectionClosedError):
            connection.version_of(ProduceRequest)


@pytest.mark.parametrize("acks", [-2, 2, 2**15 - 1])
def test_invalid_acks_are_refused(client: Client, acks: int) -> None:
    topic_id = client.metadata([TOPIC]).topics[0].topic_id
    partition = PartitionProduceData(records=build_batch(RECORDS))
    data = [TopicProduceData(name=TOPIC, topic_id=topic_id, partition_data=[partition])]
    response = client.request(ProduceRequest(acks=acks, topic_data=data), ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS
