"""Corruption of durable bytes, one at a time, in every kind of file: the behaviour that `docs/STORAGE.md` describes.

Reading a corrupt segment raises a typed error and quarantines the partition; nothing is deleted, and other partitions
are not affected. Indexes and snapshots are caches: they are rebuilt. Without its state a partition is quarantined,
without the checkpoint the directory is refused. A corrupt block inside the write-ahead log is reported and kept; a
corrupt last block is treated as an unfinished commit.
"""

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import NamedTuple

import pytest

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.records.batch import HEADER_BYTES, iter_headers
from logbrook.storage.errors import CorruptFileError, CorruptLogError
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.verification import verify
from logbrook.testing import MemoryFiles
from logbrook.testing.crash import check_directory, check_log
from logbrook.testing.crash.batches import BatchSource
from logbrook.testing.crash.oracle import scan_log
from logbrook.testing.crash.settings import EVENTS, PARTITIONS
from tests.crash.kit import Past, closed_past, content, flip, killed_past, opened, paths, put

MASKS = (0x01, 0x80, 0xFF)
# Header bytes that no checksum covers and that cannot be checked against the rest of the log.
LEADER_EPOCH = range(12, 16)
FIELDS = {
    "offset": range(0, 8, 7),
    "length": range(8, 12, 3),
    "magic": range(16, 17),
    "checksum": range(17, 21, 3),
    "what the checksum covers": range(21, HEADER_BYTES + 4, 9),
}


@cache
def past() -> Past:
    return closed_past(seed=1)


@cache
def unclean_past() -> Past:
    return killed_past(seed=2)


class BatchPlace(NamedTuple):
    """A batch of a partition: its position and its base offset."""

    path: str
    position: int
    size: int
    base_offset: int


def batch_places(files: MemoryFiles, partition: TopicPartition) -> list[BatchPlace]:
    return [
        BatchPlace(path, position, header.size, header.base_offset)
        for path in paths(files, ".log")
        if path.startswith(f"{partition}/")
        for position, header in iter_headers(content(files, path))
    ]


def spots(place: BatchPlace, seed: int) -> Iterator[int]:
    """Yield every byte of the header that matters, and a few of the records."""
    yield from (at for at in range(HEADER_BYTES) if at not in LEADER_EPOCH)
    yield from Random(seed).sample(range(HEADER_BYTES, place.size), min(4, place.size - HEADER_BYTES))


def offsets(log: Log) -> list[int]:
    return [batch.header.base_offset for batch in scan_log(log).batches]


def append_to(directory: LogDirectory, log: Log) -> int:
    """Append a batch and commit it. Returns its offset."""
    data = BatchSource(Random(0), "later").batch(1_500_000, keyed=True)
    append = log.append(data, now_ms=1_500_000)
    directory.commit()
    return append.result().base_offset


def assert_others_are_fine(directory: LogDirectory, bad: TopicPartition, known: Past) -> None:
    for log in directory:
        if log.partition != bad:
            assert log.corruption is None
            check_log(log, known.promises.partitions[log.partition])


def assert_nothing_was_deleted(files: MemoryFiles, before: MemoryFiles, bad: TopicPartition) -> None:
    """Assert that no segment of the partition has lost a byte."""
    now = files.snapshot()
    for path, data in before.snapshot().items():
        if path.startswith(f"{bad}/") and path.endswith(".log"):
            assert now.get(path) == data, f"{path} was changed"


@pytest.mark.parametrize("number", range(len(batch_places(past().files, EVENTS))))
def test_a_bad_byte_in_a_segment_is_found_and_quarantines_the_partition(number: int) -> None:
    place = batch_places(past().files, EVENTS)[number]
    for spot in spots(place, number):
        files = past().copy()
        flip(files, place.path, place.position + spot, MASKS[spot % len(MASKS)])
        damaged = MemoryFiles(files)
        directory = opened(files)
        log = directory.get(EVENTS)
        with pytest.raises(CorruptLogError) as raised:
            verify(log)
        assert raised.value.file == place.path
        with pytest.raises(CorruptLogError):
            append_to(directory, log)
        assert_others_are_fine(directory, EVENTS, past())
        assert_nothing_was_deleted(files, damaged, EVENTS)
        directory.close()
        again = opened(files)
        assert [error.partition for error in again.report.quarantined] == [EVENTS]
        assert_nothing_was_deleted(files, damaged, EVENTS)
        again.abandon()


