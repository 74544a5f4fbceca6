"""Checks that the state derived from a log agrees with a scan of it.

Indexes, producer state, aborted transactions and leader epochs are derived from the batches; each is compared with the
oracle. The only difference permitted is state of the engine from records before the log start offset, which the scan
cannot read.
"""

from logbrook.model.identifiers import ProducerId
from logbrook.storage.leader_epochs import LeaderEpochs
from logbrook.storage.log import Log
from logbrook.testing.crash.oracle import LogScan, SeenBatch
from logbrook.testing.crash.promises import BrokenPromiseError


def check_agreement(log: Log, scan: LogScan, *, expired_before_ms: int = 0, thorough: bool = True) -> None:
    """Producers last seen before `expired_before_ms` may be missing. Raises BrokenPromiseError."""
    _check_epochs(log, scan)
    _check_producers(log, scan, expired_before_ms)
    _check_aborted(log, scan)
    if thorough:
        log.validate()
        _check_positions(log)
        _check_times(log, scan)


def _check_epochs(log: Log, scan: LogScan) -> None:
    known = LeaderEpochs(list(log.epochs.starts))
    known.truncate_start(log.log_start_offset)
    starts = [(start.epoch, max(start.start_offset, log.log_start_offset)) for start in known.starts]
    expected = scan.epochs()
    if scan.is_dense:
        # A log emptied by retention keeps its last epoch.
        is_same = starts == expected or (not expected and len(starts) <= 1)
    else:
        # Compaction may have removed the first batch of an epoch; the remaining ones must map to theirs.
        is_same = all(known.epoch_of(batch.header.last_offset) == batch.header.leader_epoch for batch in scan.batches)
    if not is_same:
        raise BrokenPromiseError(f"{log.partition}: leader epochs are {starts}, the log has {expected}")


def _check_producers(log: Log, scan: LogScan, expired_before_ms: int) -> None:
    for producer_id, seen in scan.producers().items():
        known = log.producers.get(ProducerId(producer_id))
        if known is None and seen.last_seen_ms < expired_before_ms and seen.transaction_start_offset is None:
            continue
        if known is None or known.epoch != seen.epoch:
            raise BrokenPromiseError(f"{log.partition}: producer {producer_id} is {known}, the log has {seen}")
        last = [SeenBatch(batch.base_sequence, batch.last_sequence, batch.base_offset) for batch in known.batches]
        if scan.is_dense:
            is_same = not seen.batches or last[-len(seen.batches) :] == seen.batches
        else:
            # Compaction may have removed batches, but never a producer's last one.
            is_same = last[-1:] == seen.batches[-1:]
        if not is_same:
            raise BrokenPromiseError(f"{log.partition}: producer {producer_id} has {last}, the log {seen.batches}")
        if known.transaction_start_offset != seen.transaction_start_offset and (
            known.transaction_start_offset is None or known.transaction_start_offset >= log.log_start_offset
        ):
            raise BrokenPromiseError(
                f"{log.partition}: a transaction of {producer_id} began at {known.transaction_start_offset}, "
                f"in the log at {seen.transaction_start_offset}"
            )


def _check_aborted(log: Log, scan: LogScan) -> None:
    """A read_committed consumer sees exactly the committed records of any offset range."""
    stable = log.last_stable_offset
    decided = list(zip(scan.batches, scan.is_committed, strict=True))
    for batch, is_committed in decided:
        if is_committed is None and batch.header.last_offset < stable:
            raise BrokenPromiseError(
                f"{log.partition}: offset {batch.header.base_offset} is below the last stable offset {stable}, but open"
            )
    if stable == log.log_start_offset:
        return
    if not any(batch.header.is_transactional for batch in scan.batches):
        if log.aborted_between(log.log_start_offset, stable):
            raise BrokenPromiseError(f"{log.partition}: aborted transactions in a log without transactions")
        return
    bounds = sorted({batch.header.base_offset for batch in scan.batches if batch.header.base_offset < stable})
    starts = {*bounds[:: max(1, len(bounds) // 4)], *bounds[-1:]}
    for start in starts:
        for end in {offset for offset in (*starts, stable) if offset > start}:
            shown = scan.committed_records(start, end, log.aborted_between(start, end))
            expected = [
                record.offset
                for batch, is_committed in decided
                if is_committed and not batch.header.is_control and start <= batch.header.base_offset < end
                for record in batch.records()
            ]
            if shown != expected:
                raise BrokenPromiseError(
                    f"{log.partition}: of {start} to {end}, {shown} are shown as committed, not {expected}"
                )


def _check_positions(log: Log) -> None:
    """Every batch is found in its segment by its first and last offset."""
    for segment in log.segments:
        for batch in list(segment.batches()):
            for offset in {batch.header.base_offset, batch.header.last_offset}:
                position = segment.position_of(offset)
                if position != batch.position:
                    raise BrokenPromiseError(f"{segment.path}: {offset} is at {batch.position}, not at {position}")


def _check_times(log: Log, scan: LogScan) -> None:
    if not scan.records:
        return
    timestamps = sorted({record.timestamp for record in scan.records})
    middle = timestamps[len(timestamps) // 2]
    for timestamp in {0, timestamps[0], timestamps[0] + 1, middle, middle + 1, timestamps[-1], timestamps[-1] + 1}:
        actual = log.find_time(timestamp)
        expected = scan.find_time(timestamp)
        if (actual[:2] if actual else None) != expected:
            raise BrokenPromiseError(f"{log.partition}: time {timestamp} is found at {actual}, a scan has {expected}")
