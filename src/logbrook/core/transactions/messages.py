"""Requests to the transaction coordinator and its decisions, independent of wire versions."""

from dataclasses import dataclass

from logbrook.core.coordinator import CoordinatorRecord, ProducerIdentity
from logbrook.core.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID
from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId


@dataclass(frozen=True, slots=True)
class InitRequest:
    transactional_id: str
    timeout_ms: int
    # The producer's current identity, if it continues after an error (KIP-360).
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class InitDecision:
    """Decision on InitProducerId: the records to append, and the producer's new identity.

    If `result` is None, the records abort the open transaction of `aborted`, which has an epoch that no client gets.
    Repeat the call with `aborted` when the abort is completed.
    """

    records: list[CoordinatorRecord]
    result: ProducerIdentity | None
    aborted: ProducerIdentity | None = None


@dataclass(frozen=True, slots=True)
class EndDecision:
    """Without records, the request is a retry of a completed end. `result` is the next transaction's producer."""

    records: list[CoordinatorRecord]
    result: ProducerIdentity


@dataclass(frozen=True, slots=True)
class TransactionMarkers:
    """The markers of a prepared transaction, one for each of its partitions."""

    transactional_id: str
    producer: ProducerIdentity
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    # Producer epoch of the transaction's records. Records with a later epoch belong to a later transaction.
    transaction_epoch: int

    @property
    def have_own_epoch(self) -> bool:
        """True if the markers have an epoch above that of the records: the next transaction may have it (KIP-890)."""
        return self.producer.producer_epoch > self.transaction_epoch


@dataclass(frozen=True, slots=True)
class TransactionTimeouts:
    """Transactional ids whose open transaction timed out, and ids that were not used for `id_expiration_ms`."""

    timed_out: list[str]
    expired_ids: list[str]
