"""Record formats of transactions: the expected bytes are assembled by hand from Kafka's message definitions."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbrook.core.coordinator import CorruptCoordinatorRecordError
from logbrook.core.transactions.records import decode_key, decode_value, encode_key, encode_value
from logbrook.core.transactions.transaction import Transaction, TransactionState
from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from tests.unit.core.transactions.kit import STATES

FULL = Transaction(
    "x",
    producer_id=ProducerId(7),
    producer_epoch=ProducerEpoch(32_767),
    timeout_ms=60_000,
    state=TransactionState.PREPARE_COMMIT,
    last_update_ms=1_234,
    partitions=frozenset({TopicPartition("u", 3), TopicPartition("t", 1), TopicPartition("t", 0)}),
    start_ms=1_000,
    last_producer_epoch=ProducerEpoch(32_766),
    previous_producer_id=ProducerId(6),
    next_producer_id=ProducerId(8),
    next_producer_epoch=ProducerEpoch(9),
    client_version=2,
)
FULL_V1 = (
    struct.pack(">hqhib", 1, 7, 32_767, 60_000, 2)
    + bytes([3])
    + (b"\x02t" + bytes([3]) + struct.pack(">ii", 0, 1) + b"\x00")
    + (b"\x02u" + bytes([2]) + struct.pack(">i", 3) + b"\x00")
    + struct.pack(">qq", 1_234, 1_000)
    + bytes([5])
    + (bytes([0, 8]) + struct.pack(">q", 6))
    + (bytes([1, 8]) + struct.pack(">q", 8))
    + (bytes([2, 2]) + struct.pack(">h", 2))
    + (bytes([3, 2]) + struct.pack(">h", 9))
    # The field of Logbrook's own with tag 1000, which is 0x68 and 7 * 128.
    + (bytes([0xE8, 0x07, 2]) + struct.pack(">h", 32_766))
)
EMPTY = Transaction("x", ProducerId(7), ProducerEpoch(0), 60_000, TransactionState.EMPTY, last_update_ms=1_234)
EMPTY_V1 = struct.pack(">hqhib", 1, 7, 0, 60_000, 0) + b"\x00" + struct.pack(">qq", 1_234, -1) + b"\x00"


def test_a_key_is_transaction_log_key_v0() -> None:
    assert encode_key("xyz") == b"\x00\x00\x00\x03xyz"
    assert decode_key(b"\x00\x00\x00\x03xyz") == "xyz"


def test_a_value_is_transaction_log_value_v1() -> None:
    assert encode_value(FULL) == FULL_V1
    assert decode_value("x", FULL_V1) == FULL


def test_an_empty_transaction_has_null_for_partitions_and_no_tags() -> None:
    assert encode_value(EMPTY) == EMPTY_V1
    assert decode_value("x", EMPTY_V1) == EMPTY


def test_a_completed_transaction_has_no_partitions_but_not_null() -> None:
    data = encode_value(STATES[TransactionState.COMPLETE_ABORT])
    assert data[2 + 8 + 2 + 4] == 5
    assert data[2 + 8 + 2 + 4 + 1] == 1


def test_values_of_version_0_are_read() -> None:
    ongoing = (
        struct.pack(">hqhibi", 0, 7, 2, 60_000, 1, 1)
        + (struct.pack(">h", 1) + b"t" + struct.pack(">iii", 2, 0, 1))
        + struct.pack(">qq", 1_234, 1_000)
    )
    partitions = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})
    expected = Transaction(
        "x", ProducerId(7), ProducerEpoch(2), 60_000, TransactionState.ONGOING, 1_234, partitions, 1_000
    )
    assert decode_value("x", ongoing) == expected
    empty = struct.pack(">hqhibiqq", 0, 7, 0, 60_000, 0, -1, 1_234, -1)
    assert decode_value("x", empty) == EMPTY


def test_tags_that_are_not_known_are_passed_over() -> None:
    assert decode_value("x", EMPTY_V1[:-1] + b"\x01\x09\x03abc") == EMPTY


@pytest.mark.parametrize(("number", "state"), list(enumerate(TransactionState)))
def test_states_have_the_numbers_of_kafka(number: int, state: TransactionState) -> None:
    """The order of the enum's members is that of Kafka's numbers."""
    assert encode_value(STATES[state])[2 + 8 + 2 + 4] == number
    assert decode_value("x", encode_value(STATES[state])) == STATES[state]


def test_unknown_record_types_are_skipped() -> None:
    assert decode_key(b"\x00\x01whatever") is None


@pytest.mark.parametrize(
    "key", [b"", b"\x00", b"\xff\xff\x00\x01x", b"\x00\x00\x00\x02x", b"\x00\x00\xff\xff", b"\x00\x00\x00\x01x!"]
)
def test_keys_that_do_not_read_are_corrupt(key: bytes) -> None:
    with pytest.raises(CorruptCoordinatorRecordError):
        decode_key(key)


CORRUPT = {
    "nothing": b"",
    "a version to come": struct.pack(">h", 2) + FULL_V1[2:],
    "a negative version": struct.pack(">h", -1) + FULL_V1[2:],
    "too short": FULL_V1[:-1],
    "too long": FULL_V1 + b"\x00",
    "a state of Kafka that is never written": struct.pack(">hqhib", 1, 7, 0, 1, 6) + EMPTY_V1[17:],
    "no such state": struct.pack(">hqhib", 1, 7, 0, 1, -1) + EMPTY_V1[17:],
    "no producer id": struct.pack(">hqhib", 1, -1, 0, 1, 0) + EMPTY_V1[17:],
    "no epoch": struct.pack(">hqhib", 1, 7, -1, 1, 0) + EMPTY_V1[17:],
    "empty with partitions": struct.pack(">hqhib", 1, 7, 0, 1, 0) + FULL_V1[17:],
    "completed with partitions": struct.pack(">hqhib", 1, 7, 0, 1, 4) + FULL_V1[17:],
    "ongoing without partitions": struct.pack(">hqhib", 1, 7, 0, 1, 1) + EMPTY_V1[17:],
    "a tag of a wrong size": EMPTY_V1[:-1] + b"\x01\x00\x07" + bytes(7),
    "a count that cannot be": struct.pack(">hqhib", 1, 7, 0, 1, 1) + b"\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize("value", CORRUPT.values(), ids=CORRUPT.keys())
def test_values_that_do_not_read_are_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptCoordinatorRecordError):
        decode_value("x", value)


@given(st.binary(max_size=80), st.integers(0, 1))
def test_random_bytes_raise_only_corruption_errors(rubbish: bytes, version: int) -> None:
    with suppress(CorruptCoordinatorRecordError):
        decode_key(rubbish)
    with suppress(CorruptCoordinatorRecordError):
        decode_value("x", struct.pack(">h", version) + rubbish)


@given(st.integers(0, len(FULL_V1) - 1), st.integers(1, 255))
def test_a_value_with_a_byte_that_changed_reads_or_is_corrupt(at: int, change: int) -> None:
    damaged = bytearray(FULL_V1)
    damaged[at] ^= change
    with suppress(CorruptCoordinatorRecordError):
        decode_value("x", bytes(damaged))


PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.text("abc.", min_size=1, max_size=200), st.integers(0, 2**31 - 1)), max_size=20
)


@given(PARTITIONS, st.integers(0, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**63 - 1))
def test_encoded_values_decode_to_the_same_value(
    partitions: frozenset[TopicPartition], producer_id: int, epoch: int, other_id: int
) -> None:
    transaction = Transaction(
        "x",
        ProducerId(producer_id),
        producer_epoch=ProducerEpoch(max(epoch, 0)),
        timeout_ms=1,
        state=TransactionState.PREPARE_ABORT,
        last_update_ms=2**62,
        partitions=partitions,
        start_ms=2**61,
        last_producer_epoch=ProducerEpoch(epoch),
        previous_producer_id=ProducerId(other_id),
        next_producer_id=ProducerId(other_id),
        next_producer_epoch=ProducerEpoch(epoch),
        client_version=max(epoch, 0),
    )
    assert decode_value("x", encode_value(transaction)) == transaction
