"""Opening a data directory: what is there, what the last process left half-done, and where the numbers go on.

The rules for one log are in `recovery`; here is what all logs share. Whatever is believed here must survive the next
power loss, so after a stop that was not clean the names that are found are synced before anything is built on them,
and a checkpoint is taken before the write-ahead log, which brought things back, is written over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from logbrook.config import Durability, LogConfig
from logbrook.model import TopicPartition
from logbrook.ports import Clock, Random
from logbrook.storage.disk_errors import sync_directory
from logbrook.storage.durability import IntervalDurability
from logbrook.storage.environment import Environment
from logbrook.storage.errors import CorruptFileError
from logbrook.storage.log import Log
from logbrook.storage.partition_files import Checkpoint, read_checkpoint, write_checkpoint
from logbrook.storage.paths import CHECKPOINT, DAMAGED_SUFFIX, WAL_DIRECTORY, grave_number, grave_path
from logbrook.storage.recovery import LogRecovery, PartitionImage, RecoveryReport, load_image, redo
from logbrook.storage.wal import Wal
from logbrook.storage.wal_format import MARK_BYTES
from logbrook.storage.wal_reader import WalContents, read_wal

ConfigOf = Callable[[TopicPartition], LogConfig]


@dataclass
class RecoveredDirectory:
    """What was found. `needs_checkpoint` when something must be settled before anything is written."""

    mark: bytes
    wal: WalContents
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    report: RecoveryReport = field(default_factory=RecoveryReport)
    needs_checkpoint: bool = False


def recover_directory(
    environment: Environment, config_of: ConfigOf, clock: Clock, random: Random, now_ms: int
) -> RecoveredDirectory:
    """Bring back every log, and give the environment its durability. Raises CorruptFileError or OSError."""
    files = environment.files
    names = files.list("")
    partitions = [partition for name in names if (partition := TopicPartition.from_directory(name)) is not None]
    checkpoint = _read_checkpoint(environment, random, has_partitions=bool(partitions))
    if WAL_DIRECTORY not in names:
        files.make_dir(WAL_DIRECTORY)
    if not checkpoint.clean:
        # A killed process may have left names that are only in memory yet.
        for path in ("", WAL_DIRECTORY, *(partition.directory for partition in partitions)):
            sync_directory(files, path)
    images = {partition: load_image(files, partition, checkpoint) for partition in partitions}
    found = [image for image in images.values() if image is not None]
    wal = read_wal(files, checkpoint.mark, checkpoint.number, skip=checkpoint.clean)
    next_number = _next_number(names, wal, found)
    environment.durability = _make_durability(environment, wal, next_number, clock)
    recovered = RecoveredDirectory(checkpoint.mark, wal)
    _find_graves(environment, names, now_ms)
    for partition, image in images.items():
        if image is None:
            retire_directory(environment, partition, now_ms)
    _recover_logs(recovered, environment, found, config_of, now_ms)
    # What was brought back must be in synced segments before the files it came from are written over, those must not
    # be passed over as clean any more, and the numbers that were used must not be used again.
    is_changed = bool(wal.places) or recovered.report.changed_anything
    recovered.needs_checkpoint = checkpoint.clean or is_changed or next_number > checkpoint.number
    return recovered


def take_over_wal(environment: Environment, wal: WalContents) -> None:
    """Reuse the files that were read; put damaged ones aside for whoever wants to look into them."""
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
    """Take a partition's directory out of the way, durably; its files go later. Raises OSError."""
    grave = grave_path(environment.durability.skip_number())
    environment.files.rename(partition.directory, grave)
    sync_directory(environment.files, "")
    environment.remover.add_directory(grave, due_ms)


def _read_checkpoint(environment: Environment, random: Random, *, has_partitions: bool) -> Checkpoint:
    checkpoint = read_checkpoint(environment.files)
    if checkpoint is not None:
        return checkpoint
    if has_partitions:
        # Without it nothing tells what in the write-ahead log is old, and old entries must not be written again.
        raise CorruptFileError(CHECKPOINT, "it is missing, but there are partitions; restore it from a backup")
    checkpoint = Checkpoint(0, {}, random.token(MARK_BYTES))
    write_checkpoint(environment.files, checkpoint)
    return checkpoint


def _next_number(names: list[str], wal: WalContents, images: list[PartitionImage]) -> int:
    """A number above all that were ever used, wherever they left a trace."""
    graves = [number + 1 for name in names if (number := grave_number(name)) is not None]
    return max((wal.next_number, *graves, *(image.number for image in images)))


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
        # Enough to go round between two checkpoints: a file that is used again need not be filled with zeros first.
        spares_max=max(2, environment.config.wal_bytes_max // environment.config.wal_file_bytes),
    )
    # Whatever failed, nothing is acknowledged any more.
    environment.health.add_failure_callback(durability.fail)
    return durability


def _find_graves(environment: Environment, names: list[str], now_ms: int) -> None:
    for name in names:
        if grave_number(name) is not None:
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
    for image in images:
        log = LogRecovery(image, config_of(image.partition), environment, report).run()
        recovered.logs[image.partition] = log
        for path in image.retired:
            environment.remover.add(path, now_ms)
