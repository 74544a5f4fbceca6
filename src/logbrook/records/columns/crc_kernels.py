"""Compiled CRC32C of small batches, for which a call of the library from Python costs more than the checksum."""

from typing import Any

import numpy as np

from logbrook.records.batch import CRC_COVERS_FROM, CRC_POSITION, LENGTH_PREFIX_BYTES
from logbrook.records.columns.jit import (
    BYTE_POINTER,
    BYTES,
    BYTES_IN,
    LONG,
    LONGS,
    TABLE,
    compiled,
    pointer,
    types,
)
from logbrook.records.columns.sections import CRC, END, POSITION, read_big_endian

_TABLES = types.uint32[:, ::1]


@compiled(types.uint64, BYTE_POINTER, LONG, LONG)
def read_word(data: Any, position: Any, size: Any) -> Any:
    """Return the little-endian integer of `size` bytes, at most 8, at `position`."""
    word = np.uint64(0)
    for index in range(size):
        word |= np.uint64(data[position + index]) << np.uint64(8 * index)
    return word


@compiled(types.void, BYTE_POINTER, LONG, LONG, LONG)
def write_big_endian(out: Any, position: Any, size: Any, value: Any) -> None:
    for index in range(size):
        out[position + index] = np.uint8((value >> (8 * (size - 1 - index))) & 0xFF)


@compiled(types.uint32, BYTE_POINTER, LONG, LONG, _TABLES)
def compute_crc(data: Any, position: Any, end: Any, tables: Any) -> Any:
    """Return the CRC32C of a byte range: eight bytes per step, with a table for each ("slicing-by-8")."""
    crc = np.uint32(0xFFFF_FFFF)
    while end - position >= 8:
        word = read_word(data, position, 8) ^ np.uint64(crc)
        crc = np.uint32(0)
        for byte in range(8):
            crc ^= tables[7 - byte, np.int64((word >> np.uint64(8 * byte)) & np.uint64(0xFF))]
        position += 8
    while position < end:
        crc = tables[0, np.int64((crc ^ np.uint32(data[position])) & np.uint32(0xFF))] ^ (crc >> np.uint32(8))
        position += 1
    return crc ^ np.uint32(0xFFFF_FFFF)


@compiled(LONG, BYTES_IN, TABLE, _TABLES, LONG)
def find_bad_crc(data_in: Any, sections: Any, tables: Any, size_max: Any) -> Any:
    """Return the first batch of at most `size_max` bytes whose checksum does not match, or -1."""
    data = pointer(data_in)
    for row in range(sections.shape[0]):
        position, end = sections[row, POSITION], sections[row, END]
        if end - position <= size_max:
            crc = compute_crc(data, position + CRC_COVERS_FROM, end, tables)
            if np.int64(crc) != sections[row, CRC]:
                return np.int64(row)
    return np.int64(-1)


@compiled(LONG, BYTES, LONGS, _TABLES, LONG)
def write_crcs(out_in: Any, rebuilt: Any, tables: Any, size_max: Any) -> Any:
    """Compute the checksums of the batches at these positions that have at most `size_max` bytes.

    Return the number of the others, whose positions are moved to the front of `rebuilt`.
    """
    out = pointer(out_in)
    others = np.int64(0)
    for number in range(rebuilt.size):
        position = rebuilt[number]
        end = position + LENGTH_PREFIX_BYTES + read_big_endian(out, position + 8, 4)
        if end - position <= size_max:
            crc = compute_crc(out, position + CRC_COVERS_FROM, end, tables)
            write_big_endian(out, position + CRC_POSITION, 4, np.int64(crc))
        else:
            rebuilt[others] = position
            others += 1
    return others
