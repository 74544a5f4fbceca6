"""Producers are fenced by a newer producer with their transactional id, and by the transaction timeout."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from logbrook.protocol.error_codes import ErrorCode
from tests.interop.clients.interface import Client, MemberOptions, Producer, RefusedError
from tests.interop.conftest import NewTopic
from tests.interop.members import poll_until
from tests.interop.transactions import (
    FENCED,
    TRANSACTIONAL,
    UNCOMMITTED,
    records,
    see,
    transactional,
    wait_for_stable_end,
    write_plain,
)

# The minimum of librdkafka.
TIMEOUT_MS = 1_000
# The operations of a producer in a transaction.
_ACTS: dict[str, Callable[[Producer, str], object]] = {
    "produce": lambda producer, topic: producer.deliver(*records(topic, b"of a zombie")),
    "produce-elsewhere": lambda producer, topic: producer.deliver(*records(topic, b"of a zombie", partition=1)),
    "commit": lambda producer, _: producer.commit(),
    "abort": lambda producer, _: producer.abort(),
}


@pytest.fixture(params=TRANSACTIONAL)
def client(request: pytest.FixtureRequest, get_client: Callable[[str], Client]) -> Client:
    """Run the test with each client that has transactions."""
    return get_client(request.param)


@pytest.mark.parametrize("act", _ACTS)
def test_a_fenced_producer_fails_and_its_successor_continues(
    client: Client, servers: str, new_topic: NewTopic, act: str
) -> None:
    topic = new_topic(2)
    with transactional(client, servers, topic) as zombie:
        zombie.begin()
        zombie.deliver(*records(topic, b"of a zombie"))
        with transactional(client, servers, topic) as successor:
            assert client.ends(servers, topic, [0], read_committed=True) == {0: (0, 2)}, "it was aborted"
            successor.begin()
            successor.deliver(*records(topic, b"one"))
            _assert_fenced(zombie, topic, act)
            successor.deliver(*records(topic, b"two"))
            successor.commit()
    assert see(client, servers, topic, partitions=2) == [b"one", b"two"]
    assert see(client, servers, topic, UNCOMMITTED, partitions=2) == [b"of a zombie", b"one", b"two"]


def test_a_fenced_producer_commits_no_offsets(client: Client, servers: str, new_topic: NewTopic) -> None:
    source, topic, group = new_topic(), new_topic(), f"of-a-zombie-{client.name}"
    write_plain(servers, source, b"one")
    with (
        transactional(client, servers, topic) as zombie,
        client.member(servers, source, MemberOptions(group)) as member,
    ):
        poll_until([member], count=1)
        zombie.begin()
        with transactional(client, servers, topic):
            with pytest.raises(RefusedError) as refused:
                zombie.send_offsets(member)
            assert refused.value.code in FENCED
    with client.admin(servers) as admin:
        assert admin.group_offsets(group, source).get(0, -1) == -1


def test_a_timed_out_transaction_is_aborted_and_its_producer_fenced(
    client: Client, servers: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    with ExitStack() as stack:
        slow = {act: stack.enter_context(transactional(client, servers, f"{topic}-{act}", TIMEOUT_MS)) for act in _ACTS}
        for producer in slow.values():
            producer.begin()
            producer.deliver(*records(topic, b"too slow"))
        wait_for_stable_end(client, servers, topic)
        for act, producer in slow.items():
            _assert_fenced(producer, topic, act)
    with transactional(client, servers, f"{topic}-commit") as producer:
        producer.begin()
        producer.deliver(*records(topic, b"in time"))
        producer.commit()
    assert see(client, servers, topic, partitions=2) == [b"in time"]


def test_a_longer_timeout_than_the_broker_allows_is_refused(client: Client, servers: str, new_topic: NewTopic) -> None:
    with pytest.raises(RefusedError) as refused:
        transactional(client, servers, new_topic(), 15 * 60_000 + 1)
    assert refused.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def _assert_fenced(producer: Producer, topic: str, act: str) -> None:
    with pytest.raises(RefusedError) as refused:
        _ACTS[act](producer, topic)
    assert refused.value.code in FENCED, act
