"""Clients above a quota are slowed down to it, within 5 %, whether they heed throttle times or not.

A client may be ahead by the quota of half a second. On a busy machine it may be late by something, too.
"""

import time
from collections.abc import Iterator

import pytest

from logbrook import Broker
from logbrook.client.connection import Connection
from logbrook.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from tests.interop.clients.interface import BEGINNING, Client, Outgoing, ProducerOptions, ReaderOptions

RATE = 500_000
AHEAD_S = 0.5
VALUE_BYTES = 5_000
# What is sent takes one second beyond the half second that a client may be ahead.
COUNT = int(RATE * (AHEAD_S + 1.0) / VALUE_BYTES)
LATE_S = 0.3
# A record batch with one record and no key.
BATCH_BYTES = VALUE_BYTES + 71


@pytest.fixture(scope="module")
def limiting() -> Iterator[Broker]:
    with Broker(["t"], settings={"network": {"quota_windows": 11, "quota_window_ms": 50}}) as broker:
        yield broker


@pytest.fixture
def servers(limiting: Broker) -> str:
    return limiting.bootstrap_servers


def limit(servers: str, key: str, rate: float | None) -> None:
    host, port = servers.rsplit(":", 1)
    entry = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name=None)],
        ops=[OpData(key=key, value=rate or 0.0, remove=rate is None)],
    )
    connection = Connection(host, int(port), timeout_s=10)
    try:
        (result,) = connection.request(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse).entries
    finally:
        connection.close()
    assert result.error_code == 0, result.error_message


def test_a_producer_gets_its_rate(library: Client, servers: str) -> None:
    with library.producer(servers, ProducerOptions(batch_bytes=VALUE_BYTES, linger_ms=0)) as producer:
        # Connects, and is not limited yet.
        producer.deliver(Outgoing("t", b"v"))
        limit(servers, "producer_byte_rate", RATE)
        started_s = time.monotonic()
        producer.deliver(*(Outgoing("t", bytes(VALUE_BYTES)) for _ in range(COUNT)))
        elapsed_s = time.monotonic() - started_s
    limit(servers, "producer_byte_rate", None)
    # The last requests are acknowledged before their own times are over.
    expected_s = COUNT * BATCH_BYTES / RATE - AHEAD_S
    assert expected_s * 0.95 <= elapsed_s <= expected_s * 1.05 + LATE_S


def test_a_consumer_gets_its_rate(library: Client, limiting: Broker, servers: str) -> None:
    topic = f"fetched-by-{library.name}"
    limiting.create_topic(topic)
    with library.producer(servers, ProducerOptions(batch_bytes=VALUE_BYTES)) as producer:
        producer.deliver(*(Outgoing(topic, bytes(VALUE_BYTES)) for _ in range(COUNT)))
    limit(servers, "consumer_byte_rate", RATE)
    with library.reader(servers, topic, {0: BEGINNING}, ReaderOptions(fetch_bytes_max=50_000)) as reader:
        first = reader.read(1)
        started_s = time.monotonic()
        assert len(first + reader.read(COUNT - len(first))) == COUNT
        elapsed_s = time.monotonic() - started_s
    limit(servers, "consumer_byte_rate", None)
    expected_s = COUNT * BATCH_BYTES / RATE - AHEAD_S
    assert expected_s * 0.95 <= elapsed_s <= expected_s * 1.05 + LATE_S
