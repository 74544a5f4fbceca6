"""Record batches to text, in blocks: `print_records`, for `logbrook consume`.

A `TextLayout` is what is printed of each record: constant bytes and the names of fields. Batches are decoded to
columns, and a compiled loop prints the rows. Python runs once per call.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import Buffer

from logbrook.model.identifiers import Offset
from logbrook.records.columns.decoding import BYTES_MAX, decode
from logbrook.records.columns.encode_kernels import BinaryInput
from logbrook.records.columns.encoding import binary_input, readonly
from logbrook.records.columns.text_kernels import (
    CONSTANT,
    ESCAPED_BYTES_MAX,
    ISO_TIME,
    JSON,
    KEY,
    LENGTH,
    NULL_BYTES,
    NUMBER_BYTES_MAX,
    OFFSET,
    PART_FIELDS,
    RAW,
    TIME_BYTES_MAX,
    TIMESTAMP,
    UNPRINTABLE,
    VALUE,
    TextInput,
    write_rows,
)

# The names of fields in a layout: the kind of part, the column of the kernel, and the column to decode.
_FIELDS = {
    "key": (RAW, KEY, "key"),
    "value": (RAW, VALUE, "value"),
    "key_length": (LENGTH, KEY, "key"),
    "value_length": (LENGTH, VALUE, "value"),
    "key_json": (JSON, KEY, "key"),
    "value_json": (JSON, VALUE, "value"),
    "offset": (OFFSET, 0, "offset"),
    "timestamp": (TIMESTAMP, 0, "timestamp"),
    "iso_time": (ISO_TIME, 0, "timestamp"),
}
_COLUMNS = ("key", "value", "offset", "timestamp")
_NO_BYTES = np.zeros(0, np.uint8)


class TextBlock(NamedTuple):
    """The text of consecutive records, the position after each in the text, and their offsets."""

    text: memoryview
    row_ends: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]

    @property
    def row_count(self) -> int:
        return len(self.row_ends)

    def first(self, count: int) -> "TextBlock":
        """Return the first `count` records, at least one and fewer than there are."""
        return TextBlock(self.text[: int(self.row_ends[count - 1])], self.row_ends[:count], self.offsets[:count])

    @property
    def last_offset(self) -> Offset:
        return Offset(int(self.offsets[-1]))


class TextLayout:
    """The parts of a row: constant bytes, and names of fields, which are the keys of `_FIELDS`.

    With `without_headers`, a record that has headers cannot be printed.
    """

    def __init__(self, parts: Sequence[bytes | str], *, without_headers: bool = False) -> None:
        """Raises KeyError for an unknown field."""
        self.without_headers = without_headers
        self.table = np.zeros((len(parts), PART_FIELDS), np.int64)
        constants = bytearray()
        for index, part in enumerate(parts):
            if isinstance(part, bytes):
                self.table[index] = CONSTANT, len(constants), len(constants) + len(part)
                constants += part
            else:
                kind, column, _ = _FIELDS[part]
                self.table[index] = kind, column, 0
        self.constants = readonly(np.array(constants, np.uint8))
        self._fields = [_FIELDS[part] for part in parts if isinstance(part, str)]
        needed = {"offset", *(column for _, _, column in self._fields)}
        self.columns = [name for name in _COLUMNS if name in needed]
        # Columns that must be UTF-8.
        self.text_columns = {column for kind, _, column in self._fields if kind == JSON}

    def bytes_max(self, records: Any) -> int:
        """Return an upper bound of the text of `records`."""
        row_bytes, data_bytes = len(self.constants), 0
        for kind, _, column in self._fields:
            if kind in (RAW, JSON):
                data_bytes += _data_bytes(records.column(column)) * (ESCAPED_BYTES_MAX if kind == JSON else 1)
            row_bytes += {RAW: 0, JSON: NULL_BYTES, ISO_TIME: TIME_BYTES_MAX}.get(kind, NUMBER_BYTES_MAX)
        return row_bytes * int(records.num_rows) + data_bytes


def print_records(
    batches: Buffer,
    layout: TextLayout,
    *,
    start_offset: Offset,
    end_offset: Offset | None,
    bytes_max: int = BYTES_MAX,
) -> TextBlock | None:
    """Print the records of whole batches with offsets in [start_offset, end_offset). Checksums are not verified.

    Returns None if a record cannot be printed by this layout: one with headers, if they would be printed, one whose key
    or value is not UTF-8, if JSON is, or one with a timestamp far outside the calendar. Raises RecordsError.
    """
    columns = [*layout.columns, "headers"] if layout.without_headers else layout.columns
    records = decode(
        batches,
        topic="",
        partition=0,
        start_offset=start_offset,
        end_offset=end_offset,
        columns=columns,
        check_crcs=False,
        bytes_max=bytes_max,
    )
    if layout.without_headers and len(records.column("headers").values):
        return None
    if not all(_is_text(records.column(name)) for name in layout.text_columns):
        return None
    offsets = np.asarray(records.column("offset"))
    text = np.empty(layout.bytes_max(records), np.uint8)
    row_ends = np.empty(records.num_rows, np.int64)
    size = write_rows(_text_input(records, offsets), layout.table, layout.constants, row_ends, text)
    if size == UNPRINTABLE:
        return None
    return TextBlock(text.data[:size], row_ends, offsets)


def _text_input(records: Any, offsets: npt.NDArray[np.int64]) -> TextInput:
    names = records.schema.names
    empty = BinaryInput(readonly(np.zeros(0, np.int32)), readonly(_NO_BYTES), readonly(_NO_BYTES), -1)
    timestamps = np.zeros(0, np.int64)
    if "timestamp" in names:
        timestamps = np.asarray(records.column("timestamp").cast(pa.int64()))
    return TextInput(
        key=binary_input(records.column("key")) if "key" in names else empty,
        value=binary_input(records.column("value")) if "value" in names else empty,
        offset=readonly(offsets),
        timestamp_us=readonly(timestamps),
    )


def _data_bytes(column: Any) -> int:
    """Return the number of bytes of all values of a binary column."""
    ends = np.frombuffer(column.buffers()[1], np.int32)
    return int(ends[column.offset + len(column)] - ends[column.offset])


def _is_text(column: Any) -> bool:
    """Return True if all values are UTF-8."""
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
