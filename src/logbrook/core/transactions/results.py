"""What goes into the coordinator and what comes out of it.

Rules for whoever carries this out:

- Records are appended in the order in which the coordinator gave them out, and `replay`ed as soon as they are
  appended, before the next call that decides anything. If the append fails nothing has happened, and nothing is
  replayed.
- A result is answered when its records, and all before them, are durable.
- After records that decide a transaction (`TransactionCoordinator.markers` is then not None), its markers are written
  and `TransactionCoordinator.complete` is called.
"""

from dataclasses import dataclass
from typing import TypeAlias

from logbrook.core.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, TransactionState
from logbrook.model import TopicPartition

# A key and a value; None is a tombstone.
Record: TypeAlias = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class InitRequest:
    transactional_id: str
    timeout_ms: int
    # What the producer is already, if it wants to go on after an error (KIP-360).
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Initialized:
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class InitDecision:
    """Without a result, the records abort a transaction that is open; then ask again, with `after_abort`."""

    records: list[Record]
    result: Initialized | None


@dataclass(frozen=True, slots=True)
class Ended:
    """What the producer goes on with."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class EndDecision:
    """Without records, it had been done before."""

    records: list[Record]
    result: Ended


@dataclass(frozen=True, slots=True)
class Markers:
    """What is to be written to the partitions of a transaction that is decided."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    # The epoch of what is decided: what the producer wrote in a later one belongs to a later transaction.
    decided_epoch: int


@dataclass(frozen=True, slots=True)
class Due:
    """Whose transactions have taken too long, and the tombstones of ids that nobody uses any more."""

    timed_out: list[str]
    records: list[Record]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    # -1 if there was no transaction yet.
    start_ms: int
    partitions: tuple[TopicPartition, ...]
