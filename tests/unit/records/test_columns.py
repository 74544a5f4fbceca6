"""Batches as columns and back: the schema, the rows, the bounds and the errors."""

import subprocess
import sys
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from struct import pack_into
from typing import Any

import pyarrow as pa
import pytest

from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.records.batch import Codec, TimestampType, check_batch, check_produced, read_header, renew_crc
from logbrook.records.builder import build_batch, encode_record, rebuild_batch
from logbrook.records.codecs import compress
from logbrook.records.columns import SCHEMA, decode, encode, jit
from logbrook.records.columns.decode_kernels import decode_records
from logbrook.records.columns.encode_kernels import plan, write
from logbrook.records.columns.sections import count_batches
from logbrook.records.errors import (
    CodecError,
    CorruptBatchError,
    InvalidBatchError,
    RecordsTooLargeError,
    UnsupportedMagicError,
)
from logbrook.records.reader import iter_records
from logbrook.records.record import Record
from tests.unit.records.golden import GOLDEN, RECORDS

NOW_MS = 1_800_000_000_000


def columns_of(batches: bytes | bytearray, **options: Any) -> Any:
    table = decode(batches, topic="orders", partition=3, **options)
    table.validate(full=True)
    return table


def records_of(table: Any) -> list[Record]:
    timestamps_us = table.column("timestamp").cast(pa.int64()).to_pylist()
    return [
        Record(
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
            timestamp_us // 1000,
        )
        for row, timestamp_us in zip(table.to_pylist(), timestamps_us, strict=True)
    ]


def with_records(encoded: bytes, *, count: int = 1, codec: Codec = Codec.NONE, base_offset: int = 1_000) -> bytearray:
    batch = build_batch([Record()], codec=codec, base_offset=Offset(base_offset))[:61] + compress(codec, encoded)
    pack_into(">i", batch, 8, len(batch) - 12)
    pack_into(">i", batch, 57, count)
    renew_crc(memoryview(batch), 0, len(batch))
    return batch


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    element = pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    expected = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(element)),
    ]
    assert columns_of(build_batch(RECORDS)).schema.equals(pa.schema(expected), check_metadata=True)
    assert pa.schema(expected) == SCHEMA
    # Equality of list types does not compare the name of their child; Spark's does.
    assert columns_of(build_batch(RECORDS)).schema.field("headers").type.value_field.name == "element"
    assert all(field.nullable for field in SCHEMA)


def test_a_record_becomes_a_row() -> None:
    assert columns_of(build_batch(RECORDS, base_offset=Offset(40))).to_pylist()[0] == {
        "key": b"key-a",
        "value": b"value one " * 4,
        "topic": "orders",
        "partition": 3,
        "offset": 40,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": "h1", "value": b"x"}, {"key": "h2", "value": None}],
    }


@pytest.mark.parametrize("name", GOLDEN)
def test_the_batches_of_other_clients_become_columns(name: str) -> None:
    table = columns_of(GOLDEN[name])
    assert records_of(table) == RECORDS
    assert table.column("offset").to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_run_of_batches_becomes_one_table(codec: Codec) -> None:
    run = b"".join(build_batch(RECORDS, base_offset=Offset(offset), codec=codec) for offset in (0, 4, 100))
    table = columns_of(run)
    assert records_of(table) == RECORDS * 3
    assert table.column("offset").to_pylist() == [0, 1, 2, 3, 4, 5, 6, 7, 100, 101, 102, 103]


def test_codecs_may_be_mixed_in_a_run() -> None:
    large = [Record(b"k", bytes([number]) * 100_000, (("n", b"%d" % number),), 5) for number in range(5)]
    batches, offset = [], 0
    for number in range(30):
        records = large if number % 7 == 3 else RECORDS
        batches.append(build_batch(records, base_offset=Offset(offset), codec=Codec(number % 5)))
        offset += len(records)
    expected = [record for number in range(30) for record in (large if number % 7 == 3 else RECORDS)]
    table = columns_of(b"".join(batches))
    assert records_of(table) == expected
    assert table.column("offset").to_pylist() == list(range(offset))


