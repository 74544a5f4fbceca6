"""Builders and a driver for the tests of the transaction coordinator shard."""

from dataclasses import dataclass, field, replace
from typing import Any

from logbrook.config import TransactionConfig
from logbrook.core.coordinator import CoordinatorRecord, ProducerIdentity
from logbrook.core.transactions.messages import InitRequest
from logbrook.core.transactions.records import decode_key, decode_value, encode_key, encode_value
from logbrook.core.transactions.shard import TransactionCoordinatorShard
from logbrook.core.transactions.transaction import Transaction, TransactionState
from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)

# A transactional id with a distinct value in every field that can change.
ID = "x"
PRODUCER_ID = ProducerId(7)
EPOCH = ProducerEpoch(5)
TIMEOUT_MS = 60_000
NOW_MS = 1_000

EMPTY = Transaction(ID, PRODUCER_ID, EPOCH, TIMEOUT_MS, TransactionState.EMPTY, last_update_ms=10)
STATES = {
    TransactionState.EMPTY: EMPTY,
    TransactionState.ONGOING: replace(
        EMPTY, state=TransactionState.ONGOING, partitions=frozenset({T0, U0}), start_ms=20
    ),
    TransactionState.PREPARE_COMMIT: replace(
        EMPTY, state=TransactionState.PREPARE_COMMIT, partitions=frozenset({T0}), start_ms=20
    ),
    TransactionState.PREPARE_ABORT: replace(
        EMPTY, state=TransactionState.PREPARE_ABORT, partitions=frozenset({T0}), start_ms=20
    ),
    TransactionState.COMPLETE_COMMIT: replace(EMPTY, state=TransactionState.COMPLETE_COMMIT, start_ms=20),
    TransactionState.COMPLETE_ABORT: replace(EMPTY, state=TransactionState.COMPLETE_ABORT, start_ms=20),
}


def a_transaction(state: TransactionState, **facts: Any) -> Transaction:
    return replace(STATES[state], **facts)


def a_coordinator(*transactions: Transaction, **settings: int) -> TransactionCoordinatorShard:
    """A shard with these transactions, open for requests since the time 0."""
    coordinator = TransactionCoordinatorShard(TransactionConfig(**settings))
    for transaction in transactions:
        coordinator.replay(encode_key(transaction.transactional_id), encode_value(transaction))
    coordinator.finish_loading(now_ms=0)
    coordinator.validate()
    return coordinator


def decoded(records: list[CoordinatorRecord]) -> Transaction:
    """Decode the only record."""
    ((key, value),) = records
    transactional_id = decode_key(key)
    assert transactional_id is not None
    assert value is not None
    transaction = decode_value(transactional_id, value)
    transaction.validate()
    return transaction


@dataclass(slots=True)
class Shell:
    """Carries out what a coordinator returns, as the server does; markers are written at once unless they are held."""

    coordinator: TransactionCoordinatorShard = field(default_factory=a_coordinator)
    now_ms: int = 0
    log: list[CoordinatorRecord] = field(default_factory=list)
    next_producer_id: int = 100
    # All markers that were written: the producer, whether it commits, and the partition.
    written: list[tuple[int, int, bool, TopicPartition]] = field(default_factory=list)

    def append(self, records: list[CoordinatorRecord]) -> None:
        self.log += records
        for key, value in records:
            self.coordinator.replay(key, value)
        self.coordinator.validate()

    def init(self, transactional_id: str = ID, producer_id: int = -1, producer_epoch: int = -1) -> ProducerIdentity:
        request = InitRequest(transactional_id, TIMEOUT_MS, ProducerId(producer_id), ProducerEpoch(producer_epoch))
        decision = self.coordinator.init_producer(request, self.fresh_id(transactional_id), self.now_ms)
        self.append(decision.records)
        if decision.result is None:
            self.finish(transactional_id)
            fresh_id = self.fresh_id(transactional_id)
            decision = self.coordinator.init_producer(request, fresh_id, self.now_ms, decision.aborted)
            self.append(decision.records)
        assert decision.result is not None
        return decision.result

    def add(self, producer: ProducerIdentity, *partitions: TopicPartition, transactional_id: str = ID) -> None:
        epoch = producer.producer_epoch
        self.append(
            self.coordinator.add_partitions(transactional_id, producer.producer_id, epoch, partitions, self.now_ms)
        )

    def end(
        self,
        producer: ProducerIdentity,
        *,
        is_commit: bool = True,
        bumps_epoch: bool = True,
        finish: bool = True,
        transactional_id: str = ID,
    ) -> ProducerIdentity:
        decision = self.coordinator.end(
            transactional_id,
            producer.producer_id,
            producer.producer_epoch,
            is_commit=is_commit,
            bumps_epoch=bumps_epoch,
            next_producer_id=self.fresh_id(transactional_id),
            now_ms=self.now_ms,
        )
        self.append(decision.records)
        if decision.records and finish:
            self.finish(transactional_id)
        return decision.result

    def finish(self, transactional_id: str = ID) -> None:
        markers = self.coordinator.markers(transactional_id)
        assert markers is not None
        self.written += [(*markers.producer, markers.is_commit, partition) for partition in markers.partitions]
        self.append(self.coordinator.complete(transactional_id, self.now_ms))
        assert self.coordinator.markers(transactional_id) is None

    def fresh_id(self, transactional_id: str) -> ProducerId | None:
        if not self.coordinator.needs_producer_id(transactional_id):
            return None
        self.next_producer_id += 1
        return ProducerId(self.next_producer_id)
