"""Batches of records with a value, perhaps a key, and all the same headers, encoded without Python code per record.

Most bytes of such a record besides its key and value depend on a length or on the offset delta only. They are taken
from tables, and `bytes.join` copies everything: several times as fast as `builder.build_batch`, which encodes each
record by itself. The bytes are the same.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from operator import add
from typing import NamedTuple

from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.records.batch import HEADER_BYTES, MAGIC_V2, NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader, Codec
from logbrook.records.builder import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, encode_headers, seal
from logbrook.records.codecs import compress
from logbrook.records.record import Header, encode_varint, wrap_int64

_NULL = encode_varint(-1)
_RECORD_ATTRIBUTES = b"\x00"
# The first offset deltas that take 2, 3, 4 and 5 bytes.
_LARGER_DELTAS = (1 << 6, 1 << 13, 1 << 20, 1 << 27)


class ValueRun(NamedTuple):
    """Records with one timestamp and the same headers. `keys` is as long as `values`, or None if no record has a key.

    With `empty_is_null`, empty values are written as null.
    """

    values: Sequence[bytes]
    keys: Sequence[bytes] | None
    timestamp: int
    headers: Sequence[Header] = ()
    empty_is_null: bool = False


class ValueBatch:
    """A batch at consecutive offsets from 0. A run is encoded when it is added, so its keys and values are not kept."""

    def __init__(self) -> None:
        self.count = 0
        self._pieces: list[bytes] = []
        self._base_timestamp = 0
        self._max_timestamp = 0

    def add(self, run: ValueRun) -> None:
        if not self.count:
            self._base_timestamp = self._max_timestamp = run.timestamp
        timestamp_delta = encode_varint(wrap_int64(run.timestamp - self._base_timestamp))
        self._pieces += _encode_run(run, self.count, timestamp_delta)
        self._max_timestamp = max(self._max_timestamp, run.timestamp)
        self.count += len(run.values)

    def build(
        self,
        *,
        codec: Codec = Codec.NONE,
        producer_id: ProducerId = NO_PRODUCER_ID,
        producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
    ) -> bytearray:
        """Return the batch, which needs at least one record."""
        if not self.count:
            raise ValueError("a batch needs at least one record")
        header = BatchHeader(
            base_offset=Offset(0),
            batch_length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC_V2,
            crc=0,
            attributes=int(codec),
            last_offset_delta=self.count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            count=self.count,
        )
        if codec is Codec.NONE:
            batch = bytearray().join([bytes(HEADER_BYTES), *self._pieces])
        else:
            batch = bytearray(HEADER_BYTES) + compress(codec, b"".join(self._pieces))
        seal(header, batch)
        return batch


def _encode_run(run: ValueRun, first_delta: int, timestamp_delta: bytes) -> Iterator[bytes]:
    """Yield the encoded records in pieces whose offset deltas have the same size.

    A piece is joined from a list with a fixed number of parts per record, which is filled column by column.
    """
    headers = encode_headers(run.headers)
    after_length = _RECORD_ATTRIBUTES + timestamp_delta
    value_sizes = [*map(len, run.values)]
    value_prefixes = {size: encode_varint(size) for size in set(value_sizes)}
    # The bytes of each record's key and value with their prefixes.
    field_bytes: Sequence[int]
    # The parts of each record after its offset delta.
    columns: list[Sequence[bytes]]
    if run.keys is None:
        value_prefixes = {size: _NULL + prefix for size, prefix in value_prefixes.items()}
        if run.empty_is_null:
            value_prefixes[0] = _NULL + _NULL
        with_prefix = {size: len(prefix) + size for size, prefix in value_prefixes.items()}
        field_bytes = [*map(with_prefix.__getitem__, value_sizes)]
        columns = [[*map(value_prefixes.__getitem__, value_sizes)], run.values]
    else:
        key_sizes = [*map(len, run.keys)]
        key_prefixes = {size: encode_varint(size) for size in set(key_sizes)}
        with_prefix = {size: len(prefix) + size for size, prefix in (key_prefixes | value_prefixes).items()}
        if run.empty_is_null:
            value_prefixes[0] = _NULL
        field_bytes = [
            *map(add, map(with_prefix.__getitem__, key_sizes), map(with_prefix.__getitem__, value_sizes)),
        ]
        columns = [
            [*map(key_prefixes.__getitem__, key_sizes)],
            run.keys,
            [*map(value_prefixes.__getitem__, value_sizes)],
            run.values,
        ]
    width = 2 + len(columns)
    distinct_bytes = set(field_bytes)
    for start, end in _equal_delta_sizes(first_delta, first_delta + len(run.values)):
        deltas = _offset_deltas(end.bit_length())[start:end]
        fixed_bytes = len(after_length) + len(deltas[0]) + len(headers)
        # The headers of a record are a part together with the beginning of the next record.
        heads = {size: headers + encode_varint(fixed_bytes + size) + after_length for size in distinct_bytes}
        first, last = start - first_delta, end - first_delta
        parts = [headers] * (width * (end - start) + 1)
        parts[:-1:width] = map(heads.__getitem__, field_bytes[first:last])
        parts[0] = parts[0][len(headers) :]
        parts[1::width] = deltas
        for index, column in enumerate(columns, 2):
            parts[index::width] = column[first:last]
        yield b"".join(parts)


def _equal_delta_sizes(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Split a range of offset deltas into ranges whose varints have the same size."""
    for bound in (*_LARGER_DELTAS, end):
        if start < min(bound, end):
            yield start, min(bound, end)
            start = min(bound, end)


@cache
def _offset_deltas(bits: int) -> Sequence[bytes]:
    """Return the varints of 0 to 2^bits - 1."""
    return [encode_varint(delta) for delta in range(1 << bits)]
