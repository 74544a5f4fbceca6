"""Record batches to Arrow columns: `decode`.

Consecutive batches are read in two compiled passes, over batch headers and over records; Python runs at most once per
batch, to verify its CRC or to decompress it. The first pass makes a table with a row per batch and the byte range of
its records, its section (see `sections`). Columns are written through numpy into buffers of Arrow's pool, allocated at
the largest size that the input could fill; pages that are never written use no physical memory. A buffer filled to less
than half is copied, to release the rest.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import Buffer

from logbrook.model.identifiers import Offset
from logbrook.records.columns.decode_kernels import (
    DONE,
    HEADER_KEY_BYTES,
    HEADER_VALUE_BYTES,
    HEADER_VALUE_NULLS,
    KEY_BYTES,
    KEY_NULLS,
    ROWS,
    TOTALS,
    VALUE_BYTES,
    VALUE_NULLS,
    BinaryColumn,
    HeaderColumns,
    RecordColumns,
    decode_headers,
    decode_records,
)
from logbrook.records.columns.schema import schema_of
from logbrook.records.columns.sections import (
    POSITION,
    Bytes,
    Table,
    check_section_crcs,
    count_bytes,
    count_rows,
    gather,
    read_run,
    select,
)
from logbrook.records.errors import CorruptBatchError, RecordsTooLargeError
from logbrook.records.reader import iter_records

BYTES_MAX = 256 << 20
# Arrow's binary columns have 32-bit offsets.
_COLUMN_BYTES_MAX = 2**31 - 1
_OFFSET_END = Offset(2**63 - 1)


def decode(
    batches: Buffer,
    *,
    topic: str,
    partition: int,
    start_offset: Offset | None = None,
    end_offset: Offset | None = None,
    columns: Sequence[str] | None = None,
    include_headers: bool = True,
    check_crcs: bool = True,
    bytes_max: int = BYTES_MAX,
) -> Any:
    """Decode the records of whole batches with offsets in [start_offset, end_offset) to a `pyarrow.RecordBatch`.

    Control batches yield no rows. `columns` are the columns to return, in order; by default all, or all but the
    headers. `bytes_max` bounds the decompressed records in total. Of batches outside the range only the headers are
    read. Raises CorruptBatchError, InvalidBatchError, UnsupportedMagicError, CodecError or RecordsTooLargeError.
    """
    schema = schema_of(columns, include_headers=include_headers)
    view = memoryview(batches).cast("B")
    offset_range = (Offset(max(start_offset or 0, 0)), _OFFSET_END if end_offset is None else end_offset)
    table = select(read_run(view), *offset_range)
    if check_crcs:
        check_section_crcs(view, table)
    bytes_max = min(bytes_max, _COLUMN_BYTES_MAX)
    groups = gather(view, table, bytes_max)
    rows_max = sum(count_rows(table) for _, table in groups)
    decoder = _Decoder(schema, rows_max, sum(count_bytes(table) for _, table in groups))
    for data, table in groups:
        malformed_row = decoder.read(data, table, offset_range)
        if malformed_row != DONE:
            _raise_corrupt(view, int(table[malformed_row, POSITION]), bytes_max)
    return decoder.finish(topic, partition)


class _Decoder:
    """The columns of one `decode` call while they are filled."""

    def __init__(self, schema: Any, rows_max: int, bytes_max: int) -> None:
        self._schema = schema
        self._key = BinaryColumnBuffer(rows_max, bytes_max, is_selected="key" in schema.names)
        self._value = BinaryColumnBuffer(rows_max, bytes_max, is_selected="value" in schema.names)
        self._offset = ColumnBuffer(np.int64, rows_max)
        self._timestamp = ColumnBuffer(np.int64, rows_max)
        self._timestamp_type = ColumnBuffer(np.int32, rows_max)
        self._header_ends = ColumnBuffer(np.int32, rows_max + 1)
        self._header_ends.array[0] = 0
        self._records = RecordColumns(
            key=self._key.column,
            value=self._value.column,
            offset=self._offset.array,
            timestamp_us=self._timestamp.array,
            timestamp_type=self._timestamp_type.array,
            header_ends=self._header_ends.array,
            header_positions=np.empty(rows_max, np.int64),
        )
        self._totals = np.zeros(TOTALS, np.int64)
        # Input bytes, and the range of rows decoded from them.
        self._parts: list[tuple[Bytes, tuple[int, int]]] = []

    def read(self, data: Bytes, table: Table, offset_range: tuple[int, int]) -> int:
        """Decode the sections in `table`. Returns DONE, or the row of `table` whose records are malformed."""
        first_row = int(self._totals[ROWS])
        malformed_row: int = decode_records(data, table, offset_range, self._records, self._totals)
        self._parts.append((data, (first_row, int(self._totals[ROWS]))))
        return malformed_row

    def finish(self, topic: str, partition: int) -> Any:
        totals, rows = self._totals, int(self._totals[ROWS])
        columns: dict[str, Callable[[Any], Any]] = {
            "key": lambda type_: self._key.finish(type_, rows, totals[KEY_BYTES], totals[KEY_NULLS]),
            "value": lambda type_: self._value.finish(type_, rows, totals[VALUE_BYTES], totals[VALUE_NULLS]),
            "topic": lambda _: _repeat_text(topic, rows),
            "partition": lambda type_: _repeat_number(partition, type_, rows),
            "offset": lambda type_: self._offset.finish(type_, rows),
            "timestamp": lambda type_: self._timestamp.finish(type_, rows),
            "timestampType": lambda type_: self._timestamp_type.finish(type_, rows),
            "headers": lambda type_: self._finish_headers(type_, rows),
        }
        arrays = [columns[field.name](field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _finish_headers(self, type_: Any, rows: int) -> Any:
        count = int(self._header_ends.array[rows])
        key = BinaryColumnBuffer(count, int(self._totals[HEADER_KEY_BYTES]))
        value = BinaryColumnBuffer(count, int(self._totals[HEADER_VALUE_BYTES]))
        totals = np.zeros(TOTALS, np.int64)
        if count:
            for data, row_range in self._parts:
                decode_headers(data, row_range, self._records, HeaderColumns(key.column, value.column), totals)
        keys = _as_text(key.finish(pa.binary(), count, totals[HEADER_KEY_BYTES], 0))
        values = value.finish(pa.binary(), count, totals[HEADER_VALUE_BYTES], totals[HEADER_VALUE_NULLS])
        elements = pa.StructArray.from_arrays([keys, values], fields=list(type_.value_type))
        return pa.ListArray.from_arrays(self._header_ends.finish(pa.int32(), rows + 1), elements, type=type_)


def _repeat_text(text: str, rows: int) -> Any:
    """Return an array of `rows` times `text`. Arrow's own function takes several times as long."""
    data = text.encode()
    if len(data) * rows > _COLUMN_BYTES_MAX:
        raise RecordsTooLargeError(_COLUMN_BYTES_MAX)
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(data * rows))


