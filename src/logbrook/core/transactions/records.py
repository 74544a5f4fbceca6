"""The records of `__transaction_state`, in Kafka's own binary formats, so that Kafka's tools can read the topic.

Written are TransactionLogKey v0 and TransactionLogValue v1; values of version 0 are read too. A value of None is a
tombstone. Field layouts: apache/kafka, transaction-coordinator/src/main/resources/common/message.

Kafka does not write down the last epoch of a producer, and so forgets with a restart which requests are retries. Here
it is a tagged field of a number that is far above Kafka's; its readers pass over tags that they do not know.
"""

from collections.abc import Iterable
from itertools import groupby

from logbrook.core.fields import FieldReader, FieldWriter
from logbrook.core.transactions.errors import CorruptTransactionRecordError
from logbrook.core.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Transaction, TransactionState
from logbrook.model import TopicPartition

_KEY_VERSION = 0
_VALUE_VERSION = 1
_FIRST_FLEXIBLE_VERSION = 1

_PREVIOUS_PRODUCER_ID_TAG = 0
_NEXT_PRODUCER_ID_TAG = 1
_CLIENT_VERSION_TAG = 2
_NEXT_PRODUCER_EPOCH_TAG = 3
_LAST_PRODUCER_EPOCH_TAG = 1_000

# A topic's fields at their shortest, compact and empty: a count above bytes left / this is a lie.
_TOPIC_BYTES_MIN = 3
_PARTITION_BYTES = 4

# In the order of Kafka's numbers, from 0. Kafka never writes the states that it numbers after these.
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
    """The transactional id; None for kinds of records that are not ours. Raises CorruptTransactionRecordError."""
    reader = FieldReader(data, "the key of a transaction record", CorruptTransactionRecordError)
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
    """Raises CorruptTransactionRecordError."""
    reader = FieldReader(data, f"the transaction of {transactional_id!r}", CorruptTransactionRecordError)
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
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        last_update_ms,
        partitions,
        start_ms,
        last_producer_epoch=_tagged_int16(reader, tagged, _LAST_PRODUCER_EPOCH_TAG, NO_EPOCH),
        previous_producer_id=_tagged_int64(reader, tagged, _PREVIOUS_PRODUCER_ID_TAG, NO_PRODUCER_ID),
        next_producer_id=_tagged_int64(reader, tagged, _NEXT_PRODUCER_ID_TAG, NO_PRODUCER_ID),
        next_producer_epoch=_tagged_int16(reader, tagged, _NEXT_PRODUCER_EPOCH_TAG, NO_EPOCH),
        client_version=_tagged_int16(reader, tagged, _CLIENT_VERSION_TAG, 0),
    )
    _check(transaction, reader)
    return transaction


def _check(transaction: Transaction, reader: FieldReader) -> None:
    """Whether the fields go with each other."""
    if transaction.producer_id < 0 or transaction.producer_epoch < 0:
        raise reader.error("has no producer")
    if transaction.partitions and not transaction.state.is_open:
        raise reader.error(f"is {transaction.state}, but has partitions")
    if transaction.state is TransactionState.ONGOING and not transaction.partitions:
        raise reader.error("is Ongoing, but has no partitions")


def _write_partitions(writer: FieldWriter, partitions: Iterable[TopicPartition]) -> None:
    topics = [(topic, list(some)) for topic, some in groupby(sorted(partitions), key=lambda each: each.topic)]
    writer.array_count(len(topics))
    for topic, some in topics:
        writer.string(topic).array_count(len(some))
        for each in some:
            writer.int32(each.partition)
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
    """Those that are not what their absence means."""
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


def _tagged_int64(reader: FieldReader, fields: dict[int, bytes], tag: int, default: int) -> int:
    return int.from_bytes(_tagged(reader, fields, tag, 8), signed=True) if tag in fields else default


def _tagged_int16(reader: FieldReader, fields: dict[int, bytes], tag: int, default: int) -> int:
    return int.from_bytes(_tagged(reader, fields, tag, 2), signed=True) if tag in fields else default


def _tagged(reader: FieldReader, fields: dict[int, bytes], tag: int, size: int) -> bytes:
    data = fields[tag]
    if len(data) != size:
        raise reader.error(f"has {len(data)} bytes in the field of tag {tag}, not {size}")
    return data
