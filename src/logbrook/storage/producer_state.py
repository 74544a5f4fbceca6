"""Producer state of a log: detects duplicate and out-of-order batches, and tracks open transactions.

Each producer id has its epoch, its last five batches (a client has at most five requests in flight) and the first
offset of its open transaction. The rules are Kafka's:

- A batch or marker with an older epoch is fenced. A newer epoch starts at sequence 0.
- A batch whose base sequence follows the last batch is in order. Sequences wrap from 2^31 - 1 to 0.
- A batch equal to one of the last five is a duplicate and is answered with its original offset. Unlike in Kafka, one of
  an earlier transaction does not count: the batch is out of order (ADR 28).
- Any other sequence is out of order. A producer id without state may start at any sequence, since its state may have
  expired.
- Batches written by a coordinator on behalf of a producer have no sequence; only their epoch is checked.

A table holds at most `producer_ids_max` producers; only open transactions can exceed that. At the bound the producers
that wrote longest ago are dropped (`producer_bound`).

State changes only in `replay`, which is applied to a batch that is in the log: after an append, and again when recovery
reads the log.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, NamedTuple

from typing_extensions import Buffer

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.records.batch import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader, advance_sequence
from logbrook.records.control import Marker, read_marker
from logbrook.records.errors import RecordsError
from logbrook.storage.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from logbrook.storage.segment import Segment
from logbrook.storage.transaction_index import AbortedTxn, TransactionIndex

BATCHES_KEPT = 5
_NO_COORDINATOR_EPOCH = -1
_NO_EPOCH = ProducerEpoch(-1)


class ProducedBatch(NamedTuple):
    """Sequence and offset range of one of a producer's last batches."""

    base_sequence: int
    last_sequence: int
    base_offset: Offset
    next_offset: Offset
    timestamp: int


@dataclass(slots=True)
class ProducerStateEntry:
    """The state of one producer id."""

    epoch: ProducerEpoch
    batches: list[ProducedBatch] = field(default_factory=list)
    transaction_start_offset: Offset | None = None
    last_seen_ms: int = NO_TIMESTAMP
    # Largest timestamp of the open transaction's first batch.
    transaction_started_ms: int = NO_TIMESTAMP
    # Epoch of the coordinator that wrote the last marker.
    coordinator_epoch: int = _NO_COORDINATOR_EPOCH
    # When the last batch was appended, by the broker's clock. Not stored.
    appended_ms: int = NO_TIMESTAMP
    # Of the last marker since the log was opened. Not stored.
    marker_offset: Offset | None = None


