"""The compiled kernels against their counterparts in plain Python: `reader` for decoding, `builder` for encoding."""

from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logbrook.model.identifiers import Offset
from logbrook.records.batch import (
    HEADER_BYTES,
    MAGIC_V2,
    BatchHeader,
    Codec,
    TimestampType,
    check_batch,
    check_produced,
    iter_headers,
    read_header,
    renew_crc,
)
from logbrook.records.builder import build_batch, rebuild_batch
from logbrook.records.columns import decode, encode
from logbrook.records.errors import CorruptBatchError, RecordsError, UnsupportedMagicError
from logbrook.records.reader import iter_records
from logbrook.records.record import Record

BYTES_MAX = 1_000_000
NOW_MS = 1_800_000_000_000
TIMESTAMP_MAX = 2**63 - 1
slow = settings(max_examples=75, suppress_health_check=[HealthCheck.too_slow])


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    offset: int
    timestamp_us: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...]


timestamps = st.one_of(
    st.integers(1_600_000_000_000, 1_800_000_000_000), st.integers(-(2**63), 2**63 - 1), st.just(-1), st.just(0)
)
fields = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=60, max_size=300))
header_lists = st.one_of(
    st.just(()), st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=4).map(tuple)
)
records = st.builds(Record, key=fields, value=fields, headers=header_lists, timestamp=timestamps)


@st.composite
def batches(draw: st.DrawFn, base_offset: int = 0) -> bytearray:
    """Generate a batch as a log may hold it: any codec and timestamp type, a marker, compacted."""
    given_records = draw(st.lists(records, min_size=1, max_size=12))
    batch = build_batch(
        given_records,
        base_offset=Offset(base_offset),
        codec=draw(st.sampled_from(Codec)),
        timestamp_type=draw(st.sampled_from(TimestampType)),
        control=draw(st.integers(0, 9)) == 0,
    )
    if draw(st.booleans()):
        return batch
    kept = [record for record in iter_records(batch, bytes_max=BYTES_MAX) if draw(st.booleans())]
    horizon = draw(st.none() | st.integers(0, 2**43))
    return rebuild_batch(read_header(batch), kept, delete_horizon_ms=horizon)


@st.composite
def runs(draw: st.DrawFn) -> bytearray:
    run, offset = bytearray(), draw(st.sampled_from([0, 7, 2**31, 2**62]))
    for gap in draw(st.lists(st.integers(0, 3), max_size=5)):
        run += draw(batches(offset + gap))
        offset = max(header.next_offset for _, header in iter_headers(run))
    return run


def twin(run: bytearray, start: int, end: int, *, check_crcs: bool) -> list[Row]:
    """Return the expected result of `decode`, or the error it must raise."""
    rows: list[Row] = []
    position = 0
    while position < len(run):
        header = checked_header(run, position)
        if not header.is_control and header.last_offset >= start and header.base_offset < end:
            if check_crcs:
                check_batch(memoryview(run), position, len(run))
            rows += [
                Row(
                    record.key,
                    record.value,
                    record.offset,
                    microseconds(record.timestamp),
                    header.timestamp_type,
                    record.headers,
                )
                for record in iter_records(run, position, bytes_max=BYTES_MAX)
                if start <= record.offset < end
            ]
        position += header.size
    return rows


def checked_header(run: bytearray, position: int) -> BatchHeader:
    """Read the header of any batch; `decode` reads nothing else of a batch without rows."""
    available = len(run) - position
    if available < HEADER_BYTES:
        raise CorruptBatchError("cut short")
    header = read_header(run, position)
    if not HEADER_BYTES <= header.size <= available or header.base_offset < 0 or header.last_offset >= 2**63:
        raise CorruptBatchError("impossible length or offsets")
    if header.magic != MAGIC_V2:
        raise UnsupportedMagicError(header.magic)
    return header


def microseconds(timestamp_ms: int) -> int:
    if abs(timestamp_ms) <= TIMESTAMP_MAX // 1000:
        return timestamp_ms * 1000
    return TIMESTAMP_MAX if timestamp_ms > 0 else -TIMESTAMP_MAX - 1


