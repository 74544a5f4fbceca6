"""A copier: a group member that copies one topic to another in transactions (consume-transform-produce).

`python -m logbrook.testing.copy.copier` runs as its own process, so that it can be killed. It reports on standard
output: `began` after InitProducerId has ended its predecessor's transaction, `wrote N` when the records of a
transaction are acknowledged, `copied N` when it is committed, and `gave up` with the reason when it exits on a fatal
error.

A copy goes to the same partition number as its original. The consumed offsets are part of the transaction, so copies
and offsets commit atomically. After an abort the position is reset to the group's committed offsets.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from threading import Event

from logbrook.testing.copy.comparison import transform
from logbrook.testing.copy.topics import BATCH_BYTES_MAX
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import ClientPartition, Consumer, KafkaException, Message, MustAbortError

BEGAN = "began"
WROTE = "wrote"
COPIED = "copied"
GAVE_UP = "gave up"
GAVE_UP_CODE = 3
_TRANSACTION_TIMEOUT_MS = 30_000
_CALL_TIMEOUT_S = 5.0
_OPEN_S = 0.1
_POLL_TIMEOUT_S = 0.1
# With the planted bug, offsets are committed outside of transactions, once per this many of them.
_TRANSACTIONS_PER_COMMIT = 5


class Copier:
    """`are_offsets_apart` is a planted bug: offsets are committed separately from the copies."""

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
        self._is_reassigned = False
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
        """Stop after the current transaction."""
        self._stopping.set()

    def run(self) -> None:
        """Copy until stopped. Raises KafkaException for a fatal error."""
        clients.retry(lambda: self._producer.init_transactions(_CALL_TIMEOUT_S))
        _report(BEGAN)
        self._consumer.subscribe([self._source], on_assign=self._assigned, on_revoke=self._assigned)
        try:
            while not self._stopping.is_set():
                self._step()
        finally:
            self._consumer.close()

    def _step(self) -> None:
        read = self._consumer.consume(self._per_transaction, _POLL_TIMEOUT_S)
        records = [message for message in read if message.error() is None]
        if self._is_reassigned:
            # The records may belong to another member by now.
            self._uncommitted.clear()
            self._rewind()
        elif records:
            try:
                self._copy(records)
            except MustAbortError:
                clients.retry(lambda: self._producer.abort_transaction(_CALL_TIMEOUT_S))
                self._rewind()
        elif self._uncommitted:
            self._commit_apart()

    def _copy(self, records: Sequence[Message]) -> None:
        """Copy the records in one transaction. Raises MustAbortError."""
        self._producer.begin_transaction()
        ends: dict[int, int] = {}
        for record in records:
            number, offset, value = record.partition(), record.offset(), record.value()
            assert number is not None, "a delivered record has a partition and an offset"
            assert offset is not None, "a delivered record has a partition and an offset"
            assert value is not None, "every record has a value"
            ends[number] = offset + 1
            self._producer.produce(self._target, transform(value), record.key(), partition=number)
        offsets = [ClientPartition(self._source, number, offset) for number, offset in ends.items()]
        self._producer.flush(_CALL_TIMEOUT_S)
        _report(f"{WROTE} {len(records)}")
        # A kill that waits for this report hits the open transaction.
        self._stopping.wait(_OPEN_S)
        member = self._consumer.consumer_group_metadata()
        if not self._are_offsets_apart:
            clients.retry(lambda: self._producer.send_offsets_to_transaction(offsets, member, _CALL_TIMEOUT_S))
        clients.retry(lambda: self._producer.commit_transaction(_CALL_TIMEOUT_S))
        self._transactions += 1
        _report(f"{COPIED} {len(records)}")
        if self._are_offsets_apart:
            self._uncommitted |= ends
            if self._transactions % _TRANSACTIONS_PER_COMMIT == 0:
                self._commit_apart()

    def _commit_apart(self) -> None:
        ends, self._uncommitted = self._uncommitted, {}
        offsets = [ClientPartition(self._source, number, offset) for number, offset in ends.items()]
        clients.retry(lambda: self._consumer.commit(offsets=offsets, asynchronous=False))

    def _rewind(self) -> None:
        """Reset the position to the group's committed offsets."""
        assigned = self._consumer.assignment()
        if assigned:
            committed = clients.retry(lambda: self._committed(assigned))
            self._consumer.assign(
                [ClientPartition(offset.topic, offset.partition, max(0, offset.offset)) for offset in committed]
            )
        self._is_reassigned = False

    def _committed(self, partitions: list[ClientPartition]) -> list[ClientPartition]:
        """Fetch committed offsets. Raises KafkaException if any partition failed: an error is not "no offset"."""
        offsets = self._consumer.committed(partitions, timeout=_CALL_TIMEOUT_S)
        for offset in offsets:
            if offset.error is not None:
                raise KafkaException(offset.error)
        return offsets

    def _assigned(self, _: Consumer, __: list[ClientPartition]) -> None:
        self._is_reassigned = True


def _report(line: str) -> None:
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
        _report(f"{GAVE_UP} {error!r}")
        return GAVE_UP_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main())
