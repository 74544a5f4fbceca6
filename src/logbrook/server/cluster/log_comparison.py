"""The comparison of a follower's log with the log of its leader, which may be damaged."""

from logbrook.core.replication.follower import EpochEnd, ReplicaFetch, find_divergence
from logbrook.storage.log import Log


def divergence_of(log: Log, fetch: ReplicaFetch) -> EpochEnd | None:
    """Return where the log of the follower that fetches diverges from the leader's, None if it is a prefix of it.

    Raises CorruptLogError if that depends on leader epochs after damage that a start has found: the follower would
    truncate records that the leader has lost.
    """
    epochs = log.epochs
    end = epochs.end_offset(fetch.last_epoch, log.log_end_offset)
    own_end = None if end is None else EpochEnd(end.epoch, end.start_offset)
    first_start = epochs.starts[0].start_offset if epochs.starts else log.log_end_offset
    divergence = find_divergence(fetch, own_end, first_start)
    if epochs.unknown_from is not None and log.corruption is not None:
        is_known = fetch.offset <= epochs.unknown_from if divergence is None else epochs.is_known(divergence.end_offset)
        if not is_known:
            raise log.corruption.with_traceback(None)
    return divergence
