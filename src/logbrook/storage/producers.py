"""What a log remembers of its idempotent producers, so that a retry is not a second write.

For each producer id: its epoch, its last five batches (a client has at most five requests in flight), and where its
open transaction began. The rules are Kafka's:

- An older epoch is fenced. A newer one starts again at sequence 0.
- A batch that follows the last one is in order. Sequences wrap from 2^31 - 1 to 0.
- A batch equal to one of the last five is a duplicate: it is answered with the offset it got the first time.
- Anything else is out of order. A producer that the log does not know may start anywhere, since what it wrote before
  may have been forgotten.

State changes only in `replay`, with a batch that is in the log, in the same way when it was just written and when the
log is read again after a restart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logbrook.model import TopicPartition
from logbrook.records.batch import NO_PRODUCER_ID, BatchHeader, advance_sequence
from logbrook.storage.errors import OutOfOrderSequenceError, ProducerFencedError

BATCHES_KEPT = 5


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
    last_seen_ms: int = -1


class Producers:
    """The producers of one log."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._producers: dict[int, Producer] = {}
        # Where each open transaction began, by producer id. Every read asks for the first.
        self._open_transactions: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction began; records from there on are not stable."""
        return min(self._open_transactions.values(), default=None)

    def check(self, headers: Sequence[BatchHeader]) -> ProducedBatch | None:
        """Refuse what is fenced or out of order. For a duplicate, the batch that was written the first time.

        Raises ProducerFencedError or OutOfOrderSequenceError, with nothing changed.
        """
        expected: dict[int, tuple[int, int]] = {}
        for header in headers:
            producer_id = header.producer_id
            if producer_id == NO_PRODUCER_ID or header.is_control:
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
            if following not in (-1, header.base_sequence):
                duplicate = producer and producer.epoch == header.producer_epoch and _find(producer, header)
                if duplicate and len(headers) == 1:
                    return duplicate
                raise OutOfOrderSequenceError(self._partition, producer_id, header.base_sequence, following)
            expected[producer_id] = (header.producer_epoch, advance_sequence(header.last_sequence, 1))
        return None

    def replay(self, header: BatchHeader, base_offset: int) -> None:
        """Take note of a producer's batch that is in the log at `base_offset`."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch < header.producer_epoch:
            start = producer.transaction_start_offset if producer else None
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch, [], start)
        producer.last_seen_ms = max(producer.last_seen_ms, header.max_timestamp)
        if header.is_control:
            producer.transaction_start_offset = None
            self._open_transactions.pop(header.producer_id, None)
            return
        if header.is_transactional and producer.transaction_start_offset is None:
            producer.transaction_start_offset = self._open_transactions[header.producer_id] = base_offset
        next_offset = base_offset + header.last_offset_delta + 1
        producer.batches.append(
            ProducedBatch(header.base_sequence, header.last_sequence, base_offset, next_offset, header.max_timestamp)
        )
        del producer.batches[:-BATCHES_KEPT]

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
            [producer_id, producer.epoch, producer.transaction_start_offset, producer.last_seen_ms, producer.batches[:]]
            for producer_id, producer in sorted(self._producers.items())
        ]

    def load_json(self, rows: Iterable[Any]) -> None:
        for producer_id, epoch, start, last_seen_ms, batches in rows:
            self._producers[producer_id] = Producer(
                epoch, [ProducedBatch(*batch) for batch in batches], start, last_seen_ms
            )
            if start is not None:
                self._open_transactions[producer_id] = start


def _find(producer: Producer, header: BatchHeader) -> ProducedBatch | None:
    for batch in producer.batches:
        if (batch.base_sequence, batch.last_sequence) == (header.base_sequence, header.last_sequence):
            return batch
    return None