@pytest.mark.parametrize("field", ["offset", "length", "magic", "checksum", "what the checksum covers"])
@pytest.mark.parametrize("number", range(len(batch_places(past().files, EVENTS))))
def test_repair_brings_back_every_good_batch(number: int, field: str) -> None:
    places = batch_places(past().files, EVENTS)
    place = places[number]
    for spot in FIELDS[field]:
        files = past().copy()
        flip(files, place.path, place.position + spot)
        bad = content(files, place.path)
        directory = opened(files)
        log_end_offset = directory.get(EVENTS).log_end_offset
        with pytest.raises(CorruptLogError):
            verify(directory.get(EVENTS))
        repaired = directory.repair(EVENTS)
        assert repaired.kept_aside == [place.path + ".damaged"]
        assert content(files, place.path + ".damaged") == bad
        log = directory.get(EVENTS)
        kept = [batch_place.base_offset for batch_place in places if batch_place != place]
        assert offsets(log) == kept
        assert append_to(directory, log) == log_end_offset
        directory.close()
        again = opened(files)
        assert offsets(again.get(EVENTS)) == [*kept, log_end_offset]
        assert not again.report.quarantined
        again.abandon()


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_a_reader_that_meets_a_bad_header_gets_a_typed_error_and_reads_below_it_continue(
    partition: TopicPartition,
) -> None:
    places = batch_places(past().files, partition)
    for place in places:
        files = past().copy()
        flip(files, place.path, place.position + FIELDS["magic"][0])
        directory = opened(files)
        log = directory.get(partition)
        with pytest.raises(CorruptLogError):
            log.read(Offset(place.base_offset), 1)
        assert log.corruption is not None
        if place != places[0]:
            assert log.read(Offset(places[0].base_offset), 1).slices
        assert_others_are_fine(directory, partition, past())
        directory.abandon()


@pytest.mark.parametrize("loss", ["a byte", "half", "all", "the file"])
@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_a_segment_that_is_shorter_than_it_was_synced_quarantines_at_once(partition: TopicPartition, loss: str) -> None:
    """Recovery checks the end of the log."""
    files = past().copy()
    path = max(path for path in paths(files, ".log") if path.startswith(f"{partition}/") and content(files, path))
    data = content(files, path)
    for later in (
        log_path for log_path in paths(files, ".log") if log_path.startswith(f"{partition}/") and log_path > path
    ):
        files.unlink(later)
    if loss == "the file":
        files.unlink(path)
    else:
        put(files, path, data[: {"a byte": len(data) - 1, "half": len(data) // 2, "all": 0}[loss]])
    before = MemoryFiles(files)
    directory = opened(files)
    assert [error.partition for error in directory.report.quarantined] == [partition]
    assert_others_are_fine(directory, partition, past())
    assert_nothing_was_deleted(files, before, partition)
    log_end_offset = past().promises.partitions[partition].durable_end
    directory.repair(partition)
    assert append_to(directory, directory.get(partition)) == log_end_offset
    directory.abandon()


# A step of 5 hits each of the 24 bytes of an entry in one of five entries.
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 5])
@pytest.mark.parametrize("path", paths(past().files, ".index"))
def test_a_bad_index_is_rebuilt_and_answers_stay_right(path: str, step: int) -> None:
    data = content(past().files, path)
    harms = [data[:at] + bytes([data[at] ^ MASKS[at % 3]]) + data[at + 1 :] for at in range(0, len(data), step)]
    harms += [b"", data[:-1], data[: len(data) // 2], data + bytes(24), data + data[24:48], bytes(len(data))]
    for harm in harms:
        files = past().copy()
        put(files, path, harm)
        directory = opened(files)
        check_directory(directory, past().promises)
        directory.close()
        again = opened(files)
        check_directory(again, past().promises)
        again.abandon()


def test_indexes_that_are_missing_are_rebuilt() -> None:
    files = past().copy()
    for path in paths(files, ".index"):
        files.unlink(path)
    check_directory(opened(files), past().promises)


@pytest.mark.parametrize("path", paths(unclean_past().files, "/snapshot"))
def test_a_bad_snapshot_is_rebuilt_from_the_log(path: str) -> None:
    for known in (past(), unclean_past()):
        data = content(known.files, path)
        for at in range(0, len(data), 3):
            files = known.copy()
            flip(files, path, at, MASKS[at % len(MASKS)])
            directory = opened(files)
            check_directory(directory, known.promises)
            directory.abandon()
        files = known.copy()
        files.unlink(path)
        check_directory(opened(files), known.promises)


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_a_bad_state_quarantines_its_partition_until_it_is_repaired(partition: TopicPartition) -> None:
    path = f"{partition}/state"
    for at in range(0, len(content(past().files, path)), 5):
        files = past().copy()
        flip(files, path, at, MASKS[at % len(MASKS)])
        before = MemoryFiles(files)
        directory = opened(files)
        assert [error.partition for error in directory.report.quarantined] == [partition]
        with pytest.raises(CorruptLogError):
            append_to(directory, directory.get(partition))
        assert_others_are_fine(directory, partition, past())
        assert_nothing_was_deleted(files, before, partition)
        directory.repair(partition)
        check_log(directory.get(partition), past().promises.partitions[partition])
        directory.abandon()


def test_a_bad_checkpoint_refuses_the_directory_until_it_is_restored() -> None:
    good = content(past().files, "checkpoint")
    for at in range(len(good)):
        files = past().copy()
        flip(files, "checkpoint", at, MASKS[at % len(MASKS)])
        with pytest.raises(CorruptFileError):
            opened(files)
        put(files, "checkpoint", good)
        check_directory(opened(files), past().promises)


def test_a_missing_checkpoint_refuses_the_directory() -> None:
    files = past().copy()
    files.unlink("checkpoint")
    with pytest.raises(CorruptFileError):
        opened(files)
