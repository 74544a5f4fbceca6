"""What the owner of a directory does to it: commits, checkpoints, segments, retention, compaction, cuts."""

from contextlib import suppress

from logbrook.storage.compaction import plan_compaction
from logbrook.storage.errors import OvertakenError
from logbrook.storage.retention import apply_retention
from logbrook.storage.truncation import truncate as truncate_log
from logbrook.storage.verification import verify as verify_log
from logbrook.testing.crash.client_operations import append, append_set, read
from logbrook.testing.crash.life import Life, is_compacted
from logbrook.testing.crash.promises import (
    CompactionBegun,
    CreateBegun,
    Created,
    DeleteBegun,
    Deleted,
    ExpiryBegun,
    StartMoved,
    StartMoving,
    TruncateBegun,
    Truncated,
)
from logbrook.testing.crash.settings import PRODUCER_ID_EXPIRATION_MS, config_of


def commit(life: Life) -> None:
    with life.interrupted((append, append_set, roll, create)):
        life.directory.commit()


def checkpoint(life: Life) -> None:
    """All steps that are left of a checkpoint in progress, and a whole one."""
    while life.checkpoint is not None:
        checkpoint_step(life)
    checkpoint_step(life)
    while life.checkpoint is not None:
        checkpoint_step(life)


def checkpoint_step(life: Life) -> None:
    """One of the three steps; other operations come in between."""
    if life.checkpoint is None:
        life.begin_checkpoint()
    elif not life.is_checkpoint_run:
        with life.interrupted(_DURING_CHECKPOINT):
            life.run_checkpoint()
    else:
        life.finish_checkpoint()


def roll(life: Life) -> None:
    log = life.any_log()
    if log is not None and log.active.size:
        log.roll()


def delete_before(life: Life) -> None:
    log = life.any_log()
    if log is not None and log.high_watermark > log.log_start_offset:
        offset = life.rng.randint(log.log_start_offset, log.high_watermark)
        life.mark(StartMoving(log.partition, offset))
        log.delete_before(offset)
        life.mark(StartMoved(log.partition, log.log_start_offset))


def retain(life: Life) -> None:
    log = life.any_log()
    if log is not None:
        life.mark(StartMoving(log.partition, log.high_watermark))
        apply_retention(log, life.clock.now_ms())
        life.mark(StartMoved(log.partition, log.log_start_offset))


def compact(life: Life) -> None:
    log = next((log for log in life.directory if is_compacted(log)), None)
    if log is None:
        return
    now_ms = life.clock.now_ms()
    life.mark(CompactionBegun(log.partition, log.log_end_offset, now_ms))
    compaction = plan_compaction(log, now_ms, force=True)
    if compaction is None:
        return
    # A truncation or a deletion in between ends a pass; what it has done by then stays done.
    with suppress(OvertakenError):
        with life.interrupted(_DURING_COMPACTION):
            compaction.build_map()
        for group in compaction.groups():
            with life.interrupted(_DURING_COMPACTION):
                rewritten = compaction.rewrite(group)
            compaction.apply(rewritten)
        compaction.finish()


def truncate(life: Life) -> None:
    """At any offset, most often near the end."""
    log = life.any_log()
    if log is None or log.log_end_offset == log.log_start_offset:
        return
    offset = life.rng.randint(log.log_start_offset, log.log_end_offset - 1)
    if life.rng.random() < 0.5:
        offset = max(offset, log.log_end_offset - 3)
    life.turn(log.partition)
    life.mark(TruncateBegun(log.partition, offset))
    life.mark(Truncated(log.partition, truncate_log(log, offset)))


def expire_producers(life: Life) -> None:
    """A producer that was silent for too long may be unknown from here on; it is only forgotten for good later."""
    now_ms = life.clock.now_ms()
    life.mark(ExpiryBegun(now_ms - PRODUCER_ID_EXPIRATION_MS))
    life.directory.expire_producers(now_ms)


def repair(life: Life) -> None:
    """What an operator may do to any partition: of one that is good, every batch is."""
    log = life.any_log()
    if log is not None:
        life.directory.repair(log.partition)


def verify(life: Life) -> None:
    log = life.any_log()
    if log is not None:
        verify_log(log)


def create(life: Life) -> None:
    there = {log.partition for log in life.directory}
    missing = [partition for partition in life.partitions if partition not in there]
    if missing:
        partition = life.rng.choice(missing)
        life.turn(partition)
        if not life.is_offline:
            life.mark(CreateBegun(partition))
        life.directory.create(partition, config_of(partition))
        life.mark(Created(partition))


def delete(life: Life) -> None:
    log = life.any_log()
    if log is not None:
        life.turn(log.partition)
        life.mark(DeleteBegun(log.partition))
        life.directory.delete(log.partition, life.clock.now_ms())
        life.mark(Deleted(log.partition))


def remove_files(life: Life) -> None:
    life.directory.remove_files(life.clock.now_ms(), life.rng.randint(1, 8))


def wait(life: Life) -> None:
    """Let enough time pass for segments to grow old and for tombstones to go."""
    life.clock.advance(life.rng.choice((500, 5_000, 30_000)))


_DURING_COMPACTION = (append, append_set, roll, truncate, retain, delete, create, read)
_DURING_CHECKPOINT = (*_DURING_COMPACTION, compact)
