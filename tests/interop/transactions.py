"""Helpers for scenarios about transactions: transactional producers, and the records visible to readers."""

from collections.abc import Sequence
from itertools import count

from logbrook.client import Client as RawClient
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from tests.interop.clients.interface import (
    BEGINNING,
    Client,
    Outgoing,
    Producer,
    ProducerOptions,
    Reader,
    ReaderOptions,
    Received,
)
from tests.interop.waiting import WITHIN_S, Deadline, wait_until

# kcat makes one transaction of each run, without control by the caller.
TRANSACTIONAL = ("confluent", "kafka-python", "aiokafka")
COMMITTED = ReaderOptions(read_committed=True)
UNCOMMITTED = ReaderOptions()
# Error codes of a producer that is fenced, or whose transaction was aborted by the coordinator.
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
# Time without records after which a reader counts as held back; tests that expect records wait much longer.
QUIET_S = 0.15

_END = b"the end "
_numbers = count(1)


def transactional(client: Client, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
    """Return a new producer with this transactional id, which fences earlier ones."""
    options = ProducerOptions(
        idempotent=True, linger_ms=0, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    return client.producer(servers, options)


def records(topic: str, *values: bytes, partition: int = 0) -> list[Outgoing]:
    return [Outgoing(topic, value, partition=partition) for value in values]


def write_plain(servers: str, topic: str, *values: bytes, partition: int = 0) -> None:
    """Write records outside of transactions."""
    with RawClient(servers) as raw:
        raw.produce(topic, partition, build_batch([Record(key=b"plain", value=value) for value in values]))


def read_to_end(
    client: Client, servers: str, topic: str, options: ReaderOptions = COMMITTED, partitions: int = 1
) -> list[Received]:
    """Read all records. Markers have offsets but are no records, so a last record is written to mark the end."""
    end = _END + b"%d" % next(_numbers)
    for number in range(partitions):
        write_plain(servers, topic, end, partition=number)
    records: list[Received] = []
    deadline = Deadline()
    with client.reader(servers, topic, dict.fromkeys(range(partitions), BEGINNING), options) as reader:
        while sum(record.value == end for record in records) < partitions:
            deadline.check(f"{len(records)} records came, and not the last")
            records += reader.poll(0.25)
    return [record for record in records if not (record.value or b"").startswith(_END)]


def values(records: Sequence[Received], partition: int | None = None) -> list[bytes]:
    """Return the values in the order of arrival."""
    return [record.value or b"" for record in records if partition in (None, record.partition)]


def see(
    client: Client, servers: str, topic: str, options: ReaderOptions = COMMITTED, partitions: int = 1
) -> list[bytes]:
    return values(read_to_end(client, servers, topic, options, partitions))


def nothing_comes(reader: Reader) -> bool:
    deadline = Deadline(QUIET_S)
    while not deadline.has_passed:
        if reader.poll(deadline.left_s):
            return False
    return True


def wait_for_stable_end(client: Client, servers: str, topic: str, partition: int = 0) -> None:
    """Wait until the partition has no open transaction."""

    def is_stable() -> bool:
        end, stable = (
            client.ends(servers, topic, [partition], read_committed=committed)[partition][1]
            for committed in (False, True)
        )
        return end == stable

    wait_until(is_stable, "no transaction is open", WITHIN_S)
