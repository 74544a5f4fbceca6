"""A delayed EndTxn that arrives after the next transaction has begun (KAFKA-17754)."""

import struct
from collections.abc import Iterator

import pytest

from logbrook import Broker
from logbrook.client import Client as RawClient
from logbrook.client.transactional import TransactionalProducer
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.processes import free_port
from tests.interop.clients.confluent_client import ConfluentClient
from tests.interop.proxy import END_TXN, CuttingProxy
from tests.interop.transactions import UNCOMMITTED, see

TOPIC = "late"


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    """A proxy in front of a broker."""
    with CuttingProxy() as proxy:
        proxy.upstream = f"127.0.0.1:{free_port()}"
        network = {"listen": proxy.upstream, "advertise": proxy.address, "stop_ms": 500}
        with Broker([TOPIC], settings={"network": network}):
            yield proxy


@pytest.mark.parametrize("late_is_commit", [True, False], ids=["late-commit", "late-abort"])
def test_a_late_end_of_a_transaction_has_no_effect(proxy: CuttingProxy, late_is_commit: bool) -> None:
    with RawClient(proxy.address) as raw, TransactionalProducer(raw, "late") as producer:
        assert producer.uses_second_version
        producer.begin()
        _write(producer, b"first")
        proxy.hold(END_TXN)
        if late_is_commit:
            producer.commit()
        else:
            producer.abort()
        assert proxy.has_cut.is_set(), "the producer had to ask twice"
        producer.begin()
        _write(producer, b"second")
        assert _error_code(proxy.release()) == ErrorCode.PRODUCER_FENCED
        ends = ConfluentClient().ends(proxy.address, TOPIC, [0], read_committed=True)
        assert ends == {0: (0, 2)}, "the second is open"
        # The opposite of the delayed request.
        if late_is_commit:
            producer.abort()
        else:
            producer.commit()
    client = ConfluentClient()
    assert see(client, proxy.address, TOPIC) == [b"first" if late_is_commit else b"second"]
    assert see(client, proxy.address, TOPIC, UNCOMMITTED) == [b"first", b"second"]


def _write(producer: TransactionalProducer, value: bytes) -> None:
    batch = build_batch(
        [Record(value=value)],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=producer.next_sequence(TOPIC, 0),
        transactional=True,
    )
    producer.send(TOPIC, 0, batch)
    producer.flush()


def _error_code(answer: bytes) -> int:
    """Return the error code of an EndTxn response: after length, correlation id, tagged fields and throttle time."""
    code: int
    (code,) = struct.unpack_from(">h", answer, 4 + 4 + 1 + 4)
    return code