def test_headers_are_empty_lists_and_never_null() -> None:
    headers = columns_of(build_batch([Record(b"k", b"v")])).column("headers")
    assert headers.null_count == 0
    assert headers.to_pylist() == [[]]


def test_the_append_time_is_the_timestamp_when_the_broker_set_it() -> None:
    table = columns_of(build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert table.column("timestampType").to_pylist() == [1] * 4
    assert {record.timestamp for record in records_of(table)} == {1_700_000_000_007}


def test_a_timestamp_that_microseconds_cannot_express_is_the_last_that_they_can() -> None:
    timestamps = [2**63 - 1, -(2**63), 9_223_372_036_854_775, 9_223_372_036_854_776, -1]
    table = columns_of(build_batch([Record(timestamp=timestamp) for timestamp in timestamps]))
    expected = [2**63 - 1, -(2**63), 9_223_372_036_854_775_000, 2**63 - 1, -1_000]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == expected


def test_control_batches_have_no_rows() -> None:
    marker = build_batch(
        [Record(b"\x00\x00\x00\x01", b"\x00" * 6)], base_offset=Offset(4), control=True, transactional=True
    )
    run = build_batch(RECORDS) + marker + build_batch(RECORDS, base_offset=Offset(5))
    assert columns_of(run).column("offset").to_pylist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert columns_of(marker).num_rows == 0


def test_compacted_batches_keep_their_offsets_and_emptied_ones_have_no_rows() -> None:
    batch = build_batch(RECORDS, base_offset=Offset(10), codec=Codec.ZSTD)
    records = list(iter_records(batch, bytes_max=10_000))
    gaps = rebuild_batch(read_header(batch), [records[1], records[3]], delete_horizon_ms=NOW_MS)
    emptied = rebuild_batch(read_header(batch)._replace(base_offset=Offset(14)), [])
    pack_into(">h", emptied, 21, Codec.ZSTD)
    renew_crc(memoryview(emptied), 0, len(emptied))
    table = columns_of(gaps + emptied)
    assert table.column("offset").to_pylist() == [11, 13]
    assert records_of(table) == [RECORDS[1], RECORDS[3]]


def test_no_batches_become_an_empty_table() -> None:
    for batches in (b"", bytearray()):
        table = columns_of(batches)
        assert table.num_rows == 0
        assert table.schema == SCHEMA


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [
        (None, None, range(12)),
        (0, 12, range(12)),
        (3, 9, range(3, 9)),
        (4, 8, range(4, 8)),
        (5, 6, range(5, 6)),
        (11, 99, range(11, 12)),
        (12, None, range(0)),
        (5, 5, range(0)),
        (9, 3, range(0)),
        (None, 0, range(0)),
        (-5, 2, range(2)),
    ],
)
def test_only_offsets_of_the_range_become_rows(
    start: int | None, end: int | None, offsets: range, codec: Codec
) -> None:
    run = b"".join(build_batch(RECORDS, base_offset=Offset(offset), codec=codec) for offset in (0, 4, 8))
    table = columns_of(run, start_offset=start, end_offset=end)
    assert table.column("offset").to_pylist() == list(offsets)
    assert records_of(table) == [RECORDS[offset % 4] for offset in offsets]


def test_batches_outside_the_range_are_not_looked_into() -> None:
    bad = build_batch(RECORDS, base_offset=Offset(0))
    bad[-1] ^= 0xFF
    assert columns_of(bad + build_batch(RECORDS, base_offset=Offset(4)), start_offset=4).num_rows == 4
    with pytest.raises(CorruptBatchError):
        columns_of(bad + build_batch(RECORDS, base_offset=Offset(4)), start_offset=3)


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_single_column_may_be_chosen(name: str) -> None:
    whole = columns_of(build_batch(RECORDS))
    table = columns_of(build_batch(RECORDS), columns=[name])
    assert table.schema.names == [name]
    assert table.column(name).equals(whole.column(name))


def test_columns_come_in_the_order_in_which_they_are_chosen() -> None:
    whole = columns_of(build_batch(RECORDS))
    chosen = ["headers", "offset", "key"]
    assert columns_of(build_batch(RECORDS), columns=chosen).equals(whole.select(chosen))
    assert columns_of(build_batch(RECORDS), columns=[]).num_columns == 0


