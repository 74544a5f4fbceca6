"""What the scenarios about transactions share: producers with a transactional id, and what readers see."""

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

# kcat makes a transaction of each run, and leaves nothing to its caller.
TRANSACTIONAL = ("confluent", "kafka-python", "aiokafka")
COMMITTED = ReaderOptions(read_committed=True)
UNCOMMITTED = ReaderOptions()
# How a producer is told that its transactional id is no longer its own, or its transaction was ended for it.
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
# So long nothing comes to a reader that is held back; those who wait for something wait for much longer.
QUIET_S = 0.15

_END = b"the end "
_numbers = count(1)


def transactional(client: Client, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
    """The producer of this transactional id from now on."""
    options = ProducerOptions(
        idempotent=True, linger_ms=0, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    return client.producer(servers, options)


def records(topic: str, *values: bytes, partition: int = 0) -> list[Outgoing]:
    return [Outgoing(topic, value, partition=partition) for value in values]


def write_plain(servers: str, topic: str, *values: bytes, partition: int = 0) -> None:
    """Outside of all transactions."""
    with RawClient(servers) as raw:
        raw.produce(topic, partition, build_batch([Record(value=value) for value in values]))


def read_to_end(
    client: Client, servers: str, topic: str, options: ReaderOptions = COMMITTED, partitions: int = 1
) -> list[Received]:
    """All that there is. The end of a transaction has an offset but is no record, so a record says where the end is."""
    end = _END + b"%d" % next(_numbers)
    for number in range(partitions):
        write_plain(servers, topic, end, partition=number)
    found: list[Received] = []
    deadline = Deadline()
    with client.reader(servers, topic, dict.fromkeys(range(partitions), BEGINNING), options) as reader:
        while sum(one.value == end for one in found) < partitions:
            deadline.check(f"{len(found)} records came, and not the last")
            found += reader.poll(0.25)
    return [one for one in found if not (one.value or b"").startswith(_END)]


def values(found: Sequence[Received], partition: int | None = None) -> list[bytes]:
    """In the order in which they came."""
    return [one.value or b"" for one in found if partition in (None, one.partition)]


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
    """Until no transaction is open there."""

    def is_stable() -> bool:
        end, stable = (
            client.ends(servers, topic, [partition], read_committed=committed)[partition][1]
            for committed in (False, True)
        )
        return end == stable

    wait_until(is_stable, "no transaction is open", WITHIN_S)
