"""The output of `consume`: blocks printed by compiled code are what is printed record by record."""

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from logbrook.cli import record_output
from logbrook.cli.record_output import RecordOutput, load_compiled, open_output
from logbrook.cli.records import parse_format
from logbrook.client.records_reader import FetchedRun, decode_records
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.records.batch import Codec, TimestampType, read_header
from logbrook.records.builder import build_batch, rebuild_batch
from logbrook.records.errors import RecordsError
from logbrook.records.reader import iter_records
from logbrook.records.record import Record

PARTITION = TopicPartition('a.topic-"of-mine"', 7)
PLAIN = [
    Record(b"key", b"value", (), 1_234),
    Record(None, b"", (), 0),
    Record(b"", None, (), 1_767_225_600_000),
    Record(None, None, (), 1_709_164_799_999),
    Record(b'"quoted" \\ \x00\x01\x1f\x7f\b\t\n\f\r', "é € 😀".encode() * 50, (), 4_102_444_800_001),
    Record(b"k" * 300, b"v" * 70_000, (), 951_782_400_000),
]
HARD = [
    Record(b"\xff", b"\xed\xa0\x80", (), 5),
    Record(b"k", b"v", (("h", b"1"), ("n", None)), 6),
    Record(b"k", b"v", (), -5),
    Record(b"k", b"v", (), 253_402_300_799_999),
    Record(b"k", b"v", (), 2**63 - 1),
]
FORMS = ["raw", "json", "hex", r"%k\t%v\n", r"%t/%p/%o %T %d %K %V %S %s%% \x41\\\n", r"%h %v\n", r"[%T]", "%%"]


def run_of(*batches: bytearray, start: int = 0, end: int | None = None, next_offset: int = 1_000) -> FetchedRun:
    data = memoryview(b"".join(batches))
    return FetchedRun(PARTITION, data, Offset(start), None if end is None else Offset(end), Offset(next_offset))


def batch(records: Sequence[Record], base: int = 0, codec: Codec = Codec.NONE) -> bytearray:
    return build_batch(records, base_offset=Offset(base), codec=codec)


@contextmanager
def compiled_after(seconds: float, run_bytes: int = 0) -> Iterator[None]:
    with (
        patch.object(record_output, "SECONDS_BEFORE_COMPILED", seconds),
        patch.object(record_output, "RUN_BYTES_BEFORE_COMPILED", run_bytes),
    ):
        yield


def one_by_one(form: str, run: FetchedRun) -> bytes:
    record_format = parse_format(form)
    return b"".join(record_format(PARTITION, record) for run in decode_records(run) for record in run.records)


def write(form: str, run: FetchedRun, count: int | None = None, *, compiled: bool) -> tuple[bytes, dict[int, int]]:
    """Return the output, and the next offset by partition."""
    stream = io.BytesIO()
    with compiled_after(0 if compiled else 1e9):
        output = open_output(form, stream, count)
        next_offsets = output.write([run])
        assert (output.damage, output.is_full) == (None, count is not None)
    return stream.getvalue(), {partition.partition: offset for partition, offset in next_offsets.items()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("compiled", [True, False])
def test_blocks_print_the_same_as_single_records(form: str, codec: Codec, compiled: bool) -> None:
    whole = run_of(batch(PLAIN, 0, codec), batch(PLAIN * 20, 100, codec), batch(HARD[2:3], 900, codec))
    for run in (whole, whole._replace(start=Offset(3), end=Offset(107))):
        assert write(form, run, compiled=compiled)[0] == one_by_one(form, run)


@pytest.mark.parametrize("record", HARD, ids=range(len(HARD)))
@pytest.mark.parametrize("form", FORMS)
def test_records_that_blocks_cannot_print_are_printed_one_by_one(form: str, record: Record) -> None:
    run = run_of(batch([*PLAIN, record]))
    for compiled in (True, False):
        assert write(form, run, compiled=compiled)[0] == one_by_one(form, run)


def test_log_append_times_are_printed() -> None:
    run = run_of(build_batch(PLAIN, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert write("%T %d\n", run, compiled=True)[0] == one_by_one("%T %d\n", run)


def test_batches_with_gaps_and_control_batches_are_printed() -> None:
    whole = batch(PLAIN, 10)
    header = read_header(whole)
    kept = [record for record in iter_records(whole, bytes_max=1 << 20) if record.offset != 11]
    control = build_batch([Record(b"\0\0\0\0", b"")], base_offset=Offset(20), control=True)
    run = run_of(rebuild_batch(header, kept), control)
    for compiled in (True, False):
        assert write("%o,", run, compiled=compiled)[0] == b"10,12,13,14,15,"


@pytest.mark.parametrize("form", ["raw", "json", r"%k %v\n", "%d\n"])
def test_compiled_code_prints_these_formats(form: str) -> None:
    print_block = load_compiled(form)
    assert print_block is not None
    block = print_block(run_of(batch(PLAIN, 10)))
    assert block is not None
    assert (block.row_count, block.last_offset) == (len(PLAIN), 10 + len(PLAIN) - 1)


@pytest.mark.parametrize("count", [1, 5, 6, 11, 12])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("form", [r"%o,", r"%o,%h"])
def test_a_count_ends_within_a_block(count: int, compiled: bool, form: str) -> None:
    run = run_of(batch(PLAIN), batch(PLAIN, 50), next_offset=56)
    printed, next_offsets = write(form, run, count, compiled=compiled)
    offsets = [*range(6), *range(50, 56)][:count]
    assert printed == b"".join(b"%d," % offset for offset in offsets)
    assert next_offsets == {7: offsets[-1] + 1}


@pytest.mark.parametrize("seconds", [0, 1e9])
@pytest.mark.parametrize("form", [r"%o,", r"%o,%h"])
def test_records_before_a_damaged_batch_are_printed(seconds: float, form: str) -> None:
    damaged = batch(PLAIN, 50)
    # The last record says that it has a header.
    damaged[-1] = 2
    stream = io.BytesIO()
    with compiled_after(seconds):
        output = open_output(form, stream, None)
        next_offsets = output.write([run_of(batch(PLAIN), damaged)])
    assert stream.getvalue() == b"0,1,2,3,4,5,"
    assert next_offsets == {PARTITION: 6}
    assert isinstance(output.damage, RecordsError)


def test_compiled_code_is_loaded_for_large_runs_once_printing_has_taken_its_time() -> None:
    loads: list[None] = []

    def output() -> RecordOutput:
        return RecordOutput(lambda _, record: b"x", lambda _: None, io.BytesIO(), None, lambda: loads.append(None))

    large = run_of(batch(PLAIN * 2))
    assert len(large.batches) >= record_output.RUN_BYTES_BEFORE_COMPILED
    with compiled_after(1e9, record_output.RUN_BYTES_BEFORE_COMPILED):
        output().write([large] * 3)
    with compiled_after(0, record_output.RUN_BYTES_BEFORE_COMPILED):
        output().write([run_of(batch(PLAIN[:3]))] * 3)
        assert loads == []
        output().write([large] * 3)
        assert loads == [None], "it is loaded once"


def test_without_the_packages_records_are_printed_in_python() -> None:
    with patch.dict(sys.modules, {"logbrook.records.columns.text": None}):
        assert load_compiled("raw") is None
        assert write("raw", run_of(batch(PLAIN[:1])), compiled=True)[0] == b"value\n"
