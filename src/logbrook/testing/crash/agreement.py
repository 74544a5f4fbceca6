"""What the engine keeps beside the log must say what the log says.

Indexes, producers and leader epochs are all derived from the batches. Each is compared with a scan. Where records were
removed from the front of the log, the engine may remember more than a scan can tell, but nothing else.
"""

from logbrook.storage.leader_epochs import LeaderEpochs
from logbrook.storage.log import Log
from logbrook.testing.crash.broken_promise import BrokenPromiseError
from logbrook.testing.crash.oracle import LogScan, SeenBatch


def check_agreement(log: Log, scan: LogScan, *, expired_before_ms: int = 0, thorough: bool = True) -> None:
    """Producers that were last seen before `expired_before_ms` may be forgotten. Raises BrokenPromiseError."""
    _check_epochs(log, scan)
    _check_producers(log, scan, expired_before_ms)
    _check_aborted(log, scan)
    if thorough:
        log.validate()
        _check_positions(log)
        _check_times(log, scan)


def _check_epochs(log: Log, scan: LogScan) -> None:
    known = LeaderEpochs(list(log.epochs.starts))
    known.cut_start(log.log_start_offset)
    starts = [tuple(start) for start in known.starts]
    expected = scan.epochs()
    if scan.is_dense:
        # A log that was emptied from the front still knows the epoch it ended in.
        is_same = starts == expected or (not expected and len(starts) <= 1)
    else:
        # The batch that began an epoch may be gone, but every batch that is left is in its own.
        is_same = all(known.epoch_of(batch.header.last_offset) == batch.header.leader_epoch for batch in scan.batches)
    if not is_same:
        raise BrokenPromiseError(f"{log.partition}: leader epochs are {starts}, the log has {expected}")


def _check_producers(log: Log, scan: LogScan, expired_before_ms: int) -> None:
    for producer_id, seen in scan.producers().items():
        known = log.producers.get(producer_id)
        if known is None and seen.last_seen_ms < expired_before_ms and seen.transaction_start_offset is None:
            continue
        if known is None or known.epoch != seen.epoch:
            raise BrokenPromiseError(f"{log.partition}: producer {producer_id} is {known}, the log has {seen}")
        last = [SeenBatch(batch.base_sequence, batch.last_sequence, batch.base_offset) for batch in known.batches]
        if scan.is_dense:
            is_same = not seen.batches or last[-len(seen.batches) :] == seen.batches
        else:
            # Batches in between may be gone from the log, the last one never is.
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
    """A client that reads what is committed, any part of it, is shown just that."""
    stable = log.last_stable_offset
    decided = list(zip(scan.batches, scan.is_committed, strict=True))
    for batch, is_committed in decided:
        if is_committed is None and batch.header.last_offset < stable:
            raise BrokenPromiseError(
                f"{log.partition}: offset {batch.header.base_offset} is before {stable}, the last stable one, and open"
            )
    if stable == log.log_start_offset:
        return
    if not any(batch.header.is_transactional for batch in scan.batches):
        if log.aborted_between(log.log_start_offset, stable):
            raise BrokenPromiseError(f"{log.partition}: something was aborted, and there is no transaction")
        return
    bounds = sorted({batch.header.base_offset for batch in scan.batches if batch.header.base_offset < stable})
    starts = {*bounds[:: max(1, len(bounds) // 4)], *bounds[-1:]}
    for start in starts:
        for end in {one for one in (*starts, stable) if one > start}:
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
    """Every batch is found by its first and its last offset, in the segment it is in."""
    for segment in log.segments:
        for hop in list(segment.hops()):
            for offset in {hop.header.base_offset, hop.header.last_offset}:
                found = segment.position_of(offset)
                if found != hop.position:
                    raise BrokenPromiseError(f"{segment.path}: {offset} is at {hop.position}, not at {found}")


def _check_times(log: Log, scan: LogScan) -> None:
    if not scan.records:
        return
    timestamps = sorted({record.timestamp for record in scan.records})
    middle = timestamps[len(timestamps) // 2]
    for timestamp in {0, timestamps[0], timestamps[0] + 1, middle, middle + 1, timestamps[-1], timestamps[-1] + 1}:
        found = log.find_time(timestamp)
        expected = scan.find_time(timestamp)
        if (found[:2] if found else None) != expected:
            raise BrokenPromiseError(f"{log.partition}: time {timestamp} is found at {found}, a scan has {expected}")