def test_headers_may_be_left_out() -> None:
    assert columns_of(build_batch(RECORDS), include_headers=False).schema.names == SCHEMA.names[:-1]


@pytest.mark.parametrize("names", [["nothing"], ["key", "key"]])
def test_a_column_that_is_unknown_or_chosen_twice_is_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match="columns must be"):
        columns_of(build_batch(RECORDS), columns=names)


def test_header_keys_that_are_not_utf8_have_replacement_characters() -> None:
    encoded = encode_record(Record(headers=(("??", b"1"), ("fine", None))), 0, 0).replace(b"??", b"\xffa")
    table = columns_of(with_records(encoded))
    assert table.column("headers").to_pylist() == [[{"key": "\ufffda", "value": b"1"}, {"key": "fine", "value": None}]]


def test_a_checksum_that_does_not_hold_is_corrupt_unless_it_is_not_asked_for() -> None:
    batch = build_batch(RECORDS)
    batch[17] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC32C"):
        columns_of(batch)
    assert records_of(columns_of(batch, check_crcs=False)) == RECORDS


def test_a_partial_batch_at_the_end_is_corrupt() -> None:
    run = build_batch(RECORDS) + build_batch(RECORDS, base_offset=Offset(4))
    for size in (len(run) - 1, len(run) // 2 + 1, len(run) // 2 + 61):
        with pytest.raises(CorruptBatchError):
            columns_of(run[:size])


def test_another_message_format_is_not_supported() -> None:
    batch = build_batch(RECORDS)
    batch[16] = 1
    with pytest.raises(UnsupportedMagicError):
        columns_of(batch)


def test_an_unknown_compression_is_refused() -> None:
    batch = build_batch(RECORDS)
    batch[22] = 6
    with pytest.raises(InvalidBatchError, match="offset 0: compression type 6"):
        columns_of(batch, check_crcs=False)


def test_records_that_do_not_decompress_are_refused_by_offset() -> None:
    batch = build_batch(RECORDS, codec=Codec.GZIP, base_offset=Offset(77))
    batch[-10] ^= 0xFF
    with pytest.raises(CodecError, match="the batch at offset 77"):
        columns_of(batch, check_crcs=False)


@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 1])
def test_offsets_that_cannot_be_are_corrupt(base_offset: int) -> None:
    batch = build_batch(RECORDS)
    pack_into(">q", batch, 0, base_offset)
    with pytest.raises(CorruptBatchError, match="are impossible for a batch"):
        columns_of(batch)


