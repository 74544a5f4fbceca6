"""Transactional producers: values to all partitions, and an end for all of them together.

A transactional id is taken by one producer after another. Most transactions are committed or aborted. Some are left
open, and some are asked to commit when another producer has the id already: nothing may be seen of either. A commit
that needs an abort instead is one that had no effect. Any error that the library calls fatal ends the client with a
problem, unless its producer was replaced.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import KafkaError, KafkaException, Message, Producer
from logbrook.testing.kill.payloads import payload
from logbrook.testing.kill.scene import Client, Scene

_TRANSACTION_TIMEOUT_MS = 60_000
_CALL_TIMEOUT_S = 2.0
_LEFT_FLUSH_S = 0.2
_LIFE_S = (1.0, 6.0)
_VALUES_MAX = 60
_ENDS = {"commit": 12, "abort": 4, "leave": 1, "be fenced": 1}


class _MustAbortError(Exception):
    """The transaction cannot be committed any more."""


class _UnheardOfError(Exception):
    """The broker knows of no open transaction to abort.

    A kill can swallow the request that adds the first partition to a transaction. The library ends the transaction all
    the same, and gives up when that is refused, as it is to be after a transaction that was committed.
    """


class _LostCountError(Exception):
    """The library gives sequence numbers a second time.

    It does so after it gave up, with a transaction, on records that a kill left in doubt: if they are in the log, the
    next ones are refused as out of order. Any broker has to; and what it may not lose is checked in the history.
    """


class _AbandonedError(Exception):
    """The broker is gone for good."""


class _Life(NamedTuple):
    name: str
    producer: Producer
    until: float


class TransactionalClient(Client):
    """A transactional id, which is the client's name, and who has it. Afterwards none of its transactions is open."""

    def __init__(self, scene: Scene, name: str, settings: dict[str, object]) -> None:
        super().__init__(scene, name)
        self._settings = settings
        self._lives = 0
        self._transactions = 0
        self._values = 0
        # Producers that do not know of all their records whether they are in the log.
        self._in_doubt: set[str] = set()

    def run(self) -> None:
        try:
            life = self._take()
            while not self.stopping.is_set():
                with suppress(_UnheardOfError, _LostCountError):
                    life = self._transact(life)
                    if monotonic() <= life.until:
                        continue
                life = self._take()
            self._take()
        except _AbandonedError:
            pass

    def _take(self) -> _Life:
        """A new producer with the id. Whatever the one before left open is aborted when this returns."""
        self._lives += 1
        name = f"{self.name}.{self._lives}"
        self.scene.recorder.producer_started(name, idempotent=True)
        timeouts = dict.fromkeys(("transaction.timeout.ms", "message.timeout.ms"), _TRANSACTION_TIMEOUT_MS)
        producer = clients.producer(self.scene.address, **{**self._settings, **timeouts, "transactional.id": self.name})
        self._insist(lambda: producer.init_transactions(_CALL_TIMEOUT_S))
        self.scene.recorder.transactional_id_taken(name, self.name)
        return _Life(name, producer, monotonic() + self.rng.uniform(*_LIFE_S))

    def _transact(self, life: _Life) -> _Life:
        """One transaction. Returns who is to make the next one. Raises _LostCountError."""
        try:
            return self._transact_counted(life)
        except KafkaException as raised:
            if raised.args[0].code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER and life.name in self._in_doubt:
                raise _LostCountError from raised
            raise

    def _transact_counted(self, life: _Life) -> _Life:
        self._transactions += 1
        transaction = f"{life.name}/{self._transactions}"
        life.producer.begin_transaction()
        self.scene.recorder.transaction_begun(life.name, transaction)
        for _ in range(self.rng.randint(1, _VALUES_MAX)):
            self._send(life)
        life.producer.poll(self.rng.choice((0, 0.005, 0.03)))
        end = self.rng.choices(list(_ENDS), weights=list(_ENDS.values()))[0]
        if end == "commit":
            self._commit(life, transaction)
        elif end == "abort":
            self._abort(life, transaction)
        else:
            life.producer.flush(_LEFT_FLUSH_S)
            heir = self._take()
            if end == "be fenced":
                self._commit_too_late(life, transaction)
            # It may be told now that it was replaced, which is no problem of anybody's.
            with suppress(KafkaException):
                life.producer.purge()
                life.producer.poll(0)
            return heir
        return life

    def _send(self, life: _Life) -> None:
        self._values += 1
        partition, value = self.rng.choice(self.scene.partitions), f"{life.name}:{self._values}"
        self.scene.recorder.sent(life.name, partition, value)
        answered = partial(self._answered, life.name, partition, value)
        data = payload(value, int(1_000 ** self.rng.random()))
        life.producer.produce(partition.topic, data, partition=partition.partition, on_delivery=answered)

    def _answered(
        self, name: str, partition: TopicPartition, value: str, error: KafkaError | None, message: Message
    ) -> None:
        offset = message.offset()
        if error is None and offset is not None and offset >= 0:
            self.scene.recorder.acknowledged(name, partition, offset, value)
        else:
            self._in_doubt.add(name)
            self.scene.recorder.unknown(name, partition, value, "no offset" if error is None else error.name())

    def _commit(self, life: _Life, transaction: str) -> None:
        begun_at_ns = self.scene.recorder.now_ns()
        try:
            self._insist(lambda: life.producer.commit_transaction(_CALL_TIMEOUT_S))
        except _MustAbortError:
            self._abort(life, transaction)
        except BaseException as error:
            self.scene.recorder.transaction_unknown(begun_at_ns, life.name, transaction, repr(error))
            raise
        else:
            self.scene.recorder.transaction_committed(begun_at_ns, life.name, transaction)
            self.scene.transactions += 1

    def _abort(self, life: _Life, transaction: str) -> None:
        try:
            self._insist(lambda: life.producer.abort_transaction(_CALL_TIMEOUT_S))
        except KafkaException as raised:
            if raised.args[0].code() == KafkaError.INVALID_TXN_STATE:
                raise _UnheardOfError from raised
            raise
        self.scene.recorder.transaction_aborted(life.name, transaction)

    def _commit_too_late(self, life: _Life, transaction: str) -> None:
        """What comes of it is for the readers to see: it is recorded as not known."""
        begun_at_ns = self.scene.recorder.now_ns()
        try:
            self._insist(lambda: life.producer.commit_transaction(_CALL_TIMEOUT_S))
            reason = "it was acknowledged"
        except (KafkaException, _MustAbortError) as error:
            reason = repr(error)
        self.scene.recorder.transaction_unknown(begun_at_ns, life.name, transaction, reason)

    def _insist(self, call: Callable[[], object]) -> None:
        """Raises _MustAbortError, _AbandonedError, or KafkaException for what is beyond help."""
        while True:
            try:
                call()
            except KafkaException as raised:
                error = raised.args[0]
                if error.txn_requires_abort():
                    raise _MustAbortError(str(error)) from raised
                if error.fatal() or not clients.may_pass(error):
                    raise
                if self.scene.is_abandoned:
                    raise _AbandonedError from raised
            else:
                return


def transactional_clients(scene: Scene) -> list[TransactionalClient]:
    return [
        TransactionalClient(scene, "transactional-0", {}),
        TransactionalClient(scene, "transactional-1", {"linger.ms": 0, "compression.type": "lz4"}),
    ]