class ProducerStateTable:
    """The state of all producer ids of one log, and its transaction index. Owned by the log."""

    def __init__(self, partition: TopicPartition, count_max: int) -> None:
        self._partition = partition
        self._count_max = count_max
        self._producers: dict[ProducerId, ProducerStateEntry] = {}
        # First offset of each open transaction by producer id. Every read needs the smallest.
        self._open_transactions: dict[ProducerId, Offset] = {}
        # (marker offset, first offset) of ended transactions whose marker may be at or above the high watermark.
        self._ended_transactions: deque[tuple[Offset, Offset]] = deque()
        self.aborted = TransactionIndex()
        # When the table was loaded, by the broker's clock: producers in it may be active, whatever their timestamps.
        self.loaded_ms = NO_TIMESTAMP

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def open_count(self) -> int:
        """Number of producers with an open transaction."""
        return len(self._open_transactions)

    def get(self, producer_id: ProducerId) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def open_transactions(self) -> list[tuple[ProducerId, ProducerEpoch, Offset]]:
        """Return (producer id, epoch, first offset) of every open transaction."""
        return [
            (producer_id, self._producers[producer_id].epoch, first_offset)
            for producer_id, first_offset in self._open_transactions.items()
        ]

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Return the first offset that is not yet decided for READ_COMMITTED readers, at most the high watermark.

        A transaction is decided once its marker is below the high watermark.
        """
        if not self._open_transactions and not self._ended_transactions:
            return high_watermark
        stable_offset = min(self.first_unstable_offset(high_watermark), high_watermark)
        for marker_offset, first_offset in self._ended_transactions:
            if marker_offset >= high_watermark and first_offset < stable_offset:
                stable_offset = first_offset
        return stable_offset

    def first_unstable_offset(self, log_end_offset: Offset) -> Offset:
        """Return the first offset of the oldest open transaction, or `log_end_offset` if none is open."""
        return min(self._open_transactions.values(), default=log_end_offset)

    def advance_high_watermark(self, high_watermark: Offset) -> None:
        """Drop ended transactions whose marker is below `high_watermark`: they no longer hold back the LSO."""
        while self._ended_transactions and self._ended_transactions[0][0] < high_watermark:
            self._ended_transactions.popleft()

    def check(self, headers: Sequence[BatchHeader]) -> ProducedBatch | None:
        """Validate the batches of one append. Returns the original batch if the append is a duplicate.

        Raises InvalidProducerEpochError or OutOfOrderSequenceError. Does not change state.
        """
        expected: dict[ProducerId, tuple[ProducerEpoch, int]] = {}
        for header in headers:
            producer_id = header.producer_id
            if producer_id == NO_PRODUCER_ID:
                continue
            producer = self._producers.get(producer_id)
            if producer_id in expected:
                epoch, following = expected[producer_id]
            elif producer is None:
                epoch, following = _NO_EPOCH, -1
            else:
                epoch = producer.epoch
                following = advance_sequence(producer.batches[-1].last_sequence, 1) if producer.batches else 0
            if header.producer_epoch < epoch:
                raise InvalidProducerEpochError(self._partition, producer_id, header.producer_epoch, epoch)
            if header.producer_epoch > epoch >= 0:
                following = 0
            if header.base_sequence == NO_SEQUENCE or header.is_control:
                expected[producer_id] = (header.producer_epoch, max(following, 0))
                continue
            if following not in (-1, header.base_sequence):
                duplicate = producer and producer.epoch == header.producer_epoch and _find(producer, header)
                if duplicate and len(headers) == 1:
                    return duplicate
                raise OutOfOrderSequenceError(self._partition, producer_id, header.base_sequence, following)
            expected[producer_id] = (header.producer_epoch, advance_sequence(header.last_sequence, 1))
        return None

    def replay(
        self,
        header: BatchHeader,
        base_offset: Offset,
        data: Buffer,
        position: int = 0,
        now_ms: int = NO_TIMESTAMP,
    ) -> None:
        """Apply a producer's batch that is in the log at `base_offset`; `now_ms` is the time of its append, if known.

        Its bytes, at `position` in `data`, are read only for a control batch, to find a transaction marker.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None and len(self._producers) >= self._count_max:
            self.expire_oldest(len(self._producers) - self._count_max * 9 // 10)
        if producer is None or producer.epoch < header.producer_epoch:
            previous, producer = producer, ProducerStateEntry(header.producer_epoch)
            if previous is not None:
                producer.transaction_start_offset = previous.transaction_start_offset
                producer.transaction_started_ms = previous.transaction_started_ms
                producer.coordinator_epoch = previous.coordinator_epoch
                producer.marker_offset = previous.marker_offset
            self._producers[header.producer_id] = producer
        producer.last_seen_ms = max(producer.last_seen_ms, header.max_timestamp)
        producer.appended_ms = max(producer.appended_ms, now_ms)
        if header.is_control:
            marker = _marker_in(memoryview(data)[position : position + header.size])
            if marker is not None:
                self._end_transaction(header.producer_id, producer, marker, base_offset)
            return
        if header.is_transactional and producer.transaction_start_offset is None:
            producer.transaction_start_offset = self._open_transactions[header.producer_id] = base_offset
            producer.transaction_started_ms = header.max_timestamp
        if header.base_sequence == NO_SEQUENCE:
            return
        next_offset = base_offset + header.last_offset_delta + 1
        producer.batches.append(
            ProducedBatch(
                header.base_sequence, header.last_sequence, base_offset, Offset(next_offset), header.max_timestamp
            )
        )
        del producer.batches[:-BATCHES_KEPT]

    def replay_segments(self, segments: Iterable[Segment]) -> None:
        """Apply every producer batch of `segments`. Reads headers and, of control batches, the marker.

        Raises CorruptLogError.
        """
        for segment in segments:
            for batch in segment.batches():
                header = batch.header
                if header.producer_id != NO_PRODUCER_ID:
                    data = segment.read(batch.position, header.size).data if header.is_control else b""
                    self.replay(header, header.base_offset, data)

    def _end_transaction(
        self, producer_id: ProducerId, producer: ProducerStateEntry, marker: Marker, offset: Offset
    ) -> None:
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.marker_offset = offset
        first_offset = self._open_transactions.pop(producer_id, None)
        if first_offset is None:
            return
        producer.transaction_start_offset = None
        producer.transaction_started_ms = NO_TIMESTAMP
        self._ended_transactions.append((offset, first_offset))
        if not marker.is_commit:
            last_stable_offset = self.first_unstable_offset(Offset(offset + 1))
            self.aborted.add(AbortedTxn(producer_id, first_offset, offset, last_stable_offset))

    def ids(self) -> frozenset[ProducerId]:
        return frozenset(self._producers)

    @property
    def active_ms(self) -> int:
        """The last time at which a producer was known to be active, by the broker's clock."""
        return max(self.loaded_ms, *(producer.appended_ms for producer in self._producers.values()), NO_TIMESTAMP)

    def expire(self, before_ms: int) -> list[ProducerId]:
        """Remove producers without an open transaction that were last seen before `before_ms`. Returns their ids.

        A producer is seen by the timestamps of its batches and by the time of their append: clients choose the former,
        and one that writes old records must not lose its state between two attempts of a batch.
        """
        if self.loaded_ms >= before_ms:
            return []
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if max(producer.last_seen_ms, producer.appended_ms) < before_ms
            and producer.transaction_start_offset is None
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return expired

    def expire_oldest(self, count: int) -> None:
        """Remove the `count` producers that wrote longest ago, or fewer: those with an open transaction are kept.

        They are ordered by the offset of their last batch with a sequence, since clients choose the timestamps.
        Producers without one count as the oldest, in the order of their ids.
        """
        idle = [
            (producer.batches[-1].base_offset if producer.batches else -1, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.transaction_start_offset is None
        ]
        for _, producer_id in nsmallest(count, idle):
            del self._producers[producer_id]

    def to_json(self) -> list[Any]:
        return [
            [
                producer_id,
                producer.epoch,
                producer.transaction_start_offset,
                producer.last_seen_ms,
                producer.batches[:],
                producer.transaction_started_ms,
                producer.coordinator_epoch,
            ]
            for producer_id, producer in sorted(self._producers.items())
        ]

    def load_json(self, rows: Iterable[Any]) -> None:
        for producer_id, epoch, start, last_seen_ms, batches, *later in rows:
            # Rows of older snapshots have fewer fields.
            self._producers[producer_id] = ProducerStateEntry(
                epoch, [ProducedBatch(*batch) for batch in batches], start, last_seen_ms, *later
            )
            if start is not None:
                self._open_transactions[producer_id] = start


def _find(producer: ProducerStateEntry, header: BatchHeader) -> ProducedBatch | None:
    """Return the batch of which this one is a duplicate. In a transaction, it is a batch of that transaction."""
    start_offset = producer.transaction_start_offset if header.is_transactional else 0
    for batch in producer.batches:
        if (batch.base_sequence, batch.last_sequence) == (header.base_sequence, header.last_sequence):
            return batch if start_offset is not None and batch.base_offset >= start_offset else None
    return None


def _marker_in(batch: memoryview) -> Marker | None:
    try:
        return read_marker(batch)
    except RecordsError:
        # Appends reject such a batch, so it was damaged on the disk; checksums are not verified here. It ends no
        # transaction.
        return None
