"""The output of `consume`: the records of batches, printed in blocks as large as possible.

There are three ways to print a batch, with the same result:

- by compiled code, millions of records per second. It needs the packages of the extra `columns`, and loading it takes
  about a second. So it is loaded after that much time was spent on the other ways, and only while batches arrive in
  quantity: a --follow that prints records as they are written is not delayed.
- batch by batch in Python, for templates of keys, values and offsets
- record by record, for everything else
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from time import thread_time
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from logbrook.cli.records import RecordFormat, parse_format, printed_parts
from logbrook.client.records_reader import BATCH_BYTES_MAX, FetchedRun, decode_batch
from logbrook.model import TopicPartition
from logbrook.records.batch import BatchHeader, iter_headers
from logbrook.records.errors import RecordsError
from logbrook.records.plain_reader import read_plain_records

if TYPE_CHECKING:
    from logbrook.records.columns.text import TextBlock

SECONDS_BEFORE_COMPILED = 1.0
RUN_BYTES_BEFORE_COMPILED = 128 << 10

_PLAIN_FIELDS = frozenset({"key", "value", "offset"})

# Constant bytes, and names of fields; None if the format cannot be described so.
TextParts: TypeAlias = Sequence[bytes | str] | None
# Prints the records of a run of batches; returns None if it cannot print one of them. Raises RecordsError.
BlockPrinter: TypeAlias = Callable[[FetchedRun], "TextBlock | None"]


class RecordOutput:
    """Writes records to a stream, at most `count` of them if it is given."""

    def __init__(
        self,
        record_format: RecordFormat,
        parts_of: Callable[[TopicPartition], TextParts],
        stream: BinaryIO,
        count: int | None,
        load_compiled: Callable[[], BlockPrinter | None],
    ) -> None:
        """`parts_of` describes the format for a partition; `load_compiled` returns None if it cannot be printed."""
        self._format = record_format
        self._parts_of = parts_of
        self._stream = stream
        self._remaining = count
        self._load_compiled = load_compiled
        self._is_loaded = False
        self._print_compiled: BlockPrinter | None = None
        # The CPU time of printing in Python.
        self._printing_s = 0.0
        # The error of a batch that could not be decoded; the records before it have been written.
        self.damage: RecordsError | None = None

    @property
    def is_full(self) -> bool:
        return self._remaining == 0

    def write(self, runs: Sequence[FetchedRun]) -> dict[TopicPartition, int]:
        """Write and flush records. Returns the next offset of each partition that was written."""
        next_offsets: dict[TopicPartition, int] = {}
        try:
            for run in runs:
                if not self.is_full:
                    self._write_run(run, next_offsets)
        except RecordsError as error:
            self.damage = error
        if next_offsets:
            self._stream.flush()
        return next_offsets

    def _write_run(self, run: FetchedRun, next_offsets: dict[TopicPartition, int]) -> None:
        if not self._is_loaded and self._is_loading_worthwhile(run):
            self._is_loaded = True
            self._print_compiled = self._load_compiled()
        block = None if self._print_compiled is None else _print_block(self._print_compiled, run)
        if block is not None:
            next_offsets[run.partition] = self._write_block(run, block)
            return
        started_s, parts = thread_time(), self._parts_of(run.partition)
        for position, header in iter_headers(run.batches):
            if not header.is_control and not self.is_full:
                lines = _print_plain(run, position, header, parts)
                next_offset = self._write_records(run, position) if lines is None else self._write_lines(lines)
                next_offsets[run.partition] = header.next_offset if next_offset is None else next_offset
        self._printing_s += thread_time() - started_s

    def _is_loading_worthwhile(self, run: FetchedRun) -> bool:
        return self._printing_s >= SECONDS_BEFORE_COMPILED and len(run.batches) >= RUN_BYTES_BEFORE_COMPILED

    def _write_block(self, run: FetchedRun, block: "TextBlock") -> int:
        """Return the next offset to print."""
        is_complete = self._remaining is None or block.row_count <= self._remaining
        if self._remaining is not None:
            block = block if is_complete else block.first(self._remaining)
            self._remaining -= block.row_count
        self._stream.write(block.text)
        return run.next_offset if is_complete else block.last_offset + 1

    def _write_lines(self, lines: "PlainLines") -> int | None:
        """Return the next offset to print if not all were."""
        count = self._take(lines.count)
        self._stream.write(lines.text(count))
        return None if count == lines.count else lines.first_offset + count

    def _write_records(self, run: FetchedRun, position: int) -> int | None:
        """Return the next offset to print if not all were. Raises RecordsError."""
        records = decode_batch(run, position)
        printed = records[: self._take(len(records))]
        record_format, partition = self._format, run.partition
        self._stream.write(b"".join([record_format(partition, record) for record in printed]))
        return None if len(printed) == len(records) else printed[-1].offset + 1

    def _take(self, count: int) -> int:
        """Return how many of `count` records are to be printed."""
        if self._remaining is not None:
            count = min(count, self._remaining)
            self._remaining -= count
        return count


class PlainLines:
    """The columns of text of consecutive records in a batch."""

    def __init__(self, columns: Sequence[Sequence[bytes] | bytes], first_offset: int, count: int) -> None:
        self._columns = columns
        self.first_offset = first_offset
        self.count = count

    def text(self, count: int) -> bytes:
        """Return the text of the first `count` records."""
        columns: list[Iterable[bytes]] = [
            repeat(column, count) if isinstance(column, bytes) else column[:count] for column in self._columns
        ]
        return b"".join(chain.from_iterable(zip(*columns, strict=True)))


def open_output(form: str, stream: BinaryIO, count: int | None) -> RecordOutput:
    """Return the output for a format or template; end the command if it is invalid.

    On a terminal, control characters of records are escaped, record by record.
    """
    if stream.isatty():
        return RecordOutput(parse_format(form, is_terminal=True), lambda _: None, stream, count, lambda: None)
    record_format = parse_format(form)
    parts: dict[TopicPartition, TextParts] = {}

    def parts_of(partition: TopicPartition) -> TextParts:
        if partition not in parts:
            parts[partition] = printed_parts(form, partition)
        return parts[partition]

    return RecordOutput(record_format, parts_of, stream, count, lambda: load_compiled(form))


def load_compiled(form: str) -> BlockPrinter | None:
    """Load the compiled code. Returns None if it is not installed or cannot print this format."""
    if printed_parts(form, TopicPartition("", 0)) is None:
        return None
    try:
        from logbrook.records.columns.text import TextLayout, print_records  # noqa: PLC0415 - slow to import
    except ImportError:
        return None
    layouts: dict[TopicPartition, TextLayout] = {}

    def print_block(run: FetchedRun) -> "TextBlock | None":
        if run.partition not in layouts:
            parts = printed_parts(form, run.partition)
            assert parts is not None
            layouts[run.partition] = TextLayout(parts, without_headers=form == "json")
        return print_records(run.batches, layouts[run.partition], start_offset=run.start, end_offset=run.end)

    return print_block


def _print_block(print_compiled: BlockPrinter, run: FetchedRun) -> "TextBlock | None":
    try:
        return print_compiled(run)
    except RecordsError:
        # Printed batch by batch, the records before the damage are written before the error is raised.
        return None


def _print_plain(run: FetchedRun, position: int, header: BatchHeader, parts: TextParts) -> PlainLines | None:
    """Return the wanted records of the batch at `position`, or None if they have to be printed one by one."""
    if parts is None or not _PLAIN_FIELDS.issuperset(part for part in parts if isinstance(part, str)):
        return None
    records = read_plain_records(run.batches, position, header, bytes_max=BATCH_BYTES_MAX)
    if records is None:
        return None
    first = max(header.base_offset, run.start)
    end = header.next_offset if run.end is None else min(header.next_offset, run.end)
    wanted = slice(first - header.base_offset, end - header.base_offset)
    fields: dict[str, Sequence[bytes]] = {"key": records.keys[wanted], "value": records.values[wanted]}
    if "offset" in parts:
        fields["offset"] = [b"%d" % offset for offset in range(first, end)]
    return PlainLines([part if isinstance(part, bytes) else fields[part] for part in parts], first, end - first)
