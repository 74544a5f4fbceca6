"""Corrupt blocks in the write-ahead log: reported and kept if valid blocks follow, ignored at the end.

The log holds the records since the last checkpoint. A corrupt block before valid ones is damage: its records may have
been acknowledged. Records that the segments still hold intact are kept in any case. The last block may be an unfinished
commit, so its corruption is not reported.
"""

from functools import cache
from random import Random
from typing import NamedTuple

import pytest

from logbrook.config import Durability
from logbrook.model import TopicPartition
from logbrook.storage.partition_files import read_checkpoint
from logbrook.storage.wal_format import iter_entries, read_block, read_wal
from logbrook.testing import MemoryFiles, RecordingFiles, Variant, materialise
from logbrook.testing.clock import FakeClock
from logbrook.testing.crash import check_directory, check_log
from logbrook.testing.crash import client_operations as client
from logbrook.testing.crash import owner_operations as owner
from logbrook.testing.crash.life import Operation
from logbrook.testing.crash.settings import PARTITIONS, open_directory
from tests.crash.kit import BEGINNING, Past, Session, flip, opened, paths

COMMITS: tuple[Operation, ...] = (client.append, client.append, owner.commit) * 8


class Block(NamedTuple):
    path: str
    position: int
    length: int
    partitions: frozenset[TopicPartition]


@cache
def killed() -> Past:
    """Several blocks after the last checkpoint, in more than one file, with intact segments."""
    disk = MemoryFiles()
    session = Session(disk, disk, 11)
    session.do((*BEGINNING, *COMMITS))
    return Past(MemoryFiles(disk), session.promises)


@cache
def powerless() -> Past:
    """The same, but the segments have lost all bytes that were not synced."""
    disk = RecordingFiles()
    session = Session(disk, disk, 11)
    session.do((*BEGINNING, *COMMITS))
    return Past(materialise(disk.journal, len(disk.journal.ops), Variant.LOST), session.promises)


def blocks_of(files: MemoryFiles) -> list[Block]:
    """Return the blocks that recovery needs, oldest first."""
    checkpoint = read_checkpoint(files)
    assert checkpoint is not None
    blocks: list[Block] = []
    for place in read_wal(files, checkpoint.mark, checkpoint.number).places:
        file = files.open(place.path)
        block = read_block(file, checkpoint.mark, place.position, file.size())
        assert block is not None
        partitions = {TopicPartition.from_directory(entry.directory.decode()) for entry in iter_entries(block)}
        length = len(block.body) + 36
        blocks.append(
            Block(place.path, place.position, length, frozenset(partition for partition in partitions if partition))
        )
    return blocks


def spots(block: Block) -> list[int]:
    """Yield bytes of every field of the block's header, of an entry, and of the data."""
    return [*range(0, 36, 3), *sorted(Random(block.position).sample(range(36, block.length), 8)), block.length - 1]


def test_the_recorded_history_has_blocks_in_several_files() -> None:
    blocks = blocks_of(killed().files)
    assert len(blocks) >= 6
    assert len({block.path for block in blocks}) >= 2
    assert blocks == blocks_of(powerless().files)


@pytest.mark.parametrize("number", range(len(blocks_of(killed().files)) - 1))
def test_a_bad_block_in_the_middle_is_reported_and_kept_and_costs_nothing_that_the_segments_hold(number: int) -> None:
    block = blocks_of(killed().files)[number]
    for spot in spots(block):
        files = killed().copy()
        flip(files, block.path, block.position + spot)
        directory = opened(files)
        assert directory.report.wal_damage
        assert not directory.report.quarantined
        assert paths(files, ".wal.damaged") == [block.path + ".damaged"]
        for log in directory:
            check_log(log, killed().promises.partitions[log.partition])
        directory.close()
        again = opened(files)
        assert not again.report.wal_damage
        check_directory(again, killed().promises)
        again.abandon()


def test_a_torn_last_block_is_ignored() -> None:
    block = blocks_of(killed().files)[-1]
    for spot in spots(block):
        files = killed().copy()
        flip(files, block.path, block.position + spot)
        directory = opened(files)
        assert not directory.report.wal_damage
        check_directory(directory, killed().promises)
        directory.abandon()


@pytest.mark.parametrize("number", range(len(blocks_of(powerless().files)) - 1))
def test_only_partitions_that_were_in_the_bad_block_lose_anything(number: int) -> None:
    """The segments lack the bytes that were not synced, so the records in the block are lost."""
    blocks = blocks_of(powerless().files)
    block = blocks[number]
    files = powerless().copy()
    flip(files, block.path, block.position + block.length // 2)
    directory = opened(files)
    assert directory.report.wal_damage
    quarantined = {error.partition for error in directory.report.quarantined}
    assert quarantined <= block.partitions
    at_the_end = block.partitions - frozenset().union(*(later.partitions for later in blocks[number + 1 :]))
    for partition in set(PARTITIONS) - quarantined - at_the_end:
        # A segment may have been synced for other reasons; then it has all records of the block.
        check_log(directory.get(partition), powerless().promises.partitions[partition])
    directory.abandon()


@pytest.mark.parametrize("number", range(len(blocks_of(powerless().files)) - 1))
def test_a_gap_is_repaired_with_the_records_after_it(number: int) -> None:
    """A repair ends the quarantine; appends continue after all promised offsets."""
    block = blocks_of(powerless().files)[number]
    files = powerless().copy()
    flip(files, block.path, block.position + block.length // 2)
    directory = opened(files)
    for error in directory.report.quarantined:
        directory.repair(error.partition)
        log = directory.get(error.partition)
        assert log.corruption is None
        assert log.log_end_offset >= powerless().promises.partitions[error.partition].durable_end
        log.validate()
    directory.close()
    again = opened(files)
    assert not again.report.quarantined
    again.abandon()


def test_damage_is_reported_in_interval_mode_too() -> None:
    block = blocks_of(killed().files)[0]
    files = killed().copy()
    flip(files, block.path, block.position)
    directory = open_directory(files, Durability.INTERVAL, FakeClock(1_500_000))
    assert directory.report.wal_damage
    assert paths(files, ".wal.damaged") == [block.path + ".damaged"]
    for log in directory:
        check_log(log, killed().promises.partitions[log.partition])
    directory.abandon()
