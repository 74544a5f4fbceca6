"""Decoding of record batches to Arrow columns and encoding back, on one core.

Records have 8-byte keys and 100-byte values, in batches of just under 1 MB, as a busy producer sends them. All columns
are decoded and every checksum is verified. The best round counts.
"""

from collections.abc import Callable
from functools import partial

from bench.rows import Row, seconds
from logbrook.model.identifiers import Offset
from logbrook.records.batch import Codec
from logbrook.records.builder import build_batch
from logbrook.records.columns import decode, encode
from logbrook.records.record import Record

_BATCHES = 16
_BATCH_RECORDS = 8_000
_ROUNDS = 9
_DECODE_GOAL = 5_000_000


def run() -> list[Row]:
    columns = decode(_batches(Codec.NONE), topic="orders", partition=0)
    return [
        _decode(Codec.NONE, "uncompressed", goal=_DECODE_GOAL),
        _decode(Codec.LZ4, "lz4"),
        _decode(Codec.ZSTD, "zstd"),
        _row("encode from columns, 100 B values, uncompressed", partial(encode, columns, now_ms=0)),
        _row("encode from columns, 100 B values, lz4", partial(encode, columns, now_ms=0, codec=Codec.LZ4)),
    ]


def _decode(codec: Codec, name: str, goal: float | None = None) -> Row:
    call = partial(decode, _batches(codec), topic="orders", partition=0)
    return _row(f"decode to columns, 100 B values, {name}", call, goal)


def _row(name: str, call: Callable[[], object], goal: float | None = None) -> Row:
    best_seconds = min(seconds(call) for _ in range(_ROUNDS))
    return Row(name, _BATCHES * _BATCH_RECORDS / best_seconds, "records/s", goal)


def _batches(codec: Codec) -> bytes:
    records = [
        Record(b"%08d" % number, (b'{"order": %d, "state": "paid"}' % (number * 7919) * 4)[:100], (), number // 50)
        for number in range(_BATCH_RECORDS)
    ]
    return b"".join(
        build_batch(records, base_offset=Offset(index * _BATCH_RECORDS), codec=codec) for index in range(_BATCHES)
    )
