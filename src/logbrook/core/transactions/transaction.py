"""What is known of one transactional id: its producer, and its present or last transaction.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
               |______> PrepareAbort  -> CompleteAbort  -> Ongoing ...

A producer is its id and its epoch. Whoever initializes the transactional id gets a higher epoch, so that writes of an
older one are refused (KIP-98). Clients of the second version of the protocol get a higher epoch with each end of a
transaction as well, so that what is delayed can never reach a later one (KIP-890). The last epoch of a producer id is
never given out: it is kept for fencing. When there is no other left, a fresh producer id takes over.

`last_producer_epoch` is the epoch of the same client before the present one, while it may not know the present one
yet. It tells a request that is sent again, because its answer was lost, from one of a producer that was replaced.

A value never changes; each transition returns the next one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from logbrook.model import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME_MS = -1
PRODUCER_EPOCH_MAX = 2**15 - 1
# What `client_version` is after an end by which the epoch was bumped.
_VERSION_OF_BUMPS = 2


class TransactionState(StrEnum):
    """Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_prepared(self) -> bool:
        """Whether a transaction is decided, but not all of its partitions know."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_open(self) -> bool:
        """Whether partitions may still wait for the end of a transaction."""
        return self is TransactionState.ONGOING or self.is_prepared


@dataclass(frozen=True, slots=True)
class Transaction:
    """The newest transaction of a transactional id, and who it belongs to."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME_MS
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    # Who takes over when the transaction is completed.
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH
    # The version of the protocol by which the last transaction was ended.
    client_version: int = 0

    # Questions

    @property
    def is_exhausted(self) -> bool:
        """Whether there is no higher epoch that could be given out."""
        return is_exhausted(self.producer_epoch)

    @property
    def is_commit(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def decided_epoch(self) -> int:
        """The epoch in which the transaction that was decided last was written, or a later one that never wrote."""
        is_bumped = self.client_version == _VERSION_OF_BUMPS and self.last_producer_epoch != NO_EPOCH
        return self.last_producer_epoch if is_bumped else self.producer_epoch

    def belongs_to(self, producer_id: int, producer_epoch: int) -> bool:
        return (producer_id, producer_epoch) == (self.producer_id, self.producer_epoch)

    def belonged_to(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this is what the producer was before it became what it is, which it may not know yet."""
        if producer_epoch == NO_EPOCH or producer_epoch != self.last_producer_epoch:
            return False
        rotated = self.last_producer_epoch >= self.producer_epoch
        return producer_id == (self.previous_producer_id if rotated else self.producer_id)

    # Transitions

    def initialized(self, timeout_ms: int, last_producer_epoch: int, now_ms: int) -> "Transaction":
        """With the next epoch, for a client that had the last one, or for a new one."""
        assert not self.is_exhausted, "its last epoch is for fencing"
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=last_producer_epoch,
            timeout_ms=timeout_ms,
            start_ms=NO_TIME_MS,
        )

    def initialized_as(self, producer_id: int, timeout_ms: int, last_producer_epoch: int, now_ms: int) -> "Transaction":
        """With a fresh producer id."""
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=last_producer_epoch,
            timeout_ms=timeout_ms,
            start_ms=NO_TIME_MS,
        )

    def initialized_again(self, timeout_ms: int, now_ms: int) -> "Transaction":
        """With the epoch that the client did not learn about the first time."""
        return replace(
            self,
            state=TransactionState.EMPTY,
            timeout_ms=timeout_ms,
            start_ms=NO_TIME_MS,
            last_update_ms=now_ms,
        )

    def with_partitions(self, partitions: Iterable[TopicPartition], now_ms: int) -> "Transaction":
        """Ongoing, begun now if it was not. A client that adds partitions knows its present epoch."""
        ongoing = self.state is TransactionState.ONGOING
        return self._moved(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if ongoing else now_ms,
            last_producer_epoch=NO_EPOCH,
        )

    def decided(self, now_ms: int, *, is_commit: bool) -> "Transaction":
        """As its client decided, which keeps its epoch."""
        return self._moved(_prepared(is_commit), now_ms, client_version=0)

    def decided_with_bump(self, next_producer_id: int | None, now_ms: int, *, is_commit: bool) -> "Transaction":
        """As its client decided, which goes on with another epoch. There may have been nothing to decide."""
        return self._moved(
            _prepared(is_commit),
            now_ms,
            producer_epoch=min(self.producer_epoch + 1, PRODUCER_EPOCH_MAX),
            last_producer_epoch=self.producer_epoch,
            next_producer_id=NO_PRODUCER_ID if next_producer_id is None else next_producer_id,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            client_version=_VERSION_OF_BUMPS,
        )

    def fenced(self, now_ms: int) -> "Transaction":
        """To be aborted, with an epoch that nobody is told."""
        assert self.state is TransactionState.ONGOING
        return self._moved(
            TransactionState.PREPARE_ABORT,
            now_ms,
            producer_epoch=min(self.producer_epoch + 1, PRODUCER_EPOCH_MAX),
            last_producer_epoch=NO_EPOCH,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """Known in all of its partitions."""
        assert self.state.is_prepared
        state = TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT
        producer_id, producer_epoch = self.successor
        return self._moved(
            state, now_ms, partitions=frozenset(), producer_id=producer_id, producer_epoch=producer_epoch
        )

    @property
    def successor(self) -> tuple[int, int]:
        """The producer id and epoch that are valid after the transaction is completed."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer_id, self.producer_epoch
        return self.next_producer_id, max(self.next_producer_epoch, 0)

    def validate(self) -> None:
        """The rules that hold for every value."""
        assert self.producer_id >= 0
        assert 0 <= self.producer_epoch <= PRODUCER_EPOCH_MAX
        assert self.state.is_open or not self.partitions
        assert self.state is not TransactionState.ONGOING or self.partitions
        assert (self.start_ms == NO_TIME_MS) == (self.state is TransactionState.EMPTY)
        assert self.next_producer_id == NO_PRODUCER_ID or self.state.is_prepared

    def _moved(self, state: TransactionState, now_ms: int, **changes: Any) -> "Transaction":
        """As in Kafka's log, the previous producer id is the one before the last transition, often the same."""
        facts: dict[str, Any] = {
            "previous_producer_id": self.producer_id,
            "next_producer_id": NO_PRODUCER_ID,
            "next_producer_epoch": NO_EPOCH,
            **changes,
        }
        return replace(self, state=state, last_update_ms=now_ms, **facts)


def is_exhausted(producer_epoch: int) -> bool:
    return producer_epoch >= PRODUCER_EPOCH_MAX - 1


def _prepared(is_commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
