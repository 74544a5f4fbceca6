"""Transactions in admin APIs: open transactions, their start times and their partitions."""

from collections.abc import Callable

import pytest

from logbrook.protocol.error_codes import ErrorCode
from tests.interop.clients.interface import Client, Feature, ProducerState, RefusedError
from tests.interop.conftest import NewTopic
from tests.interop.transactions import TRANSACTIONAL, records, transactional, write_plain


@pytest.fixture(params=TRANSACTIONAL)
def client(request: pytest.FixtureRequest, get_client: Callable[[str], Client]) -> Client:
    """Run the test with each client that has these APIs."""
    client = get_client(request.param)
    client.needs(Feature.DESCRIBE_TRANSACTIONS)
    return client


def test_transactions_are_listed_and_described(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with client.admin(servers) as admin, transactional(client, servers, topic) as producer:
        assert admin.transactions()[topic] == "Empty"
        producer.begin()
        producer.deliver(*records(topic, b"one", partition=1))
        assert admin.transactions()[topic] == "Ongoing"
        ongoing = admin.describe_transaction(topic)
        assert (ongoing.state, ongoing.partitions) == ("Ongoing", frozenset({(topic, 1)}))
        producer.deliver(*records(topic, b"two"))
        assert admin.describe_transaction(topic).partitions == {(topic, 0), (topic, 1)}
        producer.commit()
        ended = admin.describe_transaction(topic)
        assert (ended.state, ended.producer_id, ended.partitions) == (
            "CompleteCommit",
            ongoing.producer_id,
            frozenset(),
        )
        producer.begin()
        producer.deliver(*records(topic, b"three"))
        producer.abort()
        assert admin.transactions()[topic] == "CompleteAbort"


def test_the_producers_of_a_partition_are_described_with_their_open_transactions(
    client: Client, servers: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    write_plain(servers, topic, b"before")
    with client.admin(servers) as admin, transactional(client, servers, topic) as producer:
        producer.begin()
        producer.deliver(*records(topic, b"one", b"two"))
        producer_id = admin.describe_transaction(topic).producer_id
        assert admin.producers(topic, 0) == [ProducerState(producer_id, 1)]
        producer.commit()
        assert admin.producers(topic, 0) == [ProducerState(producer_id, -1)]


def test_an_unknown_transactional_id_cannot_be_described(client: Client, servers: str) -> None:
    with client.admin(servers) as admin, pytest.raises(RefusedError) as refused:
        admin.describe_transaction("nobody")
    assert refused.value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
