"""What a log remembers of its idempotent producers, so that a retry is not a second write.

For each producer id: its epoch, its last five batches (a client has at most five requests in flight), and where its
open transaction began. Of all of them together: which transactions were aborted. The rules are Kafka's:

- An older epoch is fenced, that of a marker too. A newer one starts again at sequence 0.
- A batch that follows the last one is in order. Sequences wrap from 2^31 - 1 to 0.
- A batch equal to one of the last five is a duplicate: it is answered with the offset it got the first time.
- Anything else is out of order. A producer that the log does not know may start anywhere, since what it wrote before
  may have been forgotten.
- What a coordinator writes on behalf of a producer has no sequence, and is checked by its epoch alone.

State changes only in `replay`, with a batch that is in the log, in the same way when it was just written and when the
log is read again after a restart.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from typing_extensions import Buffer

from logbrook.model import TopicPartition
from logbrook.records.batch import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader, advance_sequence
from logbrook.records.control import Marker, read_marker
from logbrook.records.errors import RecordsError
from logbrook.storage.aborted import Aborted, AbortedTransactions
from logbrook.storage.errors import OutOfOrderSequenceError, ProducerFencedError

BATCHES_KEPT = 5
_NO_COORDINATOR_EPOCH = -1


class ProducedBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    next_offset: int
    timestamp: int


@dataclass(slots=True)
class Producer:
    epoch: int
    batches: list[ProducedBatch] = field(default_factory=list)
    transaction_start_offset: int | None = None
    last_seen_ms: int = NO_TIMESTAMP
    # The largest timestamp of the open transaction's first batch.
    transaction_started_ms: int = NO_TIMESTAMP
    # That of the coordinator which ended the last transaction.
    coordinator_epoch: int = _NO_COORDINATOR_EPOCH


class Producers:
    """The producers of one log."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._producers: dict[int, Producer] = {}
        # Where each open transaction began, by producer id. Every read asks for the first.
        self._open_transactions: dict[int, int] = {}
        # (offset of the marker, where the transaction began) of those whose marker may not be committed yet.
        self._just_decided: deque[tuple[int, int]] = deque()
        self.aborted = AbortedTransactions()

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def open_transactions(self) -> list[tuple[int, int, int]]:
        """(producer id, epoch, first offset) of every transaction that is not decided."""
        return [
            (producer_id, self._producers[producer_id].epoch, first_offset)
            for producer_id, first_offset in self._open_transactions.items()
        ]

    def last_stable_offset(self, high_watermark: int) -> int:
        """The first offset that may still be undone: a transaction is decided once its marker is committed."""
        stable = min(self.decided_before(high_watermark), high_watermark)
        self.settle(high_watermark)
        return (
            min([stable, *(first_offset for _, first_offset in self._just_decided)]) if self._just_decided else stable
        )

    def decided_before(self, log_end_offset: int) -> int:
        """Where the oldest open transaction began, or the end of the log: all before it is decided there."""
        return min(self._open_transactions.values(), default=log_end_offset)

    def settle(self, high_watermark: int) -> None:
        """Believe the markers before `high_watermark`: they are committed."""
        while self._just_decided and self._just_decided[0][0] < high_watermark:
            self._just_decided.popleft()

    def check(self, headers: Sequence[BatchHeader]) -> ProducedBatch | None:
        """Refuse what is fenced or out of order. For a duplicate, the batch that was written the first time.

        Raises ProducerFencedError or OutOfOrderSequenceError, with nothing changed.
        """
        expected: dict[int, tuple[int, int]] = {}
        for header in headers:
            producer_id = header.producer_id
            if producer_id == NO_PRODUCER_ID:
                continue
            producer = self._producers.get(producer_id)
            if producer_id in expected:
                epoch, following = expected[producer_id]
            elif producer is None:
                epoch, following = -1, -1
            else:
                epoch = producer.epoch
                following = advance_sequence(producer.batches[-1].last_sequence, 1) if producer.batches else 0
            if header.producer_epoch < epoch:
                raise ProducerFencedError(self._partition, producer_id, header.producer_epoch, epoch)
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

    def replay(self, header: BatchHeader, base_offset: int, data: Buffer, position: int = 0) -> None:
        """Take note of a producer's batch that is in the log at `base_offset`.

        Its bytes, at `position` of `data`, are looked at only if it is a control batch; one that is not a transaction's
        marker ends none.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch < header.producer_epoch:
            known, producer = producer, Producer(header.producer_epoch)
            if known is not None:
                producer.transaction_start_offset = known.transaction_start_offset
                producer.transaction_started_ms = known.transaction_started_ms
                producer.coordinator_epoch = known.coordinator_epoch
            self._producers[header.producer_id] = producer
        producer.last_seen_ms = max(producer.last_seen_ms, header.max_timestamp)
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
            ProducedBatch(header.base_sequence, header.last_sequence, base_offset, next_offset, header.max_timestamp)
        )
        del producer.batches[:-BATCHES_KEPT]

    def _end_transaction(self, producer_id: int, producer: Producer, marker: Marker, offset: int) -> None:
        producer.coordinator_epoch = marker.coordinator_epoch
        first_offset = self._open_transactions.pop(producer_id, None)
        if first_offset is None:
            return
        producer.transaction_start_offset = None
        producer.transaction_started_ms = NO_TIMESTAMP
        self._just_decided.append((offset, first_offset))
        if not marker.is_commit:
            undecided = min(self._open_transactions.values(), default=offset + 1)
            self.aborted.add(Aborted(producer_id, first_offset, offset, undecided))

    def ids(self) -> frozenset[int]:
        return frozenset(self._producers)

    def expire(self, before_ms: int) -> list[int]:
        """Forget producers that were last seen before `before_ms` and have no open transaction. Returns their ids."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.last_seen_ms < before_ms and producer.transaction_start_offset is None
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return expired

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
            # An older snapshot has less in a row.
            self._producers[producer_id] = Producer(
                epoch, [ProducedBatch(*batch) for batch in batches], start, last_seen_ms, *later
            )
            if start is not None:
                self._open_transactions[producer_id] = start


def _find(producer: Producer, header: BatchHeader) -> ProducedBatch | None:
    for batch in producer.batches:
        if (batch.base_sequence, batch.last_sequence) == (header.base_sequence, header.last_sequence):
            return batch
    return None


def _marker_in(batch: memoryview) -> Marker | None:
    try:
        return read_marker(batch)
    except RecordsError:
        # An append refuses it, so this one came some other way, and says nothing that could be believed.
        return None
