"""Operations of a directory's owner: commits, checkpoints, rolls, retention, compaction, truncation."""

from collections.abc import Callable
from contextlib import suppress

from logbrook.model.identifiers import Offset
from logbrook.storage.compaction import plan_compaction
from logbrook.storage.durable_files import IO_FAILURES
from logbrook.storage.errors import LogModifiedError, StorageOfflineError
from logbrook.storage.retention import apply_retention
from logbrook.storage.truncation import truncate as truncate_log
from logbrook.storage.verification import verify as verify_log
from logbrook.testing.crash import promises
from logbrook.testing.crash.client_operations import append, append_set, read
from logbrook.testing.crash.life import Life, is_compacted
from logbrook.testing.crash.settings import PRODUCER_ID_EXPIRATION_MS, config_of


def commit(life: Life) -> None:
    life.is_committing = True
    try:
        with life.interrupted((append, append_set, roll, create)):
            life.directory.commit()
    finally:
        life.is_committing = False


def append_and_commit(life: Life) -> None:
    """Append, and commit unless this interrupts a commit: production has one thread for them."""
    append(life)
    if not life.is_committing:
        life.directory.commit()


def checkpoint(life: Life) -> None:
    """Finish a checkpoint in progress, then run a whole one."""
    while life.checkpoint is not None:
        checkpoint_step(life)
    checkpoint_step(life)
    while life.checkpoint is not None:
        checkpoint_step(life)


def checkpoint_step(life: Life) -> None:
    """Run the next of the three steps of a checkpoint."""
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
        life.mark(promises.StartMoving(log.partition, offset))
        log.delete_before(Offset(offset))
        life.mark(promises.StartMoved(log.partition, log.log_start_offset))


def retain(life: Life) -> None:
    log = life.any_log()
    if log is not None:
        life.mark(promises.StartMoving(log.partition, log.high_watermark))
        apply_retention(log, life.clock.now_ms())
        life.mark(promises.StartMoved(log.partition, log.log_start_offset))


def compact(life: Life) -> None:
    log = next((log for log in life.directory if is_compacted(log)), None)
    if log is None:
        return
    now_ms = life.clock.now_ms()
    life.mark(promises.CompactionBegun(log.partition, log.log_end_offset, now_ms))
    compaction = plan_compaction(log, now_ms, force=True)
    if compaction is None:
        return
    # A concurrent truncation or deletion ends the pass; segments it has replaced stay replaced.
    with suppress(LogModifiedError):
        with life.interrupted(_DURING_COMPACTION):
            compaction.build_map()
        for group in compaction.groups():
            with life.interrupted(_DURING_COMPACTION):
                rewritten = compaction.rewrite(group)
            compaction.apply(rewritten)
        compaction.finish()


def truncate(life: Life) -> None:
    """Truncate at a random offset, mostly near the end."""
    log = life.any_log()
    if log is None or log.log_end_offset == log.log_start_offset:
        return
    offset = life.rng.randint(log.log_start_offset, log.log_end_offset - 1)
    if life.rng.random() < 0.5:
        offset = max(offset, log.log_end_offset - 3)
    life.start_generation(log.partition)
    life.mark(promises.TruncateBegun(log.partition, offset))
    life.mark(promises.Truncated(log.partition, truncate_log(log, Offset(offset))))


def expire_producers(life: Life) -> None:
    """Expire producers that were idle for too long."""
    now_ms = life.clock.now_ms()
    life.mark(promises.ExpiryBegun(now_ms - PRODUCER_ID_EXPIRATION_MS))
    life.directory.expire_producers(now_ms)


def repair(life: Life) -> None:
    """Repair a healthy partition, which must keep every batch."""
    log = life.any_log()
    if log is not None:
        life.directory.repair(log.partition)


def verify(life: Life) -> None:
    log = life.any_log()
    if log is not None:
        verify_log(log)


def create(life: Life) -> None:
    existing = {log.partition for log in life.directory}
    missing = [partition for partition in life.partitions if partition not in existing]
    if missing:
        partition = life.rng.choice(missing)
        life.start_generation(partition)
        if not life.is_offline:
            life.mark(promises.CreateBegun(partition))
        creation = life.directory.begin_create([partition], config_of(partition))
        with life.interrupted(_DURING_CREATION):
            error = _error_of(creation.run)
        life.directory.finish_create(creation, error)
        life.mark(promises.Created(partition))


def delete(life: Life) -> None:
    log = life.any_log()
    if log is not None:
        life.start_generation(log.partition)
        life.mark(promises.DeleteBegun(log.partition))
        deletion = life.directory.begin_delete([log.partition], life.clock.now_ms())
        with life.interrupted(_DURING_CREATION):
            error = _error_of(deletion.run)
        life.directory.finish_delete(deletion, error)
        life.mark(promises.Deleted(log.partition))


def _error_of(run: Callable[[], None]) -> OSError | StorageOfflineError | None:
    """Run a step that production runs on another thread, and return its error."""
    try:
        run()
    except IO_FAILURES as error:
        return error
    return None


def remove_files(life: Life) -> None:
    life.directory.remove_files(life.clock.now_ms(), life.rng.randint(1, 8))


def wait(life: Life) -> None:
    """Advance the clock enough for segments and tombstones to expire."""
    life.clock.advance(life.rng.choice((500, 5_000, 30_000)))


_DURING_CREATION = (append, append_set, roll, truncate, retain, read, append_and_commit)
_DURING_COMPACTION = (append, append_set, roll, truncate, retain, delete, create, read)
# Appends that are committed meanwhile need their entries in the write-ahead log, whatever the checkpoint releases.
_DURING_CHECKPOINT = (*_DURING_COMPACTION, compact, append_and_commit, append_and_commit, append_and_commit)
