"""The records of `__transaction_state`, in Kafka's own binary formats, so that Kafka's tools can read the topic.

TransactionLogKey v0 and TransactionLogValue v1 are written; values of version 0 are read too. A value of None is a
tombstone. Field layouts: apache/kafka, transaction-coordinator/src/main/resources/common/message.

Kafka does not persist the last epoch of a producer, and so cannot recognise retries after a restart. Here it is a
tagged field with a tag far above Kafka's; Kafka's readers ignore unknown tags.
"""

from collections.abc import Iterable
from itertools import groupby

from logbrook.core.coordinator import CorruptCoordinatorRecordError
from logbrook.core.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Transaction, TransactionState
from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.records.fields import FieldReader, FieldWriter

_KEY_VERSION = 0
_VALUE_VERSION = 1
_FIRST_FLEXIBLE_VERSION = 1

_PREVIOUS_PRODUCER_ID_TAG = 0
_NEXT_PRODUCER_ID_TAG = 1
_CLIENT_VERSION_TAG = 2
_NEXT_PRODUCER_EPOCH_TAG = 3
_LAST_PRODUCER_EPOCH_TAG = 1_000

# Minimum size of an encoded topic (flexible, all fields empty): bounds the topic count of a corrupt record.
_TOPIC_BYTES_MIN = 3
_PARTITION_BYTES = 4

# Indexed by Kafka's state ids. Kafka never writes the states with higher ids.
_STATES = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)


def encode_key(transactional_id: str) -> bytes:
    return FieldWriter().int16(_KEY_VERSION).string(transactional_id).finish()


def decode_key(data: bytes) -> str | None:
    """Return the transactional id; None for unknown record types. Raises CorruptCoordinatorRecordError."""
    reader = FieldReader(data, "the key of a transaction record", CorruptCoordinatorRecordError)
    version = reader.int16()
    if version < 0:
        raise reader.error(f"has version {version}")
    if version > _KEY_VERSION:
        return None
    transactional_id = reader.string()
    reader.end()
    return transactional_id


def encode_value(transaction: Transaction) -> bytes:
    writer = FieldWriter(flexible=True).int16(_VALUE_VERSION)
    writer.int64(transaction.producer_id).int16(transaction.producer_epoch)
    writer.int32(transaction.timeout_ms).int8(_STATES.index(transaction.state))
    if transaction.state is TransactionState.EMPTY:
        writer.array_count(None)
    else:
        _write_partitions(writer, transaction.partitions)
    writer.int64(transaction.last_update_ms).int64(transaction.start_ms)
    return writer.tagged_fields(_tagged_fields(transaction)).finish()


def decode_value(transactional_id: str, data: bytes) -> Transaction:
    """Raises CorruptCoordinatorRecordError."""
    reader = FieldReader(data, f"the transaction of {transactional_id!r}", CorruptCoordinatorRecordError)
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION:
        raise reader.error(f"has version {version}")
    reader.flexible = version >= _FIRST_FLEXIBLE_VERSION
    producer_id = reader.int64()
    producer_epoch = reader.int16()
    timeout_ms = reader.int32()
    state = _read_state(reader)
    partitions = _read_partitions(reader)
    last_update_ms = reader.int64()
    start_ms = reader.int64()
    tagged = reader.tagged_fields()
    reader.end()
    transaction = Transaction(
        transactional_id,
        ProducerId(producer_id),
        ProducerEpoch(producer_epoch),
        timeout_ms,
        state,
        last_update_ms,
        partitions,
        start_ms,
        last_producer_epoch=ProducerEpoch(_tagged_int(reader, tagged, _LAST_PRODUCER_EPOCH_TAG, 2, NO_EPOCH)),
        previous_producer_id=ProducerId(_tagged_int(reader, tagged, _PREVIOUS_PRODUCER_ID_TAG, 8, NO_PRODUCER_ID)),
        next_producer_id=ProducerId(_tagged_int(reader, tagged, _NEXT_PRODUCER_ID_TAG, 8, NO_PRODUCER_ID)),
        next_producer_epoch=ProducerEpoch(_tagged_int(reader, tagged, _NEXT_PRODUCER_EPOCH_TAG, 2, NO_EPOCH)),
        client_version=_tagged_int(reader, tagged, _CLIENT_VERSION_TAG, 2, 0),
    )
    _check(transaction, reader)
    return transaction


def _check(transaction: Transaction, reader: FieldReader) -> None:
    """Check that the fields are consistent. Raises CorruptCoordinatorRecordError."""
    if transaction.producer_id < 0 or transaction.producer_epoch < 0:
        raise reader.error("has no producer")
    if transaction.partitions and not transaction.state.is_open:
        raise reader.error(f"is {transaction.state}, but has partitions")
    if transaction.state is TransactionState.ONGOING and not transaction.partitions:
        raise reader.error("is Ongoing, but has no partitions")


def _write_partitions(writer: FieldWriter, partitions: Iterable[TopicPartition]) -> None:
    by_topic = groupby(sorted(partitions), key=lambda partition: partition.topic)
    topics = [(topic, list(of_topic)) for topic, of_topic in by_topic]
    writer.array_count(len(topics))
    for topic, of_topic in topics:
        writer.string(topic).array_count(len(of_topic))
        for partition in of_topic:
            writer.int32(partition.partition)
        writer.tagged_fields({})


def _read_partitions(reader: FieldReader) -> frozenset[TopicPartition]:
    partitions: list[TopicPartition] = []
    for _ in range(reader.nullable_array_count(_TOPIC_BYTES_MIN) or 0):
        topic = reader.string()
        count = reader.array_count(_PARTITION_BYTES)
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(count)]
        reader.tagged_fields()
    return frozenset(partitions)


def _read_state(reader: FieldReader) -> TransactionState:
    number = reader.int8()
    if not 0 <= number < len(_STATES):
        raise reader.error(f"is in a state of number {number}")
    return _STATES[number]


def _tagged_fields(transaction: Transaction) -> dict[int, bytes]:
    """Return the tagged fields that differ from their defaults."""
    fields: dict[int, bytes] = {}
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        fields[_PREVIOUS_PRODUCER_ID_TAG] = FieldWriter().int64(transaction.previous_producer_id).finish()
    if transaction.next_producer_id != NO_PRODUCER_ID:
        fields[_NEXT_PRODUCER_ID_TAG] = FieldWriter().int64(transaction.next_producer_id).finish()
    if transaction.client_version:
        fields[_CLIENT_VERSION_TAG] = FieldWriter().int16(transaction.client_version).finish()
    if transaction.next_producer_epoch != NO_EPOCH:
        fields[_NEXT_PRODUCER_EPOCH_TAG] = FieldWriter().int16(transaction.next_producer_epoch).finish()
    if transaction.last_producer_epoch != NO_EPOCH:
        fields[_LAST_PRODUCER_EPOCH_TAG] = FieldWriter().int16(transaction.last_producer_epoch).finish()
    return fields


def _tagged_int(reader: FieldReader, fields: dict[int, bytes], tag: int, size: int, default: int) -> int:
    data = fields.get(tag)
    if data is None:
        return default
    if len(data) != size:
        raise reader.error(f"has {len(data)} bytes in the field of tag {tag}, not {size}")
    return int.from_bytes(data, signed=True)
