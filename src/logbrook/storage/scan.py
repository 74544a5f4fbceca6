"""Walking the batches of a file, each one checked, with a bounded window of memory."""

from collections.abc import Iterator
from typing import NamedTuple

from logbrook.ports import File
from logbrook.records.batch import HEADER_BYTES, BatchHeader, check_batch, read_header, read_prefix

_WINDOW_BYTES = 1 << 20


class ScannedBatch(NamedTuple):
    position: int
    header: BatchHeader
    data: memoryview


def scan_batches(file: File, position: int, end: int) -> Iterator[ScannedBatch]:
    """Every batch from `position` to `end`, its checksum verified. Raises RecordsError at the first bad one."""
    window = memoryview(b"")
    while position < end:
        if len(window) < _bytes_needed(window, end - position):
            window = memoryview(file.pread(min(_WINDOW_BYTES, end - position), position))
            needed = _bytes_needed(window, end - position)
            if len(window) < needed:
                window = memoryview(file.pread(needed, position))
        header = check_batch(window, 0, len(window))
        yield ScannedBatch(position, header, window[: header.size])
        window = window[header.size :]
        position += header.size


def scan_headers(file: File, position: int, end: int) -> Iterator[BatchHeader]:
    """The header of every batch from `position` to `end`, unchecked, for a file whose batches were checked before.

    Ends early where there is no header: whoever reads the batches themselves will find out.
    """
    while position + HEADER_BYTES <= end:
        data = file.pread(HEADER_BYTES, position)
        if len(data) < HEADER_BYTES:
            return
        header = read_header(data)
        if header.size < HEADER_BYTES:
            return
        yield header
        position += header.size


def _bytes_needed(window: memoryview, left: int) -> int:
    """What must be in the window to check its first batch. A length that lies gets no more than the file has left."""
    if len(window) < HEADER_BYTES:
        return min(HEADER_BYTES, left)
    return min(max(HEADER_BYTES, read_prefix(window)[1]), left)
