"""Batches of records that have a value, perhaps a key, and no headers, encoded without Python code per record.

Most bytes of such a record besides its key and value depend on a length or on the offset delta only. They are taken
from tables, and `bytes.join` copies everything: several times as fast as `builder.build_batch`, which encodes each
record by itself. The bytes are the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, repeat
from typing import NamedTuple

from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.records.batch import HEADER_BYTES, MAGIC_V2, NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader, Codec
from logbrook.records.builder import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, seal
from logbrook.records.codecs import compress
from logbrook.records.record import encode_varint, wrap_int64

_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
_RECORD_ATTRIBUTES = b"\x00"
# The first offset deltas that take 2, 3, 4 and 5 bytes.
_LARGER_DELTAS = (1 << 6, 1 << 13, 1 << 20, 1 << 27)


class ValueRun(NamedTuple):
    """Records with one timestamp. `keys` is as long as `values`, or None if no record has a key."""

    values: Sequence[bytes]
    keys: Sequence[bytes] | None
    timestamp: int


def build_value_batch(
    runs: Sequence[ValueRun],
    *,
    codec: Codec = Codec.NONE,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """Encode the records of `runs`, at least one, as a batch at consecutive offsets from 0."""
    count = sum(len(run.values) for run in runs)
    if not count:
        raise ValueError("a batch needs at least one record")
    base_timestamp = runs[0].timestamp
    parts: list[bytes] = []
    first_delta = 0
    for run in runs:
        parts += _encode_run(run, first_delta, encode_varint(wrap_int64(run.timestamp - base_timestamp)))
        first_delta += len(run.values)
    header = BatchHeader(
        base_offset=Offset(0),
        batch_length=0,
        leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC_V2,
        crc=0,
        attributes=int(codec),
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(run.timestamp for run in runs),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
    )
    records = compress(codec, b"".join(parts))
    batch = bytearray(HEADER_BYTES) + records
    seal(header, batch)
    return batch


def _encode_run(run: ValueRun, first_delta: int, timestamp_delta: bytes) -> Iterator[bytes]:
    """Yield the encoded records in pieces whose offset deltas have the same size."""
    value_sizes = [*map(len, run.values)]
    sizes: Sequence[object] = value_sizes
    # The rest of each record after its offset delta, as columns of parts.
    columns: list[Iterable[bytes]]
    # The bytes of these parts by the sizes of key and value.
    rest_bytes: dict[object, int]
    if run.keys is None:
        prefixes = {size: _NULL + encode_varint(size) for size in set(value_sizes)}
        rest_bytes = {size: len(prefix) + size + len(_NO_HEADERS) for size, prefix in prefixes.items()}
        columns = [map(prefixes.__getitem__, value_sizes), run.values, repeat(_NO_HEADERS)]
    else:
        key_sizes = [*map(len, run.keys)]
        sizes = [*zip(key_sizes, value_sizes, strict=True)]
        prefixes = {size: encode_varint(size) for size in {*key_sizes, *value_sizes}}
        rest_bytes = {
            (key, value): len(prefixes[key]) + key + len(prefixes[value]) + value + len(_NO_HEADERS)
            for key, value in {*zip(key_sizes, value_sizes, strict=True)}
        }
        columns = [
            map(prefixes.__getitem__, key_sizes),
            run.keys,
            map(prefixes.__getitem__, value_sizes),
            run.values,
            repeat(_NO_HEADERS),
        ]
    # Each piece takes its part of every column.
    rest = [iter(column) for column in columns]
    after_length = _RECORD_ATTRIBUTES + timestamp_delta
    for start, end in _equal_delta_sizes(first_delta, first_delta + len(run.values)):
        deltas = _offset_deltas(end.bit_length())[start:end]
        fixed_bytes = len(after_length) + len(deltas[0])
        heads = {key: encode_varint(fixed_bytes + size) + after_length for key, size in rest_bytes.items()}
        piece_sizes = sizes[start - first_delta : end - first_delta]
        # The columns may be longer: `zip` ends with its first argument, before it takes from the others.
        records = zip(map(heads.__getitem__, piece_sizes), deltas, *rest, strict=False)
        yield b"".join(chain.from_iterable(records))


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
