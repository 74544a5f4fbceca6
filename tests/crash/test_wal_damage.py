"""Bad blocks in the write-ahead log: reported and kept where acknowledged records were in them, ignored at the end.

The log vouches for what came after the last checkpoint. A bad block with good ones after it is damage: somebody was
promised what was in it. What the segments still hold intact is kept all the same. The last block of all may be a commit
that never finished, so that a bad one there is not worth a word.
"""

from functools import cache
from random import Random
from typing import NamedTuple

import pytest

from logbrook.config import Durability
from logbrook.model import TopicPartition
from logbrook.storage.partition_files import read_checkpoint
from logbrook.storage.wal_format import iter_entries, read_block
from logbrook.storage.wal_reader import read_wal
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
    """Several blocks past the last checkpoint, in more than one file, and the segments as they were written."""
    disk = MemoryFiles()
    session = Session(disk, disk, 11)
    session.do((*BEGINNING, *COMMITS))
    return Past(MemoryFiles(disk), session.promises)


@cache
def powerless() -> Past:
    """The same, but the segments have lost what was not synced."""
    disk = RecordingFiles()
    session = Session(disk, disk, 11)
    session.do((*BEGINNING, *COMMITS))
    return Past(materialise(disk.journal, len(disk.journal.ops), Variant.LOST), session.promises)


def blocks_of(files: MemoryFiles) -> list[Block]:
    """The blocks that recovery needs, oldest first."""
    checkpoint = read_checkpoint(files)
    assert checkpoint is not None
    found: list[Block] = []
    for place in read_wal(files, checkpoint.mark, checkpoint.number).places:
        file = files.open(place.path)
        block = read_block(file, checkpoint.mark, place.position, file.size())
        assert block is not None
        partitions = {TopicPartition.from_directory(entry.directory.decode()) for entry in iter_entries(block)}
        length = len(block.body) + 36
        found.append(Block(place.path, place.position, length, frozenset(one for one in partitions if one)))
    return found


def spots(block: Block) -> list[int]:
    """Bytes of every field of the block's header, of an entry, and of the data."""
    return [*range(0, 36, 3), *sorted(Random(block.position).sample(range(36, block.length), 8)), block.length - 1]


def test_the_past_has_blocks_in_more_than_one_file() -> None:
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
    """The segments lack what was not synced, so what was in the block is gone."""
    blocks = blocks_of(powerless().files)
    block = blocks[number]
    files = powerless().copy()
    flip(files, block.path, block.position + block.length // 2)
    directory = opened(files)
    assert directory.report.wal_damage
    quarantined = {error.partition for error in directory.report.quarantined}
    assert quarantined <= block.partitions
    at_the_end = block.partitions - frozenset().union(*(one.partitions for one in blocks[number + 1 :]))
    for partition in set(PARTITIONS) - quarantined - at_the_end:
        # A segment may have been synced for other reasons; then it has all that the block had.
        check_log(directory.get(partition), powerless().promises.partitions[partition])
    directory.abandon()


@pytest.mark.parametrize("number", range(len(blocks_of(powerless().files)) - 1))
def test_a_gap_is_repaired_with_what_lies_behind_it(number: int) -> None:
    """An operator's word ends the quarantine; appends go on past all that was promised."""
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
