"""Transactional producers that write to all partitions.

Each transactional id is used by one producer after another. Most transactions are committed or aborted. Some are left
open, and some are committed after another producer has fenced theirs: nothing of either may become visible. A commit
that fails with an abortable error has had no effect. A fatal error ends the client with a problem, unless its producer
was fenced.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.testing.history import events
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import KafkaError, KafkaException, Message, MustAbortError, Producer
from logbrook.testing.kill.load_client import LoadClient, LoadState, payload

_TRANSACTION_TIMEOUT_MS = 60_000
_CALL_TIMEOUT_S = 2.0
_OPEN_FLUSH_S = 0.2
_PRODUCER_LIFETIME_S = (1.0, 6.0)
_VALUES_MAX = 60
# Relative frequencies of how a transaction ends.
_ENDS = {"commit": 12, "abort": 4, "leave open": 1, "be fenced": 1}


class _NoOpenTransactionError(Exception):
    """The broker has no open transaction to abort.

    A kill can lose the request that adds the first partition to a transaction. The library ends the transaction all the
    same, and fails when that is refused, as it must be after a committed transaction.
    """


class _SequenceReusedError(Exception):
    """The library reused sequence numbers.

    It does so after it has purged records of a failed transaction whose outcome a kill left unknown: if they are in the
    log, every broker must refuse the next ones as out of order. Lost records are found by the history checker.
    """


class _AbandonedError(Exception):
    """The run is ending and the broker will not be restarted."""


class _ActiveProducer(NamedTuple):
    name: str
    producer: Producer
    until: float


class TransactionalClient(LoadClient):
    """A transactional id (the client's name) and its current producer. At the end no transaction is open."""

    def __init__(self, state: LoadState, name: str, settings: dict[str, object]) -> None:
        super().__init__(state, name)
        self._settings = settings
        self._producer_count = 0
        self._transactions = 0
        self._values = 0
        # Producers with records whose outcome is unknown.
        self._with_unknown_records: set[str] = set()

    def run(self) -> None:
        try:
            active = self._acquire()
            while not self.stopping.is_set():
                clients.serve(active.producer, self.rng.uniform(0, 2 * self.state.pace.pause_s))
                with suppress(_NoOpenTransactionError, _SequenceReusedError):
                    active = self._transact(active)
                    if monotonic() <= active.until:
                        continue
                active = self._acquire()
            self._acquire()
        except _AbandonedError:
            pass

    def _acquire(self) -> _ActiveProducer:
        """Return a new producer for the id. It fences its predecessor, whose open transaction is aborted."""
        self._producer_count += 1
        name = f"{self.name}.{self._producer_count}"
        self.state.recorder.record(events.ProducerStarted, name, idempotent=True)
        timeouts = dict.fromkeys(("transaction.timeout.ms", "message.timeout.ms"), _TRANSACTION_TIMEOUT_MS)
        producer = clients.producer(self.state.address, **{**self._settings, **timeouts, "transactional.id": self.name})
        self._retry(lambda: producer.init_transactions(_CALL_TIMEOUT_S))
        self.state.recorder.record(events.TransactionalIdTaken, name, self.name)
        return _ActiveProducer(name, producer, monotonic() + self.rng.uniform(*_PRODUCER_LIFETIME_S))

    def _transact(self, active: _ActiveProducer) -> _ActiveProducer:
        """Run one transaction. Returns the producer of the next one. Raises _SequenceReusedError."""
        try:
            return self._run_transaction(active)
        except KafkaException as raised:
            if (
                raised.args[0].code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
                and active.name in self._with_unknown_records
            ):
                raise _SequenceReusedError from raised
            raise

    def _run_transaction(self, active: _ActiveProducer) -> _ActiveProducer:
        self._transactions += 1
        transaction = f"{active.name}/{self._transactions}"
        active.producer.begin_transaction()
        self.state.recorder.record(events.TransactionBegun, active.name, transaction)
        for _ in range(self.rng.randint(1, min(_VALUES_MAX, 2 * self.state.pace.burst_max))):
            self._send(active)
        active.producer.poll(self.rng.choice((0, 0.005, 0.03)))
        end = self.rng.choices(list(_ENDS), weights=list(_ENDS.values()))[0]
        if end == "commit":
            self._commit(active, transaction)
        elif end == "abort":
            self._abort(active, transaction)
        else:
            active.producer.flush(_OPEN_FLUSH_S)
            successor = self._acquire()
            if end == "be fenced":
                self._commit_after_fencing(active, transaction)
            # The fenced producer may raise that it was fenced, which is expected.
            with suppress(KafkaException):
                active.producer.purge()
                active.producer.poll(0)
            return successor
        return active

    def _send(self, active: _ActiveProducer) -> None:
        self._values += 1
        partition, value = self.rng.choice(self.state.partitions), f"{active.name}:{self._values}"
        self.state.recorder.record(events.Sent, active.name, partition, value)
        on_delivery = partial(self._delivered, active.name, partition, value)
        data = payload(value, int(1_000 ** self.rng.random()))
        active.producer.produce(partition.topic, data, partition=partition.partition, on_delivery=on_delivery)

    def _delivered(
        self, name: str, partition: TopicPartition, value: str, error: KafkaError | None, message: Message
    ) -> None:
        if not clients.record_delivery(self.state.recorder, name, partition, value, error, message):
            self._with_unknown_records.add(name)

    def _commit(self, active: _ActiveProducer, transaction: str) -> None:
        begun_at_ns = self.state.recorder.now_ns()
        try:
            self._retry(lambda: active.producer.commit_transaction(_CALL_TIMEOUT_S))
        except MustAbortError:
            self._abort(active, transaction)
        except BaseException as error:
            self.state.recorder.record(events.TransactionUnknown, begun_at_ns, active.name, transaction, repr(error))
            raise
        else:
            self.state.recorder.record(events.TransactionCommitted, begun_at_ns, active.name, transaction)
            self.state.transactions += 1

    def _abort(self, active: _ActiveProducer, transaction: str) -> None:
        try:
            self._retry(lambda: active.producer.abort_transaction(_CALL_TIMEOUT_S))
        except KafkaException as raised:
            if raised.args[0].code() == KafkaError.INVALID_TXN_STATE:
                raise _NoOpenTransactionError from raised
            raise
        self.state.recorder.record(events.TransactionAborted, active.name, transaction)

    def _commit_after_fencing(self, active: _ActiveProducer, transaction: str) -> None:
        """Commit with a fenced producer; recorded as unknown, so that the checker looks for visible records."""
        begun_at_ns = self.state.recorder.now_ns()
        try:
            self._retry(lambda: active.producer.commit_transaction(_CALL_TIMEOUT_S))
            reason = "the commit was acknowledged"
        except (KafkaException, MustAbortError) as error:
            reason = repr(error)
        self.state.recorder.record(events.TransactionUnknown, begun_at_ns, active.name, transaction, reason)

    def _retry(self, call: Callable[[], object]) -> None:
        """Call until it succeeds. Raises as `clients.retry` does, and _AbandonedError."""
        clients.retry(call, self._check_not_abandoned)

    def _check_not_abandoned(self) -> None:
        if self.state.is_abandoned:
            raise _AbandonedError


def transactional_clients(state: LoadState) -> list[TransactionalClient]:
    return [
        TransactionalClient(state, "transactional-0", {}),
        TransactionalClient(state, "transactional-1", {"linger.ms": 0, "compression.type": "lz4"}),
    ]
