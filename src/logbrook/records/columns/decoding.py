"""Record batches to Arrow columns: `decode`.

A run of batches is read in two compiled passes, over the headers of the batches and over the records; Python runs once
for each batch at most, to check its CRC or to decompress it. Memory comes from Arrow's pool, at the size that the bytes
could fill, and is given back where they did not.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from typing_extensions import Buffer

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
    HeaderColumns,
    RecordColumns,
    decode_headers,
    decode_records,
)
from logbrook.records.columns.gathering import count_bytes, count_rows, gather
from logbrook.records.columns.memory import BinaryMemory, Memory
from logbrook.records.columns.schema import schema_of
from logbrook.records.columns.sections import POSITION, Bytes, Table, check_section_crcs, read_run, select
from logbrook.records.errors import CorruptBatchError, RecordsTooLargeError
from logbrook.records.reader import iter_records

BYTES_MAX = 256 << 20
# Arrow's binary columns count their bytes in 32 bits.
_COLUMN_BYTES_MAX = 2**31 - 1
_OFFSET_END = 2**63 - 1


def decode(
    batches: Buffer,
    *,
    topic: str,
    partition: int,
    start_offset: int | None = None,
    end_offset: int | None = None,
    columns: Sequence[str] | None = None,
    include_headers: bool = True,
    check_crcs: bool = True,
    bytes_max: int = BYTES_MAX,
) -> Any:
    """A `pyarrow.RecordBatch` of the records of whole batches, from `start_offset` to before `end_offset`.

    Control batches have no rows. `columns` names the columns wanted, in their order; by default all, or all but the
    headers. `bytes_max` bounds the decompressed records of the whole run. Batches outside the range are not looked at
    beyond their headers. Raises CorruptBatchError, InvalidBatchError, UnsupportedMagicError, CodecError or
    RecordsTooLargeError, and then there are no rows.
    """
    schema = schema_of(columns, include_headers=include_headers)
    view = memoryview(batches).cast("B")
    offset_range = (max(start_offset or 0, 0), _OFFSET_END if end_offset is None else end_offset)
    table = select(read_run(view), *offset_range)
    if check_crcs:
        check_section_crcs(view, table)
    bytes_max = min(bytes_max, _COLUMN_BYTES_MAX)
    groups = gather(view, table, bytes_max)
    rows_max = sum(count_rows(table) for _, table in groups)
    decoder = _Decoder(schema, rows_max, sum(count_bytes(table) for _, table in groups))
    for data, table in groups:
        bad = decoder.read(data, table, offset_range)
        if bad != DONE:
            _raise_corrupt(view, int(table[bad, POSITION]), bytes_max)
    return decoder.finish(topic, partition)


class _Decoder:
    """The columns of one call while they are filled."""

    def __init__(self, schema: Any, rows_max: int, bytes_max: int) -> None:
        self._schema = schema
        self._key = BinaryMemory(rows_max, bytes_max, wanted="key" in schema.names)
        self._value = BinaryMemory(rows_max, bytes_max, wanted="value" in schema.names)
        self._offset = Memory(np.int64, rows_max)
        self._timestamp = Memory(np.int64, rows_max)
        self._timestamp_type = Memory(np.int32, rows_max)
        self._header_ends = Memory(np.int32, rows_max + 1)
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
        # The bytes that were read, and the range of rows that came from them.
        self._parts: list[tuple[Bytes, tuple[int, int]]] = []

    def read(self, data: Bytes, table: Table, offset_range: tuple[int, int]) -> int:
        """DONE, or the row of `table` whose records are not what they should be."""
        first_row = int(self._totals[ROWS])
        bad: int = decode_records(data, table, offset_range, self._records, self._totals)
        self._parts.append((data, (first_row, int(self._totals[ROWS]))))
        return bad

    def finish(self, topic: str, partition: int) -> Any:
        totals, rows = self._totals, int(self._totals[ROWS])
        columns: dict[str, Callable[[Any], Any]] = {
            "key": lambda type_: self._key.finish(type_, rows, totals[KEY_BYTES], totals[KEY_NULLS]),
            "value": lambda type_: self._value.finish(type_, rows, totals[VALUE_BYTES], totals[VALUE_NULLS]),
            "topic": lambda _: _repeat_text(topic, rows),
            "partition": lambda type_: pa.array(np.full(rows, partition, np.int32), type_),
            "offset": lambda type_: self._offset.finish(type_, rows),
            "timestamp": lambda type_: self._timestamp.finish(type_, rows),
            "timestampType": lambda type_: self._timestamp_type.finish(type_, rows),
            "headers": lambda type_: self._finish_headers(type_, rows),
        }
        arrays = [columns[field.name](field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _finish_headers(self, type_: Any, rows: int) -> Any:
        count = int(self._header_ends.array[rows])
        key = BinaryMemory(count, int(self._totals[HEADER_KEY_BYTES]))
        value = BinaryMemory(count, int(self._totals[HEADER_VALUE_BYTES]))
        totals = np.zeros(TOTALS, np.int64)
        if count:
            for data, row_range in self._parts:
                decode_headers(data, row_range, self._records, HeaderColumns(key.column, value.column), totals)
        keys = _as_text(key.finish(pa.binary(), count, totals[HEADER_KEY_BYTES], 0))
        values = value.finish(pa.binary(), count, totals[HEADER_VALUE_BYTES], totals[HEADER_VALUE_NULLS])
        elements = pa.StructArray.from_arrays([keys, values], fields=list(type_.value_type))
        return pa.ListArray.from_arrays(self._header_ends.finish(pa.int32(), rows + 1), elements, type=type_)


def _repeat_text(text: str, rows: int) -> Any:
    """`text`, `rows` times. Arrow's own function for it takes several times as long."""
    data = text.encode()
    if len(data) * rows > _COLUMN_BYTES_MAX:
        raise RecordsTooLargeError(_COLUMN_BYTES_MAX)
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(data * rows))


def _as_text(keys: Any) -> Any:
    """Header keys as strings. Java's clients read one that is not UTF-8 with replacement characters, and so do we."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def _raise_corrupt(view: memoryview, position: int, bytes_max: int) -> NoReturn:
    """Have the slow reader say what is wrong with the batch at `position`."""
    for _ in iter_records(view, position, bytes_max=bytes_max):
        pass
    raise CorruptBatchError(f"the batch at byte {position} of the run holds records that cannot be read")
