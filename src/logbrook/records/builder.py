"""Encoding of record batches, for internal topics, compaction and tests. Producers' batches are stored as received.

Compaction rewrites a batch with some of its records (`rebuild_batch`). As in Kafka, base offset, last offset delta,
leader epoch and the producer fields are kept, so that the offset range is still covered and the producer's last
sequence can be recovered; a batch may have no records.

With a delete horizon (KIP-534) the base timestamp field holds the time from which the batch's tombstones may be
removed, and timestamp deltas are relative to it. The sums are 64-bit and wrap, as in the Java client.
"""

from collections.abc import Sequence

from typing_extensions import Buffer

from logbrook.model.identifiers import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from logbrook.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    TimestampType,
    renew_crc,
)
from logbrook.records.codecs import compress
from logbrook.records.record import LONG_BITS, Header, RawRecord, Record, encode_varint, read_varint, wrap_int64

# Below the default message.max.bytes of Kafka brokers, 1,048,588.
BATCH_BYTES_MAX = 1_000_000
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)

_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
_RECORD_ATTRIBUTES = b"\x00"


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: Offset = Offset(0),
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Encode `records`, at least one, as a batch at consecutive offsets from `base_offset`."""
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    attributes = int(codec)
    attributes |= TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    attributes |= CONTROL_BIT if control else 0
    attributes |= DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC_V2,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(records),
    )
    encoded = [
        encode_record(record, offset_delta, wrap_int64(record.timestamp - base_timestamp))
        for offset_delta, record in enumerate(records)
    ]
    return _assemble(header, compress(codec, b"".join(encoded)))


def rebuild_batch(header: BatchHeader, kept: Sequence[RawRecord], *, delete_horizon_ms: int | None = None) -> bytearray:
    """Encode the batch of `header` with only the records `kept`, a possibly empty subsequence of its records.

    `kept` are records that `iter_records` returned for the batch of `header`. A batch that has a delete horizon keeps
    it. A batch without records is not compressed, as in Kafka.
    """
    max_timestamp = header.max_timestamp
    if kept and header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = max(record.timestamp for record in kept)
    encoded = [record.encoded for record in kept]
    if header.delete_horizon_ms is not None:
        delete_horizon_ms = None
    if delete_horizon_ms is not None:
        encoded = [_rebase_timestamp(raw, header.base_timestamp - delete_horizon_ms) for raw in encoded]
    return rebuild_encoded(header, b"".join(encoded), len(kept), max_timestamp, delete_horizon_ms)


def rebuild_encoded(
    header: BatchHeader, records: Buffer, count: int, max_timestamp: int, delete_horizon_ms: int | None = None
) -> bytearray:
    """Like `rebuild_batch`, of the `count` encoded records that are kept.

    With `delete_horizon_ms`, their timestamp deltas are relative to it and the batch gets it as its delete horizon.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    if not count:
        attributes &= ~CODEC_MASK
    header = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, count=count
    )
    return _assemble(header, compress(header.codec, records))


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """Encode a record with its length prefix, as in an uncompressed batch."""
    parts = [
        _RECORD_ATTRIBUTES,
        encode_varint(timestamp_delta),
        encode_varint(offset_delta),
        *_encode_nullable(record.key),
        *_encode_nullable(record.value),
        encode_headers(record.headers),
    ]
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def encode_headers(headers: Sequence[Header]) -> bytes:
    """Encode the headers of a record with their count."""
    if not headers:
        return _NO_HEADERS
    parts = [encode_varint(len(headers))]
    for header in headers:
        parts += _encode_header(header)
    return b"".join(parts)


def _encode_nullable(data: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if data is None else (encode_varint(len(data)), data)


def _encode_header(header: Header) -> tuple[bytes, ...]:
    key = header[0].encode()
    return (encode_varint(len(key)), key, *_encode_nullable(header[1]))


def _rebase_timestamp(encoded: bytes, by: int) -> bytes:
    """Return the encoded record with `by` added to its timestamp delta."""
    end = len(encoded)
    _, position = read_varint(encoded, 0, end)
    delta, rest = read_varint(encoded, position + 1, end, LONG_BITS)
    body = encoded[position : position + 1] + encode_varint(wrap_int64(delta + by)) + encoded[rest:]
    return encode_varint(len(body)) + body


def seal(header: BatchHeader, batch: bytearray) -> None:
    """Write `header` into `batch` in front of its records, with the batch's actual length and checksum."""
    HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - LENGTH_PREFIX_BYTES, crc=0))
    renew_crc(memoryview(batch), 0, len(batch))


def _assemble(header: BatchHeader, records: bytes) -> bytearray:
    batch = bytearray(HEADER_BYTES) + records
    seal(header, batch)
    return batch
