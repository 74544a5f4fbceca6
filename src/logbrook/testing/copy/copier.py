"""A copier: reads a topic as a member of a group and writes what it read to another, in transactions.

`python -m logbrook.testing.copy.copier` is a process of its own, so that it can be killed. On its standard
output it says `began` when the transaction of its predecessor is over, `wrote N` and
`copied N` when the records of one of its own are there and when it is committed, and `gave up`
with the reason when it ends because of an error that it cannot go on after.

A copy goes to the partition with the number of its original. The offsets that were read are part of the transaction,
so the copies and the knowledge that they were made become true together. What was read in a transaction that ends
otherwise is read again: the position goes back to what the group has committed.
"""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from threading import Event
from typing import TypeVar

from logbrook.testing.copy.topics import BATCH_BYTES_MAX
from logbrook.testing.copy.transform import transform
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import ClientPartition, Consumer, KafkaException, Message

BEGAN = "began"
WROTE = "wrote"
COPIED = "copied"
GAVE_UP = "gave up"
GAVE_UP_CODE = 3
_TRANSACTION_TIMEOUT_MS = 30_000
_CALL_TIMEOUT_S = 5.0
_POLL_TIMEOUT_S = 0.1
# A copier with the planted bug commits offsets apart from transactions, and after so many of them.
_TRANSACTIONS_PER_COMMIT = 5

_T = TypeVar("_T")


class _MustAbortError(Exception):
    """The transaction cannot be committed any more. Nothing of it is visible, and it is to be aborted."""


class Copier:
    """`are_offsets_apart` is a planted bug: a copy is not known to have been made when it is."""

    def __init__(
        self,
        address: str,
        name: str,
        group: str,
        source: str,
        target: str,
        per_transaction: int,
        are_offsets_apart: bool,
    ) -> None:
        self._stopping = Event()
        self._source = source
        self._target = target
        self._per_transaction = per_transaction
        self._are_offsets_apart = are_offsets_apart
        self._transactions = 0
        self._uncommitted: dict[int, int] = {}
        self._is_assigned_anew = False
        self._consumer = clients.consumer(address, group, **{"partition.assignment.strategy": "range"})
        self._producer = clients.producer(
            address,
            **{
                "transactional.id": name,
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "batch.size": BATCH_BYTES_MAX,
            },
        )

    def stop(self) -> None:
        """After the transaction that is under way."""
        self._stopping.set()

    def run(self) -> None:
        """Until it is stopped. Raises KafkaException for an error that it cannot go on after."""
        self._insist(lambda: self._producer.init_transactions(_CALL_TIMEOUT_S))
        _say(BEGAN)
        self._consumer.subscribe([self._source], on_assign=self._assigned, on_revoke=self._assigned)
        try:
            while not self._stopping.is_set():
                self._step()
        finally:
            self._consumer.close()

    def _step(self) -> None:
        read = self._consumer.consume(self._per_transaction, _POLL_TIMEOUT_S)
        records = [message for message in read if message.error() is None]
        if self._is_assigned_anew:
            # What was read may be another member's by now.
            self._uncommitted.clear()
            self._rewind()
        elif records:
            try:
                self._copy(records)
            except _MustAbortError:
                self._insist(lambda: self._producer.abort_transaction(_CALL_TIMEOUT_S))
                self._rewind()
        elif self._uncommitted:
            self._commit_apart()

    def _copy(self, records: Sequence[Message]) -> None:
        """One transaction. Raises _MustAbortError if it has to be aborted."""
        self._producer.begin_transaction()
        ends: dict[int, int] = {}
        for record in records:
            number, offset, value = record.partition(), record.offset(), record.value()
            assert number is not None, "a record has a place"
            assert offset is not None, "a record has a place"
            assert value is not None, "every record has a value"
            ends[number] = offset + 1
            self._producer.produce(self._target, transform(value), record.key(), partition=number)
        offsets = [ClientPartition(self._source, number, offset) for number, offset in ends.items()]
        self._producer.flush(_CALL_TIMEOUT_S)
        _say(f"{WROTE} {len(records)}")
        member = self._consumer.consumer_group_metadata()
        if not self._are_offsets_apart:
            self._insist(lambda: self._producer.send_offsets_to_transaction(offsets, member, _CALL_TIMEOUT_S))
        self._insist(lambda: self._producer.commit_transaction(_CALL_TIMEOUT_S))
        self._transactions += 1
        _say(f"{COPIED} {len(records)}")
        if self._are_offsets_apart:
            self._uncommitted |= ends
            if self._transactions % _TRANSACTIONS_PER_COMMIT == 0:
                self._commit_apart()

    def _commit_apart(self) -> None:
        ends, self._uncommitted = self._uncommitted, {}
        offsets = [ClientPartition(self._source, number, offset) for number, offset in ends.items()]
        self._insist(lambda: self._consumer.commit(offsets=offsets, asynchronous=False))

    def _rewind(self) -> None:
        """Go on where the group is. A broker that does not answer is asked again."""
        assigned = self._consumer.assignment()
        if assigned:
            found = self._insist(lambda: self._committed(assigned))
            self._consumer.assign([ClientPartition(one.topic, one.partition, max(0, one.offset)) for one in found])
        self._is_assigned_anew = False

    def _committed(self, partitions: list[ClientPartition]) -> list[ClientPartition]:
        """Raises KafkaException, also if just one partition has no answer: that is not the same as no offset."""
        found = self._consumer.committed(partitions, timeout=_CALL_TIMEOUT_S)
        for one in found:
            if one.error is not None:
                raise KafkaException(one.error)
        return found

    def _insist(self, call: Callable[[], _T]) -> _T:
        """Raises _MustAbortError, or KafkaException for what is beyond help."""
        while True:
            try:
                return call()
            except KafkaException as raised:
                error = raised.args[0]
                if error.txn_requires_abort():
                    raise _MustAbortError from raised
                if error.fatal() or not clients.may_pass(error):
                    raise

    def _assigned(self, _: Consumer, __: list[ClientPartition]) -> None:
        self._is_assigned_anew = True


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m logbrook.testing.copy.copier", description="Copy a topic.")
    for name in ("address", "name", "group", "source", "target"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--per-transaction", type=int, required=True)
    parser.add_argument("--offsets-apart", action="store_true", help="a planted bug")
    arguments = vars(parser.parse_args())
    copier = Copier(are_offsets_apart=arguments.pop("offsets_apart"), **arguments)
    signal.signal(signal.SIGTERM, lambda *_: copier.stop())
    try:
        copier.run()
    except KafkaException as error:
        _say(f"{GAVE_UP} {error!r}")
        return GAVE_UP_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main())