@pytest.mark.parametrize("count", [-(2**31), -1, 3, 5, 2**31 - 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_record_count_that_is_not_that_of_the_records_is_corrupt(count: int, codec: Codec) -> None:
    batch = build_batch(RECORDS, base_offset=Offset(1_000), codec=codec)
    pack_into(">i", batch, 57, count)
    renew_crc(memoryview(batch), 0, len(batch))
    with pytest.raises(CorruptBatchError, match="the batch at offset 1000"):
        columns_of(batch)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_the_error_names_only_the_bad_batch(codec: Codec) -> None:
    good = [build_batch(RECORDS, base_offset=Offset(offset), codec=codec) for offset in (0, 2_000)]
    bad = with_records(b"\x20" + bytes(10), codec=codec)
    with pytest.raises(CorruptBatchError, match="the batch at offset 1000: a record of 16 bytes does not fit"):
        columns_of(good[0] + bad + good[1])


@pytest.mark.parametrize("codec", list(Codec))
def test_the_records_of_a_whole_run_are_bounded(codec: Codec) -> None:
    run = b"".join(
        build_batch([Record(value=bytes(10_000))], base_offset=Offset(offset), codec=codec) for offset in range(9)
    )
    assert columns_of(run, bytes_max=100_000).num_rows == 9
    with pytest.raises(RecordsTooLargeError) as caught:
        columns_of(run, bytes_max=80_000)
    assert caught.value.bytes_max == 80_000


def test_columns_do_not_keep_much_more_than_they_hold() -> None:
    run = b"".join(
        build_batch([Record(b"key", bytes(100))] * 100, base_offset=Offset(offset)) for offset in range(0, 100_000, 100)
    )
    before = pa.total_allocated_bytes()
    keys = columns_of(run, columns=["key"])
    assert pa.total_allocated_bytes() - before < len(run) // 4
    assert keys.num_rows == 100_000


@pytest.mark.parametrize("codec", list(Codec))
def test_encoded_columns_equal_the_batch_of_the_builder(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    assert encode(columns_of(batch), now_ms=NOW_MS, codec=codec) == [batch]


def test_rows_are_cut_into_batches_by_count() -> None:
    records = [Record(b"k", b"%d" % number, (), 1_000 + number) for number in range(10)]
    batches = encode(columns_of(build_batch(records)), now_ms=NOW_MS, batch_records_max=4, base_offset=Offset(500))
    headers = [check_batch(memoryview(batch), 0, len(batch)) for batch in batches]
    assert [(header.base_offset, header.count) for header in headers] == [(500, 4), (504, 4), (508, 2)]
    assert [(header.base_timestamp, header.max_timestamp) for header in headers] == [
        (1_000, 1_003),
        (1_004, 1_007),
        (1_008, 1_009),
    ]
    assert records_of(columns_of(b"".join(batches))) == records


def test_rows_are_cut_into_batches_by_bytes() -> None:
    records = [Record(b"k%d" % number, bytes(number * 7 % 50), (), number) for number in range(500)]
    batches = encode(columns_of(build_batch(records)), now_ms=NOW_MS, batch_bytes_max=400)
    assert max(map(len, batches)) <= 400
    # No batch would have had room for the first record of the next.
    for batch, following in pairwise(batches):
        records_in = [list(iter_records(part, bytes_max=1_000)) for part in (batch, following)]
        joined = [
            Record(record.key, record.value, (), record.timestamp) for record in records_in[0] + records_in[1][:1]
        ]
        assert len(build_batch(joined)) > 400
    assert records_of(columns_of(b"".join(batches))) == records


def test_a_record_larger_than_a_batch_gets_its_own_batch() -> None:
    records = [
        Record(value=b"a", timestamp=0),
        Record(value=bytes(1_000), timestamp=0),
        Record(value=b"b", timestamp=0),
    ]
    batches = encode(columns_of(build_batch(records)), now_ms=NOW_MS, batch_bytes_max=100)
    assert [read_header(batch).count for batch in batches] == [1, 1, 1]
    assert records_of(columns_of(b"".join(batches))) == records


def test_sequences_are_counted_on_over_the_batches_and_wrap() -> None:
    table = columns_of(build_batch([Record(value=b"v", timestamp=0)] * 5))
    batches = encode(
        table,
        now_ms=NOW_MS,
        batch_records_max=2,
        producer_id=ProducerId(8),
        producer_epoch=ProducerEpoch(1),
        base_sequence=2**31 - 3,
        transactional=True,
    )
    headers = [check_batch(memoryview(batch), 0, len(batch)) for batch in batches]
    for header in headers:
        check_produced(header)
        assert (header.producer_id, header.producer_epoch, header.is_transactional) == (8, 1, True)
    assert [header.base_sequence for header in headers] == [2**31 - 3, 2**31 - 1, 1]


def test_without_a_producer_no_batch_has_a_sequence() -> None:
    table = columns_of(build_batch([Record(value=b"v", timestamp=0)] * 5))
    for batch in encode(table, now_ms=NOW_MS, batch_records_max=2):
        assert read_header(batch).base_sequence == -1
        check_produced(read_header(batch))


def test_a_row_without_a_timestamp_gets_the_present_one() -> None:
    timestamps = pa.array([datetime(2020, 1, 1, tzinfo=UTC), None], pa.timestamp("us", tz="UTC"))
    with_column = pa.record_batch({"value": pa.array([b"a", b"b"]), "timestamp": timestamps})
    without = pa.record_batch({"value": pa.array([b"a"])})
    assert [record.timestamp for record in records_of(columns_of(encode(with_column, now_ms=NOW_MS)[0]))] == [
        1_577_836_800_000,
        NOW_MS,
    ]
    assert records_of(columns_of(encode(without, now_ms=NOW_MS)[0])) == [Record(None, b"a", (), NOW_MS)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_any_unit_are_taken(unit: str, zone: str | None) -> None:
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    timestamp = pa.array([1_577_836_800 * factor], pa.int64()).cast(pa.timestamp(unit, tz=zone))
    batch = encode(pa.record_batch({"value": pa.array([b"a"]), "timestamp": timestamp}), now_ms=0)[0]
    assert read_header(batch).base_timestamp == 1_577_836_800_000


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view()],
    ids=str,
)
def test_text_and_bytes_of_any_width_are_taken(kind: Any) -> None:
    column = pa.array(["a", None, "", "ü" * 100]).cast(kind)
    batch = encode(pa.record_batch({"key": column, "value": column}), now_ms=0)[0]
    values = [record.value for record in iter_records(batch, bytes_max=1_000)]
    assert values == [b"a", None, b"", "ü".encode() * 100]


def test_columns_of_nulls_are_taken() -> None:
    batch = encode(pa.record_batch({"key": pa.nulls(2), "value": pa.nulls(2)}), now_ms=7)[0]
    assert records_of(columns_of(batch)) == [Record(None, None, (), 7)] * 2


def test_slices_are_encoded_as_their_bytes() -> None:
    records = [
        Record(b"%d" % number if number % 3 else None, b"v" * number, (("h", b"%d" % number),) * (number % 4), number)
        for number in range(40)
    ]
    table = columns_of(build_batch(records))
    for start, length in ((0, 40), (1, 39), (7, 9), (9, 17), (39, 1), (5, 0)):
        batches = encode(table.slice(start, length), now_ms=NOW_MS)
        assert records_of(columns_of(b"".join(batches))) == records[start : start + length]


def test_headers_may_be_null_and_bytes_under_a_null_are_not_encoded() -> None:
    element = pa.struct([("key", pa.string()), ("value", pa.binary())])
    elements = pa.array(
        [{"key": "a", "value": b"1"}, {"key": None, "value": b"2"}, {"key": "c", "value": None}], element
    )
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3]), elements, mask=pa.array([False, True, False]))
    table = pa.record_batch({"value": pa.array([b"x", b"y", b"z"]), "headers": headers})
    decoded = records_of(columns_of(encode(table, now_ms=0)[0]))
    assert [record.headers for record in decoded] == [(("a", b"1"),), (), (("c", None),)]


