"""Operations of clients on a directory: appends, transactions, retries, reads."""

from logbrook.model.identifiers import Offset, ProducerId
from logbrook.records.batch import NO_SEQUENCE, BatchHeader, TimestampType, read_header
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.producer_state import ProducerStateEntry
from logbrook.testing.crash.life import Life, is_compacted
from logbrook.testing.crash.promises import BrokenPromiseError

_PRODUCER_IDS = (7, 8)
_TRANSACTIONAL_IDS = (9, 10)
# A producer whose batches the coordinator appends on its behalf, as for transactional offset commits.
_COORDINATED_ID = 11


def append(life: Life) -> None:
    """Append one batch, half of the time from an idempotent producer, sometimes with a new epoch."""
    log = life.any_log()
    if log is None:
        return
    now_ms, keyed = life.clock.now_ms(), is_compacted(log)
    if life.rng.random() < 0.5:
        life.append(log, life.source.batch(now_ms, keyed=keyed))
        return
    producer_id = life.rng.choice(_PRODUCER_IDS)
    epoch, sequence = _next_sequence(log.producers.get(ProducerId(producer_id)), now_ms)
    if life.rng.random() < 0.1:
        epoch, sequence = epoch + 1, 0
    life.append(log, life.source.batch(now_ms, keyed=keyed, producer=(producer_id, epoch, sequence)))


def append_set(life: Life) -> None:
    """Append several batches at once."""
    log = life.any_log()
    if log is not None:
        now_ms, keyed = life.clock.now_ms(), is_compacted(log)
        batches = [life.source.batch(now_ms, keyed=keyed) for _ in range(life.rng.randint(2, 3))]
        life.append(log, bytearray(b"".join(batches)))


def append_transactional(life: Life) -> None:
    """Append a transactional batch or the marker that ends the transaction, sometimes with the next epoch."""
    log = life.any_log()
    if log is None:
        return
    producer_id = life.rng.choice((*_TRANSACTIONAL_IDS, _COORDINATED_ID))
    known = log.producers.get(ProducerId(producer_id))
    now_ms, keyed = life.clock.now_ms(), is_compacted(log)
    if known is not None and known.transaction_start_offset is not None and life.rng.random() < 0.5:
        epoch = known.epoch + (life.rng.random() < 0.3)
        life.append(log, life.source.marker(now_ms, producer_id, epoch), AppendOrigin.COORDINATOR)
        return
    epoch, sequence = _next_sequence(known, now_ms)
    is_coordinated = producer_id == _COORDINATED_ID
    producer = (producer_id, epoch, NO_SEQUENCE if is_coordinated else sequence)
    data = life.source.batch(now_ms, keyed=keyed, producer=producer, transactional=True)
    life.append(log, data, AppendOrigin.COORDINATOR if is_coordinated else AppendOrigin.CLIENT)


def end_transactions(life: Life) -> None:
    """End all open transactions of a log, so that it can be compacted."""
    log = life.any_log()
    if log is not None:
        for producer_id, epoch, _ in log.producers.open_transactions():
            life.append(log, life.source.marker(life.clock.now_ms(), producer_id, epoch), AppendOrigin.COORDINATOR)


def retry(life: Life) -> None:
    """Send one of a producer's last batches again, as a client does after a lost response."""
    log = life.any_log()
    known = log.producers.get(ProducerId(life.rng.choice(_PRODUCER_IDS))) if log is not None else None
    if log is None or known is None or not known.batches:
        return
    sent = life.rng.choice(known.batches)
    if not log.log_start_offset <= sent.base_offset < log.log_end_offset:
        return
    slices = log.read(sent.base_offset, 1, up_to=log.log_end_offset).slices
    data = bytes(slices[0].data) if slices else b""
    if not data or not _is_as_sent(read_header(data), sent.base_offset):
        return
    append = log.append(bytearray(data), now_ms=life.clock.now_ms())
    if not append.duplicate or append.base_offset != sent.base_offset:
        raise BrokenPromiseError(f"{log.partition}: a retry of {sent.base_offset} was written at {append.base_offset}")
    life.track(log, append)


def read(life: Life) -> None:
    """Read, which fills the caches."""
    log = life.any_log()
    if log is not None and log.high_watermark > log.log_start_offset:
        log.read(Offset(life.rng.randint(log.log_start_offset, log.high_watermark)), life.rng.randint(1, 2000))
        log.find_time(life.clock.now_ms() - life.rng.randint(0, 5000))


def _is_as_sent(header: BatchHeader, base_offset: int) -> bool:
    """True if this is the batch of `base_offset`, unchanged by log append time or compaction."""
    return (
        header.base_offset == base_offset
        and header.count == header.last_offset_delta + 1
        and header.timestamp_type is TimestampType.CREATE_TIME
        and header.delete_horizon_ms is None
    )


def _next_sequence(known: ProducerStateEntry | None, now_ms: int) -> tuple[int, int]:
    """Return (epoch, sequence) of a producer's next batch. An unknown producer gets an epoch above all that it may have
    had: its state may have expired, or the log may have been deleted."""
    if known is None:
        return now_ms // 1000 - 1000, 0
    return known.epoch, known.batches[-1].last_sequence + 1 if known.batches else 0
