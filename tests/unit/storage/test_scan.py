"""Walking the batches of a file, each one checked."""

import pytest

from logbrook.ports import File
from logbrook.records.errors import CorruptBatchError, UnsupportedMagicError
from logbrook.storage.scan import ScannedBatch, scan_batches, scan_headers
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.storage.kit import BATCH_BYTES, batch, numbered


def file_with(*parts: bytes | bytearray) -> File:
    file = MemoryFiles().create("a")
    file.pwrite(b"".join(parts), 0)
    return file


def scan(file: File, position: int = 0, end: int | None = None) -> list[ScannedBatch]:
    return list(scan_batches(file, position, file.size() if end is None else end))


def test_an_empty_range_has_no_batches() -> None:
    assert scan(file_with()) == []
    assert scan(file_with(*numbered(2)), BATCH_BYTES, BATCH_BYTES) == []


def test_every_batch_is_given_with_its_place_and_its_bytes() -> None:
    batches = numbered(3)
    found = scan(file_with(*batches))
    assert [one.position for one in found] == [0, BATCH_BYTES, 2 * BATCH_BYTES]
    assert [bytes(one.data) for one in found] == [bytes(one) for one in batches]
    assert all(one.header.size == BATCH_BYTES for one in found)


def test_a_scan_starts_and_ends_where_it_is_told() -> None:
    file = file_with(*numbered(5))
    assert [one.position for one in scan(file, BATCH_BYTES, 3 * BATCH_BYTES)] == [BATCH_BYTES, 2 * BATCH_BYTES]


def test_what_lies_past_the_end_is_not_looked_at() -> None:
    assert len(scan(file_with(*numbered(2), b"garbage"), end=2 * BATCH_BYTES)) == 2


def test_batches_larger_than_the_window_are_read_whole() -> None:
    large = batch(bytes(3 << 20))
    found = scan(file_with(batch(), large, batch(), large))
    assert [one.header.size for one in found] == [BATCH_BYTES, len(large), BATCH_BYTES, len(large)]


def test_many_batches_are_read_in_few_calls() -> None:
    files = FaultyFiles(MemoryFiles(), only={"pread"})
    file = files.create("a")
    file.pwrite(b"".join(numbered(5000)), 0)
    assert len(scan(file)) == 5000
    assert files.calls <= 2


def test_every_changed_byte_that_the_checksum_covers_is_noticed() -> None:
    good = b"".join(numbered(2))
    for position in range(BATCH_BYTES + 21, 2 * BATCH_BYTES):
        file = file_with(good[:position], bytes([good[position] ^ 0x10]), good[position + 1 :])
        batches = scan_batches(file, 0, len(good))
        next(batches)
        with pytest.raises(CorruptBatchError):
            next(batches)


def test_every_cut_is_noticed_at_the_batch_it_hits() -> None:
    good = b"".join(numbered(2))
    for length in range(BATCH_BYTES + 1, 2 * BATCH_BYTES):
        batches = scan_batches(file_with(good[:length]), 0, length)
        next(batches)
        with pytest.raises(CorruptBatchError):
            next(batches)


def test_zeros_are_no_batch() -> None:
    batches = scan_batches(file_with(batch(), bytes(4096)), 0, BATCH_BYTES + 4096)
    next(batches)
    with pytest.raises(UnsupportedMagicError):
        next(batches)


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1, -(2**31)])
def test_a_length_that_lies_is_noticed_without_reading_what_it_asks_for(length: int) -> None:
    bad = batch()
    bad[8:12] = (length & 0xFFFFFFFF).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError):
        scan(file_with(bad, *numbered(3)))


def test_headers_end_where_the_file_does_though_more_was_expected() -> None:
    """A file may be another's by now: the topic was deleted and made again."""
    first, second = numbered(2)
    file = file_with(first, second[:40])
    assert [header.base_offset for header in scan_headers(file, 0, 3 * BATCH_BYTES)] == [0]