def rows_of(table: Any) -> list[Row]:
    table.validate(full=True)
    timestamps_us = table.column("timestamp").cast(pa.int64()).to_pylist()
    return [
        Row(
            row["key"],
            row["value"],
            row["offset"],
            timestamp_us,
            row["timestampType"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row, timestamp_us in zip(table.drop_columns(["timestamp"]).to_pylist(), timestamps_us, strict=True)
    ]


@slow
@given(run=runs(), start=st.integers(0, 40), length=st.integers(0, 40) | st.none())
def test_columns_have_the_rows_that_the_reader_gives(run: bytearray, start: int, length: int | None) -> None:
    first = next((header.base_offset for _, header in iter_headers(run)), 0)
    start += first - 5
    end = None if length is None else Offset(start + length)
    expected = twin(run, max(start, 0), 2**63 - 1 if end is None else end, check_crcs=True)
    table = decode(run, topic="t", partition=1, start_offset=Offset(start), end_offset=end)
    assert rows_of(table) == expected
    assert set(table.column("topic").to_pylist()) <= {"t"}


@slow
@given(
    given_records=st.lists(records, max_size=40),
    codec=st.sampled_from(Codec),
    bytes_max=st.integers(0, 2_000),
    records_max=st.integers(1, 50),
)
def test_encoded_columns_decode_to_the_same_rows(
    given_records: list[Record], codec: Codec, bytes_max: int, records_max: int
) -> None:
    table = pa.record_batch(
        {
            "key": pa.array([record.key for record in given_records], pa.binary()),
            "value": pa.array([record.value for record in given_records], pa.binary()),
            "headers": pa.array(
                [[{"key": key, "value": value} for key, value in record.headers] for record in given_records],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
            "timestamp": pa.array([record.timestamp for record in given_records], pa.int64()).cast(pa.timestamp("ms")),
        }
    )
    encoded = encode(table, now_ms=NOW_MS, codec=codec, batch_bytes_max=bytes_max, batch_records_max=records_max)
    decoded = []
    for batch in encoded:
        check_produced(check_batch(memoryview(batch), 0, len(batch)))
        decoded += list(iter_records(batch, bytes_max=BYTES_MAX))
    assert [record.offset for record in decoded] == list(range(len(given_records)))
    assert [Record(record.key, record.value, record.headers, record.timestamp) for record in decoded] == given_records


@slow
@given(given_records=st.lists(records, min_size=1, max_size=40), codec=st.sampled_from(Codec))
def test_one_batch_is_encoded_byte_for_byte_as_the_builder_builds_it(given_records: list[Record], codec: Codec) -> None:
    batch = build_batch(given_records, codec=codec)
    table = decode(batch, topic="t", partition=0)
    milliseconds = pa.array([record.timestamp for record in given_records], pa.int64()).cast(pa.timestamp("ms"))
    table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", milliseconds)
    assert encode(table, now_ms=NOW_MS, codec=codec) == [batch]


def outcome(function: Any) -> Any:
    try:
        return function()
    except RecordsError:
        return "refused"


@settings(slow, max_examples=100)
@given(run=runs(), data=st.data())
def test_mutated_bytes_give_the_readers_rows_or_an_error(run: bytearray, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        if run:
            position = data.draw(st.integers(0, len(run) - 1))
            run[position] = data.draw(st.integers(0, 255) | st.sampled_from([0x00, 0x01, 0x7F, 0x80, 0xFF]))
    run = run[: data.draw(st.integers(max(len(run) - 20, 0), len(run)))]
    expected = outcome(lambda: twin(run, 0, 2**63 - 1, check_crcs=False))
    rows = outcome(lambda: rows_of(decode(run, topic="t", partition=1, check_crcs=False, bytes_max=BYTES_MAX)))
    assert rows == expected


@settings(slow, max_examples=150)
@given(encoded=st.binary(max_size=120), count=st.integers(0, 12), last_offset_delta=st.integers(-1, 40))
def test_any_bytes_as_records_give_the_readers_rows_or_an_error(
    encoded: bytes, count: int, last_offset_delta: int
) -> None:
    batch = build_batch([Record()])[:HEADER_BYTES] + encoded
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = last_offset_delta.to_bytes(4, "big", signed=True)
    batch[57:61] = count.to_bytes(4, "big")
    renew_crc(memoryview(batch), 0, len(batch))
    expected = outcome(lambda: twin(batch, 0, 2**63 - 1, check_crcs=True))
    assert outcome(lambda: rows_of(decode(batch, topic="t", partition=1))) == expected
