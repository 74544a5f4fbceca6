"""The order of a producer's batches while the transaction coordinator adds or verifies their partition.

A producer sends several batches without waiting for responses. The first one of a transaction in a partition waits for
AddPartitionsToTxn at the coordinator, which may be another broker; the later ones with the same producer epoch wait
until it is appended. If it is refused, so are they, and for a while those that arrive before it is repeated: a log that
does not know the producer would accept any sequence. Batches of another epoch, as after InitProducerId, do not wait.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.ports import Clock
from logbrook.records.batch import BatchHeader

# Called with the error of the batch that came first, None if it was appended.
Continuation: TypeAlias = Callable[[LogbrookError | None], None]
_Key: TypeAlias = tuple[TopicPartition, ProducerId, ProducerEpoch]

# Producers whose refused batch is remembered, at most, and for how long: some never repeat it.
_REFUSED_MAX = 1_000
_REFUSED_S = 30.0


class _RefusedBatch(NamedTuple):
    base_sequence: int
    refused_s: float


class TransactionJoins:
    """Pending AddPartitionsToTxn requests and the batches that wait for them. One per broker, on the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[_Key, list[Continuation]] = {}
        # The oldest first.
        self._refused: OrderedDict[_Key, _RefusedBatch] = OrderedDict()

    def begin(self, partition: TopicPartition, header: BatchHeader) -> None:
        """Let later batches wait until `end`."""
        key = _key(partition, header)
        assert key not in self._waiting, "there is one request at a time"
        self._waiting[key] = []

    def wait(self, partition: TopicPartition, header: BatchHeader, resume: Continuation) -> bool:
        """Have `resume` called when the first batch is appended or refused. False if no request is pending."""
        waiting = self._waiting.get(_key(partition, header))
        if waiting is None:
            return False
        waiting.append(resume)
        return True

    def follows_refused(self, partition: TopicPartition, header: BatchHeader) -> bool:
        """True if an earlier batch of the producer was refused, and has not been repeated."""
        refused = self._refused.get(_key(partition, header))
        if refused is None or self._clock.monotonic_s() - refused.refused_s > _REFUSED_S:
            return False
        return header.base_sequence != refused.base_sequence

    def end(
        self, partition: TopicPartition, header: BatchHeader, error: LogbrookError | None, *, is_repeated: bool
    ) -> None:
        """The first batch is appended, or refused with `error`: resume those that wait, in order.

        `is_repeated` says that the producer sends a refused batch again.
        """
        key = _key(partition, header)
        self._refused.pop(key, None)
        if is_repeated:
            self._refused[key] = _RefusedBatch(header.base_sequence, self._clock.monotonic_s())
            if len(self._refused) > _REFUSED_MAX:
                self._refused.popitem(last=False)
        for resume in self._waiting.pop(key):
            resume(error)


def _key(partition: TopicPartition, header: BatchHeader) -> _Key:
    return partition, header.producer_id, header.producer_epoch