def test_a_header_without_a_key_is_refused() -> None:
    headers = pa.array([[], [{"key": None, "value": b"2"}]], SCHEMA.field("headers").type)
    with pytest.raises(ValueError, match="row 1 has a header without a key"):
        encode(pa.record_batch({"value": pa.array([b"x", b"y"]), "headers": headers}), now_ms=0)


def test_records_without_a_value_column_are_refused() -> None:
    with pytest.raises(ValueError, match="a column named value"):
        encode(pa.record_batch({"key": pa.array([b"x"])}), now_ms=0)


def test_no_rows_become_no_batches() -> None:
    assert encode(columns_of(b""), now_ms=0) == []


def test_columns_that_are_not_a_records_are_left_alone() -> None:
    table = columns_of(build_batch(RECORDS)).append_column("extra", pa.array([1, 2, 3, 4]))
    assert encode(table, now_ms=0) == [build_batch(RECORDS)]


def test_the_name_of_a_cached_kernel_changes_with_any_source_of_the_package() -> None:
    folder = Path(jit.__file__).parent
    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    digest = sha256(sources).hexdigest()[:16]
    for kernel in (count_batches, decode_records, plan, write):
        assert kernel.__qualname__.endswith(f"_{digest}")


@pytest.mark.slow
def test_kernels_compile_where_no_cache_can_be_written(tmp_path: Path) -> None:
    # A file in the place of a directory cannot be written to, not even by root.
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    program = "from logbrook.records.columns.jit import LONG, compiled\n\ndef twice(value):\n    return value * 2\n\n"
    program += "twice = compiled(LONG, LONG)(twice)\nprint(twice(21))"
    environment = {"NUMBA_CACHE_DIR": str(blocked / "cache"), "HOME": str(blocked), "XDG_CACHE_HOME": str(blocked)}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True, timeout=300
    )
    assert result.stdout.strip() == "42"
