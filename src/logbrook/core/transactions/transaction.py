"""The state of one transactional id: its producer, and its current or last transaction.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
               |______> PrepareAbort  -> CompleteAbort  -> Ongoing ...

A producer is identified by its id and epoch. InitProducerId returns a higher epoch, so that writes of the previous
producer are rejected (KIP-98). With transaction version 2 every end of a transaction bumps the epoch too, so that a
delayed request cannot reach a later transaction (KIP-890). The last epoch of a producer id is reserved for fencing;
when all others are used, a new producer id follows.

`last_producer_epoch` is the epoch of the same client before the current one, while the client may not have received the
current one. It distinguishes a retry from a request of a producer that was replaced.

Values are immutable; each transition returns a new one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId

NO_PRODUCER_ID = ProducerId(-1)
NO_EPOCH = ProducerEpoch(-1)
NO_TIME_MS = -1
PRODUCER_EPOCH_MAX = 2**15 - 1
# `client_version` after an end that bumped the epoch.
_TRANSACTION_VERSION_2 = 2
# Memory of a transaction and of each of its partitions besides the text, about.
_TRANSACTION_BYTES = 1_500
_PARTITION_BYTES = 200


class TransactionState(StrEnum):
    """Kafka's state names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_prepared(self) -> bool:
        """True if the transaction is decided, but not all markers are written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_open(self) -> bool:
        """True if partitions may have records whose transaction has no marker yet."""
        return self is TransactionState.ONGOING or self.is_prepared


@dataclass(frozen=True, slots=True)
class Transaction:
    """The current or last transaction of a transactional id, and its producer."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME_MS
    last_producer_epoch: ProducerEpoch = NO_EPOCH
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    # The producer after the transaction is completed, if the producer id changes.
    next_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_epoch: ProducerEpoch = NO_EPOCH
    # The transaction version with which the last transaction was ended.
    client_version: int = 0

    @property
    def size(self) -> int:
        """Memory of the transaction, in bytes, about."""
        return _TRANSACTION_BYTES + len(self.transactional_id) + _PARTITION_BYTES * len(self.partitions)

    @property
    def is_exhausted(self) -> bool:
        """True if the producer id has no further epoch to assign."""
        return is_exhausted(self.producer_epoch)

    @property
    def is_commit(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def decided_epoch(self) -> int:
        """Upper bound of the producer epochs in the records of the transaction that was prepared last."""
        is_bumped = self.client_version == _TRANSACTION_VERSION_2 and self.last_producer_epoch != NO_EPOCH
        return self.last_producer_epoch if is_bumped else self.producer_epoch

    def belongs_to(self, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> bool:
        return (producer_id, producer_epoch) == (self.producer_id, self.producer_epoch)

    def belonged_to(self, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> bool:
        """Return True if this is the producer's previous identity, and it may not have received the current one."""
        if producer_epoch == NO_EPOCH or producer_epoch != self.last_producer_epoch:
            return False
        rotated = self.last_producer_epoch >= self.producer_epoch
        return producer_id == (self.previous_producer_id if rotated else self.producer_id)

    def initialized(
        self,
        timeout_ms: int,
        last_producer_epoch: ProducerEpoch,
        now_ms: int,
        new_producer_id: ProducerId | None = None,
    ) -> "Transaction":
        """Assign the next epoch, to the same client or to a new one, or the first epoch of a new producer id."""
        assert new_producer_id is not None or not self.is_exhausted, "the last epoch is reserved for fencing"
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer_id=self.producer_id if new_producer_id is None else new_producer_id,
            producer_epoch=self.producer_epoch + 1 if new_producer_id is None else 0,
            last_producer_epoch=last_producer_epoch,
            timeout_ms=timeout_ms,
            start_ms=NO_TIME_MS,
        )

    def initialized_again(self, timeout_ms: int, now_ms: int) -> "Transaction":
        """Repeat an initialization whose reply the client did not receive; the epoch stays."""
        return replace(
            self, state=TransactionState.EMPTY, timeout_ms=timeout_ms, start_ms=NO_TIME_MS, last_update_ms=now_ms
        )

    def with_partitions(self, partitions: Iterable[TopicPartition], now_ms: int) -> "Transaction":
        """Add partitions, beginning a transaction if none is open. The client evidently has its current epoch."""
        ongoing = self.state is TransactionState.ONGOING
        return self._moved(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if ongoing else now_ms,
            last_producer_epoch=NO_EPOCH,
        )

    def decided(self, now_ms: int, *, is_commit: bool) -> "Transaction":
        """Prepare the client's decision; the epoch stays."""
        return self._moved(_prepared(is_commit), now_ms, client_version=0)

    def decided_with_bump(self, next_producer_id: ProducerId | None, now_ms: int, *, is_commit: bool) -> "Transaction":
        """Prepare the client's decision and bump the epoch. The transaction may be empty."""
        return self._moved(
            _prepared(is_commit),
            now_ms,
            producer_epoch=min(self.producer_epoch + 1, PRODUCER_EPOCH_MAX),
            last_producer_epoch=self.producer_epoch,
            next_producer_id=NO_PRODUCER_ID if next_producer_id is None else next_producer_id,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            client_version=_TRANSACTION_VERSION_2,
        )

    def fenced(self, now_ms: int) -> "Transaction":
        """Prepare an abort with an epoch that no client gets."""
        assert self.state is TransactionState.ONGOING
        return self._moved(
            TransactionState.PREPARE_ABORT,
            now_ms,
            producer_epoch=min(self.producer_epoch + 1, PRODUCER_EPOCH_MAX),
            last_producer_epoch=NO_EPOCH,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """Complete the transaction: all markers are written."""
        assert self.state.is_prepared
        state = TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT
        producer_id, producer_epoch = self.successor
        return self._moved(
            state, now_ms, partitions=frozenset(), producer_id=producer_id, producer_epoch=producer_epoch
        )

    @property
    def successor(self) -> tuple[ProducerId, ProducerEpoch]:
        """Producer id and epoch after the transaction is completed."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer_id, self.producer_epoch
        return self.next_producer_id, ProducerEpoch(max(self.next_producer_epoch, 0))

    def validate(self) -> None:
        """Assert the invariants of a value."""
        assert self.producer_id >= 0
        assert 0 <= self.producer_epoch <= PRODUCER_EPOCH_MAX
        assert self.state.is_open or not self.partitions
        assert self.state is not TransactionState.ONGOING or self.partitions
        assert (self.start_ms == NO_TIME_MS) == (self.state is TransactionState.EMPTY)
        assert self.next_producer_id == NO_PRODUCER_ID or self.state.is_prepared

    def _moved(self, state: TransactionState, now_ms: int, **changes: Any) -> "Transaction":
        """As in Kafka, the previous producer id is the one before the last transition, often the same."""
        facts: dict[str, Any] = {
            "previous_producer_id": self.producer_id,
            "next_producer_id": NO_PRODUCER_ID,
            "next_producer_epoch": NO_EPOCH,
            **changes,
        }
        return replace(self, state=state, last_update_ms=now_ms, **facts)


def is_exhausted(producer_epoch: ProducerEpoch) -> bool:
    return producer_epoch >= PRODUCER_EPOCH_MAX - 1


def _prepared(is_commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
