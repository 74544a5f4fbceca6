"""Opening a data directory: reads the checkpoint and the write-ahead log, recovers each log, finds the next number.

`recovery` has the rules for one log; this module has what all logs share. What recovery relies on must survive the next
power loss. So after an unclean stop all directories are synced first, and a checkpoint is taken before WAL files whose
entries were redone are overwritten.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from logbrook.config import Durability, LogConfig
from logbrook.model import TopicPartition
from logbrook.ports import Clock, Random
from logbrook.storage.durability import IntervalDurability
from logbrook.storage.durable_files import sync_directory
from logbrook.storage.environment import Environment
from logbrook.storage.errors import CorruptFileError
from logbrook.storage.log import Log
from logbrook.storage.partition_files import Checkpoint, read_checkpoint, write_checkpoint
from logbrook.storage.partition_image import PartitionImage, load_image, redo
from logbrook.storage.paths import (
    CHECKPOINT,
    DAMAGED_SUFFIX,
    WAL_DIRECTORY,
    deleted_directory,
    deleted_directory_number,
)
from logbrook.storage.recovery import LogRecovery, RecoveryReport
from logbrook.storage.wal import Wal
from logbrook.storage.wal_format import MARK_BYTES, WalContents, read_wal

ConfigOf = Callable[[TopicPartition], LogConfig]


@dataclass
class RecoveredDirectory:
    """The recovered logs. `needs_checkpoint` is set if a checkpoint must be taken before anything is written."""

    mark: bytes
    wal: WalContents
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    report: RecoveryReport = field(default_factory=RecoveryReport)
    needs_checkpoint: bool = False


def recover_directory(
    environment: Environment, config_of: ConfigOf, clock: Clock, random: Random, now_ms: int
) -> RecoveredDirectory:
    """Recover every log and set the environment's durability policy. Raises CorruptFileError or OSError."""
    files = environment.files
    names = files.list("")
    partitions = [partition for name in names if (partition := TopicPartition.from_directory(name)) is not None]
    checkpoint = _read_checkpoint(environment, random, has_partitions=bool(partitions))
    if WAL_DIRECTORY not in names:
        files.make_dir(WAL_DIRECTORY)
    if not checkpoint.clean:
        # A killed process may have left directory entries that are not synced.
        for path in ("", WAL_DIRECTORY, *(partition.directory for partition in partitions)):
            sync_directory(files, path)
    images = {partition: load_image(files, partition, checkpoint) for partition in partitions}
    complete = [image for image in images.values() if image is not None]
    wal = read_wal(files, checkpoint.mark, checkpoint.number, skip=checkpoint.clean)
    next_number = _next_number(names, wal, complete)
    environment.durability = _make_durability(environment, wal, next_number, clock)
    recovered = RecoveredDirectory(checkpoint.mark, wal)
    _queue_deleted_directories(environment, names, now_ms)
    for partition, image in images.items():
        if image is None:
            retire_directory(environment, partition, now_ms)
    _recover_logs(recovered, environment, complete, config_of, now_ms)
    # Redone entries must be in synced segments before their WAL files are overwritten, the clean flag must be cleared,
    # and used numbers must not be used again.
    is_changed = bool(wal.places) or recovered.report.changed_anything
    recovered.needs_checkpoint = checkpoint.clean or is_changed or next_number > checkpoint.number
    return recovered


def reuse_wal_files(environment: Environment, wal: WalContents) -> None:
    """Hand the files that were read to the new WAL for reuse; rename damaged ones to keep them for inspection."""
    for path in wal.paths:
        if path in wal.damaged_paths:
            environment.files.rename(path, path + DAMAGED_SUFFIX)
        elif isinstance(environment.durability, Wal):
            environment.durability.adopt(path)
        else:
            environment.files.unlink(path)
    if wal.damaged_paths:
        sync_directory(environment.files, WAL_DIRECTORY)


def retire_directory(environment: Environment, partition: TopicPartition, due_ms: int) -> None:
    """Rename a partition's directory durably and queue it for removal. Raises OSError."""
    deleted = deleted_directory(environment.durability.skip_number())
    environment.files.rename(partition.directory, deleted)
    sync_directory(environment.files, "")
    environment.remover.add_directory(deleted, due_ms)


def _read_checkpoint(environment: Environment, random: Random, *, has_partitions: bool) -> Checkpoint:
    checkpoint = read_checkpoint(environment.files)
    if checkpoint is not None:
        return checkpoint
    if has_partitions:
        # Without it, old and new WAL entries cannot be distinguished, and redoing old entries would corrupt segments.
        raise CorruptFileError(CHECKPOINT, "it is missing, but the directory has partitions; restore it from a backup")
    checkpoint = Checkpoint(0, {}, random.token(MARK_BYTES))
    write_checkpoint(environment.files, checkpoint)
    return checkpoint


def _next_number(names: list[str], wal: WalContents, images: list[PartitionImage]) -> int:
    """Return a number above every number in use: in the WAL, in partition metadata and in deleted directories."""
    deleted = [number + 1 for name in names if (number := deleted_directory_number(name)) is not None]
    return max((wal.next_number, *deleted, *(image.number for image in images)))


def _make_durability(
    environment: Environment, wal: WalContents, next_number: int, clock: Clock
) -> Wal | IntervalDurability:
    if environment.config.durability is Durability.INTERVAL:
        return IntervalDurability(next_number)
    durability = Wal(
        environment.files,
        wal.mark,
        environment.config.wal_file_bytes,
        next_number,
        wal.next_file,
        clock,
        environment.probe,
        environment.health.fail,
        # Enough spares for all WAL bytes between two checkpoints: reusing a file is cheaper than creating one.
        spares_max=max(2, environment.config.wal_bytes_max // environment.config.wal_file_bytes),
        segment_sync_min_bytes=environment.config.segment_sync_min_bytes,
    )
    # After any failure of the directory, the WAL acknowledges nothing more.
    environment.health.add_failure_callback(durability.fail)
    return durability


def _queue_deleted_directories(environment: Environment, names: list[str], now_ms: int) -> None:
    for name in names:
        if deleted_directory_number(name) is not None:
            environment.remover.add_directory(name, now_ms)


def _recover_logs(
    recovered: RecoveredDirectory,
    environment: Environment,
    images: list[PartitionImage],
    config_of: ConfigOf,
    now_ms: int,
) -> None:
    report = recovered.report
    report.partitions = len(images)
    report.wal_damage = recovered.wal.damage
    by_directory = {image.directory.encode(): image for image in images}
    report.entries_redone = redo(environment.files, recovered.wal, by_directory)
    environment.producer_bound.logs = recovered.logs
    for image in images:
        log = LogRecovery(image, config_of(image.partition), environment, report).run()
        log.producers.loaded_ms = now_ms
        recovered.logs[image.partition] = log
        environment.producer_bound.admit(len(log.producers))
        for path in image.retired:
            environment.remover.add(path, now_ms)