def _repeat_number(number: int, type_: Any, rows: int) -> Any:
    """Return an array of `rows` times the 32-bit `number`. pyarrow.array would import pandas, which takes a second."""
    column = ColumnBuffer(np.int32, rows)
    column.array.fill(number)
    return column.finish(type_, rows)


def _as_text(keys: Any) -> Any:
    """Convert header keys to strings, invalid UTF-8 with replacement characters, as the Java client does."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def _raise_corrupt(view: memoryview, position: int, bytes_max: int) -> NoReturn:
    """Raise the error that `iter_records` reports for the batch at `position`."""
    for _ in iter_records(view, position, bytes_max=bytes_max):
        pass
    raise CorruptBatchError(f"the batch at byte {position} has records that cannot be decoded")


_ALL_VALID = 0xFF


class ColumnBuffer:
    """A buffer of `length` numbers in Arrow's memory pool, with a numpy view."""

    def __init__(self, dtype: npt.DTypeLike, length: int) -> None:
        self._buffer = pa.allocate_buffer(length * np.dtype(dtype).itemsize)
        self.array: npt.NDArray[Any] = np.frombuffer(self._buffer, dtype)

    def buffer(self, length: int) -> Any:
        """Return the first `length` numbers as an Arrow buffer."""
        if length < self.array.size // 2:
            return pa.py_buffer(self.array[:length].copy())
        return self._buffer.slice(0, length * self.array.itemsize)

    def finish(self, arrow_type: Any, length: int) -> Any:
        return pa.Array.from_buffers(arrow_type, length, [None, self.buffer(length)], null_count=0)


class BinaryColumnBuffer:
    """Buffers for `rows` values of `bytes_max` bytes in total; empty unless `is_selected`: kernels skip it."""

    def __init__(self, rows: int, bytes_max: int, *, is_selected: bool = True) -> None:
        self._ends = ColumnBuffer(np.int32, rows + 1 if is_selected else 0)
        self._data = ColumnBuffer(np.uint8, bytes_max if is_selected else 0)
        self._validity = ColumnBuffer(np.uint8, (rows + 7) // 8 if is_selected else 0)
        self._ends.array[:1] = 0
        self._validity.array.fill(_ALL_VALID)
        self.column = BinaryColumn(self._ends.array, self._data.array, self._validity.array)

    def finish(self, arrow_type: Any, rows: int, used_bytes: int, nulls: int) -> Any:
        validity = self._validity.buffer((rows + 7) // 8) if nulls else None
        buffers = [validity, self._ends.buffer(rows + 1), self._data.buffer(int(used_bytes))]
        return pa.Array.from_buffers(arrow_type, rows, buffers, null_count=int(nulls))
