"""Batch headers as a table, and decompression of the batches' records.

The table has one row per batch, with header fields and the byte range of its records (its section). Headers are read by
compiled code, because there may be a batch for every record; where it stops, `check_batch` raises the error.

The decoding kernel is called once per group of sections. Uncompressed batches form one group, in place. Decompressed
batches form a group each if they are large; small ones are joined, since a kernel call costs more than copying them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from logbrook.model.identifiers import Offset
from logbrook.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    Codec,
    check_batch,
)
from logbrook.records.codecs import decompress
from logbrook.records.columns.jit import BYTE_POINTER, BYTES_IN, LONG, PAIR, TABLE, compiled, pointer, types
from logbrook.records.errors import CodecError, CorruptBatchError, InvalidBatchError, RecordsTooLargeError

# Columns of the table. START and END delimit the section, POSITION is that of the batch.
START, END, BASE_OFFSET, LAST_OFFSET_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, COUNT, ATTRIBUTES, CRC, POSITION = range(10)
SECTION_FIELDS = 10

Bytes = npt.NDArray[np.uint8]
Table = npt.NDArray[np.int64]

_MAGIC_POSITION = 16
_INT64_MAX = 2**63 - 1


def read_run(view: memoryview) -> Table:
    """Read the table of all batches in `view`. Raises CorruptBatchError or UnsupportedMagicError."""
    run = np.frombuffer(view, np.uint8)
    count, position = count_batches(run)
    if position != run.size:
        header = check_batch(view, position, view.nbytes)
        raise CorruptBatchError(f"offsets {header.base_offset} to {header.last_offset} are impossible for a batch")
    sections = np.empty((count, SECTION_FIELDS), np.int64)
    read_sections(run, sections)
    return sections


def select(sections: Table, start_offset: Offset, end_offset: Offset) -> Table:
    """Return the batches with records in [start_offset, end_offset), without control batches."""
    base_offsets = sections[:, BASE_OFFSET]
    wanted = (base_offsets + sections[:, LAST_OFFSET_DELTA] >= start_offset) & (base_offsets < end_offset)
    wanted &= sections[:, ATTRIBUTES] & CONTROL_BIT == 0
    return sections if wanted.all() else sections[wanted]


def check_section_crcs(view: memoryview, sections: Table) -> None:
    """Raises CorruptBatchError for the first batch with an invalid checksum."""
    for position, end, crc in sections[:, (POSITION, END, CRC)].tolist():
        if crc32c(view[position + CRC_COVERS_FROM : end]) != crc:
            check_batch(view, position, end)


@compiled(LONG, BYTE_POINTER, LONG, LONG)
def read_big_endian(data: Any, position: Any, size: int) -> Any:
    """Return the signed integer of `size` bytes at `position`."""
    value = np.int64(np.int8(data[position]))
    for index in range(position + 1, position + size):
        value = value << 8 | np.int64(data[index])
    return value


@compiled(PAIR, BYTES_IN)
def count_batches(run: Any) -> Any:
    """Return (number of consecutive valid headers from the start, position after their batches).

    The position is the end of the buffer unless the header there is invalid.
    """
    data = pointer(run)
    position, end, count = np.int64(0), np.int64(run.size), np.int64(0)
    while end - position >= HEADER_BYTES:
        size = LENGTH_PREFIX_BYTES + read_big_endian(data, position + 8, 4)
        if size < HEADER_BYTES or size > end - position or data[position + _MAGIC_POSITION] != MAGIC_V2:
            break
        base_offset = read_big_endian(data, position, 8)
        if base_offset < 0 or read_big_endian(data, position + 23, 4) > _INT64_MAX - base_offset:
            break
        position += size
        count += 1
    return count, position


@compiled(types.void, BYTES_IN, TABLE)
def read_sections(run: Any, sections: Any) -> None:
    """Fill a row of `sections` for each batch that was counted."""
    data = pointer(run)
    position = np.int64(0)
    for row in range(sections.shape[0]):
        sections[row, POSITION] = position
        sections[row, BASE_OFFSET] = read_big_endian(data, position, 8)
        sections[row, CRC] = read_big_endian(data, position + 17, 4) & 0xFFFF_FFFF
        sections[row, ATTRIBUTES] = read_big_endian(data, position + 21, 2)
        sections[row, LAST_OFFSET_DELTA] = read_big_endian(data, position + 23, 4)
        sections[row, BASE_TIMESTAMP] = read_big_endian(data, position + 27, 8)
        sections[row, MAX_TIMESTAMP] = read_big_endian(data, position + 35, 8)
        sections[row, COUNT] = read_big_endian(data, position + 57, 4)
        sections[row, START] = position + HEADER_BYTES
        position += LENGTH_PREFIX_BYTES + read_big_endian(data, position + 8, 4)
        sections[row, END] = position


# A buffer of records, and the rows of the table whose sections it holds.
SectionGroup = tuple[Bytes, Table]

_GROUP_BYTES = 256 << 10


def gather(view: memoryview, table: Table, bytes_max: int) -> list[SectionGroup]:
    """Return the groups of the sections in `table`. Raises CodecError, InvalidBatchError or RecordsTooLargeError."""
    if not (table[:, ATTRIBUTES] & CODEC_MASK).any():
        if count_bytes(table) > bytes_max:
            raise RecordsTooLargeError(bytes_max)
        return [(np.frombuffer(view, np.uint8), table)] if len(table) else []
    groups: list[SectionGroup] = []
    pieces: list[memoryview] = []
    pieces_bytes, remaining_bytes = 0, bytes_max
    for row in range(len(table)):
        try:
            records = _decompress(view, table[row].tolist(), remaining_bytes)
        except RecordsTooLargeError:
            raise RecordsTooLargeError(bytes_max) from None
        remaining_bytes -= records.nbytes
        pieces_bytes += records.nbytes
        pieces.append(records)
        if pieces_bytes >= _GROUP_BYTES:
            groups.append(_join(pieces, table[row + 1 - len(pieces) : row + 1]))
            pieces, pieces_bytes = [], 0
    if pieces:
        groups.append(_join(pieces, table[-len(pieces) :]))
    return groups


def count_bytes(table: Table) -> int:
    return int((table[:, END] - table[:, START]).sum())


def count_rows(table: Table) -> int:
    """Sum the record counts of the headers. Raises CorruptBatchError if a section is too small for its count."""
    counts = table[:, COUNT]
    impossible = (counts < 0) | (counts > (table[:, END] - table[:, START]) // RECORD_BYTES_MIN)
    if impossible.any():
        bad = table[impossible.argmax()]
        raise CorruptBatchError(
            f"the batch at offset {bad[BASE_OFFSET]}: record count {bad[COUNT]} is impossible in"
            f" {bad[END] - bad[START]} bytes of records"
        )
    return int(counts.sum())


def _decompress(view: memoryview, section: list[int], bytes_max: int) -> memoryview:
    codec = section[ATTRIBUTES] & CODEC_MASK
    records = view[section[START] : section[END]]
    # A batch emptied by compaction has nothing to decompress, whatever its attributes.
    if section[COUNT] == 0 and not records:
        return records
    if codec > Codec.ZSTD:
        raise InvalidBatchError(f"the batch at offset {section[BASE_OFFSET]}: compression type {codec} is unknown")
    try:
        return decompress(Codec(codec), records, bytes_max)
    except CodecError as error:
        raise CodecError(f"the batch at offset {section[BASE_OFFSET]}: {error}") from None


def _join(pieces: list[memoryview], table: Table) -> SectionGroup:
    """Join the sections of `table`, whose records are `pieces`, into one group."""
    ends = np.cumsum([piece.nbytes for piece in pieces])
    table = table.copy()
    table[:, START] = ends - np.diff(ends, prepend=0)
    table[:, END] = ends
    joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return np.frombuffer(joined, np.uint8), table
