"""A run of batches as a table: one row for each batch, with what its header says and where its records stand.

The headers are read and checked by compiled code, because a run may have a batch for every record. What it stops at is
given to `check_batch`, which knows how to say what is wrong.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from logbrook.records.batch import (
    CONTROL_BIT,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    check_batch,
)
from logbrook.records.columns.jit import BYTE_POINTER, BYTES_IN, LONG, PAIR, TABLE, compiled, pointer, types
from logbrook.records.errors import CorruptBatchError

# The columns of the table. A section is the records of a batch; its position is that of the batch.
START, END, BASE_OFFSET, LAST_OFFSET_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, COUNT, ATTRIBUTES, CRC, POSITION = range(10)
SECTION_FIELDS = 10

Bytes = npt.NDArray[np.uint8]
Table = npt.NDArray[np.int64]

_MAGIC_POSITION = 16
_INT64_MAX = 2**63 - 1


def read_run(view: memoryview) -> Table:
    """The table of the batches in `view`, all of it. Raises CorruptBatchError or UnsupportedMagicError."""
    run = np.frombuffer(view, np.uint8)
    count, position = count_batches(run)
    if position != run.size:
        header = check_batch(view, position, view.nbytes)
        raise CorruptBatchError(f"offsets {header.base_offset} to {header.last_offset} cannot be those of a batch")
    sections = np.empty((count, SECTION_FIELDS), np.int64)
    read_sections(run, sections)
    return sections


def select(sections: Table, start_offset: int, end_offset: int) -> Table:
    """The batches that may have records from `start_offset` to before `end_offset`. Control batches never have any."""
    base_offsets = sections[:, BASE_OFFSET]
    wanted = (base_offsets + sections[:, LAST_OFFSET_DELTA] >= start_offset) & (base_offsets < end_offset)
    wanted &= sections[:, ATTRIBUTES] & CONTROL_BIT == 0
    return sections if wanted.all() else sections[wanted]


def check_section_crcs(view: memoryview, sections: Table) -> None:
    """Raises CorruptBatchError for the first batch whose checksum does not hold."""
    for position, end, crc in sections[:, (POSITION, END, CRC)].tolist():
        if crc32c(view[position + CRC_COVERS_FROM : end]) != crc:
            check_batch(view, position, end)


@compiled(LONG, BYTE_POINTER, LONG, LONG)
def read_big_endian(data: Any, position: Any, size: int) -> Any:
    """The signed integer of `size` bytes at `position`."""
    value = np.int64(np.int8(data[position]))
    for index in range(position + 1, position + size):
        value = value << 8 | np.int64(data[index])
    return value


@compiled(PAIR, BYTES_IN)
def count_batches(run: Any) -> Any:
    """(how many good headers follow each other from the start, the position behind their batches).

    The position is the end of the run, unless what begins there is bad.
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
    """Fill a row of `sections` for each of the batches that were counted."""
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
