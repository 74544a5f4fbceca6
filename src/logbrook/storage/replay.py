"""What the batches of a log tell of its producers and their transactions, read again from the first segment on.

Only headers are looked at, and of control batches the marker.
"""

from logbrook.records.batch import NO_PRODUCER_ID
from logbrook.storage.aborted import AbortedTransactions
from logbrook.storage.log import Log
from logbrook.storage.producers import Producers


def replay_producers(log: Log) -> None:
    """Make the producers' state anew from the batches that are in the log.

    Raises CorruptLogError; then the producers are known up to there.
    """
    log.producers = Producers(log.partition)
    log.producers.aborted.renew()
    log.state_version += 1
    _replay_segments(log, log.producers)
    log.producers.aborted.drop_before(log.log_start_offset)


def derive_aborted(log: Log) -> None:
    """Find the aborted transactions in the log, and leave what else is known of producers as it is.

    A transaction whose first batches are gone begins later here than it did; to readers of what is left it is the
    same. Raises CorruptLogError.
    """
    found = _aborted_in(log)
    found.renew()
    log.producers.aborted = found
    log.state_version += 1


def knows_aborted(log: Log, found: AbortedTransactions) -> bool:
    """Whether the log knows every aborted transaction that was found in it, from where it began or earlier.

    One of which nothing is left in the log may be known as well.
    """
    known = {one.last_offset: one for one in log.producers.aborted.overlapping(0, log.log_end_offset)}
    for one in found.overlapping(0, log.log_end_offset):
        same = known.get(one.last_offset)
        if same is None or same.producer_id != one.producer_id or same.first_offset > one.first_offset:
            return False
    return True


def adopt_aborted(log: Log, found: AbortedTransactions, end_offset: int) -> None:
    """Let the log know the aborted transactions that were found before `end_offset`; later ones it saw itself."""
    for one in log.producers.aborted.overlapping(end_offset, log.log_end_offset):
        if one.last_offset >= end_offset:
            found.add(one)
    found.renew()
    log.producers.aborted = found
    log.state_version += 1


def _aborted_in(log: Log) -> AbortedTransactions:
    producers = Producers(log.partition)
    _replay_segments(log, producers)
    producers.aborted.drop_before(log.log_start_offset)
    return producers.aborted


def _replay_segments(log: Log, producers: Producers) -> None:
    for segment in log.segments:
        for hop in segment.hops():
            header = hop.header
            if header.producer_id != NO_PRODUCER_ID:
                batch = segment.read(hop.position, header.size).data if header.is_control else b""
                producers.replay(header, header.base_offset, batch)
