"""The records of a run, decompressed and put side by side as far as it pays.

The kernel is called once for each group. Batches that need no decompression are one group, in place. Decompressed ones
are a group each when they are large; small ones are joined, since calling the kernel costs more than copying them.
"""

import numpy as np

from logbrook.records.batch import CODEC_MASK, RECORD_BYTES_MIN, Codec
from logbrook.records.codecs import decompress
from logbrook.records.columns.sections import ATTRIBUTES, BASE_OFFSET, COUNT, END, START, Bytes, Table
from logbrook.records.errors import CodecError, CorruptBatchError, InvalidBatchError, RecordsTooLargeError

# Bytes that hold records, and the rows of the table whose records they hold.
Group = tuple[Bytes, Table]

_GROUP_BYTES = 256 << 10


def gather(view: memoryview, table: Table, bytes_max: int) -> list[Group]:
    """The groups of the batches in `table`, in order. Raises CodecError, InvalidBatchError or RecordsTooLargeError."""
    if not (table[:, ATTRIBUTES] & CODEC_MASK).any():
        if count_bytes(table) > bytes_max:
            raise RecordsTooLargeError(bytes_max)
        return [(np.frombuffer(view, np.uint8), table)] if len(table) else []
    groups: list[Group] = []
    pieces: list[memoryview] = []
    pieces_bytes, bytes_left = 0, bytes_max
    for row in range(len(table)):
        try:
            records = _decompress(view, table[row].tolist(), bytes_left)
        except RecordsTooLargeError:
            raise RecordsTooLargeError(bytes_max) from None
        bytes_left -= records.nbytes
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
    """How many records the batches say they have. Raises CorruptBatchError when they cannot have as many."""
    counts = table[:, COUNT]
    impossible = (counts < 0) | (counts > (table[:, END] - table[:, START]) // RECORD_BYTES_MIN)
    if impossible.any():
        bad = table[impossible.argmax()]
        raise CorruptBatchError(
            f"the batch at offset {bad[BASE_OFFSET]}: record count {bad[COUNT]} does not fit the"
            f" {bad[END] - bad[START]} bytes of its records"
        )
    return int(counts.sum())


def _decompress(view: memoryview, section: list[int], bytes_max: int) -> memoryview:
    codec = section[ATTRIBUTES] & CODEC_MASK
    records = view[section[START] : section[END]]
    # A batch that compaction has emptied has no records to decompress, whatever its attributes say.
    if section[COUNT] == 0 and not records:
        return records
    if codec > Codec.ZSTD:
        raise InvalidBatchError(f"the batch at offset {section[BASE_OFFSET]}: compression type {codec} is unknown")
    try:
        return decompress(Codec(codec), records, bytes_max)
    except CodecError as error:
        raise CodecError(f"the batch at offset {section[BASE_OFFSET]}: {error}") from None


def _join(pieces: list[memoryview], table: Table) -> Group:
    """One group of the records in `pieces`, which are those of the batches in `table`."""
    ends = np.cumsum([piece.nbytes for piece in pieces])
    table = table.copy()
    table[:, START] = ends - np.diff(ends, prepend=0)
    table[:, END] = ends
    joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return np.frombuffer(joined, np.uint8), table
