"""Transactions: what is committed is seen together, what is aborted never, and what is open holds readers back."""

from collections.abc import Callable

import pytest

from logbrook import Broker
from tests.interop.clients.interface import BEGINNING, Client, Outgoing, ReaderOptions
from tests.interop.conftest import NewTopic
from tests.interop.transactions import (
    COMMITTED,
    TRANSACTIONAL,
    UNCOMMITTED,
    nothing_comes,
    read_to_end,
    records,
    see,
    transactional,
    values,
    write_plain,
)

LARGE = 1_500


@pytest.fixture(params=TRANSACTIONAL)
def client(request: pytest.FixtureRequest, get_client: Callable[[str], Client]) -> Client:
    """Run the test with each client that has transactions."""
    return get_client(request.param)


def test_committed_records_are_visible_to_all_readers(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with transactional(client, servers, topic) as producer:
        producer.begin()
        stored = producer.deliver(*records(topic, b"one", b"two"))
        producer.commit()
    assert [record.offset for record in stored] == [0, 1]
    # The third offset is the transaction marker.
    assert client.ends(servers, topic, [0], read_committed=True) == {0: (0, 3)}
    assert see(client, servers, topic) == see(client, servers, topic, UNCOMMITTED) == [b"one", b"two"]


def test_aborted_records_are_invisible_to_read_committed_consumers(
    client: Client, servers: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with transactional(client, servers, topic) as producer:
        for number in range(6):
            producer.begin()
            producer.deliver(*records(topic, b"%d" % number, b"%d again" % number))
            if number % 3 == 1:
                producer.abort()
            else:
                producer.commit()
    everything = read_to_end(client, servers, topic, UNCOMMITTED)
    # Three offsets for each transaction, the last of them for its marker.
    assert [record.offset for record in everything] == [0, 1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16]
    assert read_to_end(client, servers, topic) == [record for record in everything if record.offset // 3 % 3 != 1]


def test_a_transaction_may_be_empty(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with transactional(client, servers, topic) as producer:
        producer.begin()
        producer.commit()
        producer.begin()
        producer.abort()
        producer.begin()
        producer.deliver(*records(topic, b"one"))
        producer.commit()
    assert see(client, servers, topic) == [b"one"]


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_an_open_transaction_holds_back_read_committed_consumers(
    client: Client, servers: str, new_topic: NewTopic, is_commit: bool
) -> None:
    topic = new_topic()
    write_plain(servers, topic, b"before")
    with (
        transactional(client, servers, topic) as producer,
        client.reader(servers, topic, {0: BEGINNING}, COMMITTED) as committed,
        client.reader(servers, topic, {0: BEGINNING}, UNCOMMITTED) as uncommitted,
    ):
        producer.begin()
        producer.deliver(*records(topic, b"inside"))
        write_plain(servers, topic, b"after")
        assert values(uncommitted.read(3)) == [b"before", b"inside", b"after"]
        assert values(committed.read(1)) == [b"before"]
        # Records after the open transaction are not part of it, and are held back too: order is kept.
        assert nothing_comes(committed)
        assert client.ends(servers, topic, [0]) == {0: (0, 3)}
        assert client.ends(servers, topic, [0], read_committed=True) == {0: (0, 1)}
        if is_commit:
            producer.commit()
        else:
            producer.abort()
        released = [b"inside", b"after"] if is_commit else [b"after"]
        assert values(committed.read(len(released))) == released
        assert client.ends(servers, topic, [0], read_committed=True) == {0: (0, 4)}


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_is_atomic_over_partitions_and_topics(
    client: Client, servers: str, new_topic: NewTopic, is_commit: bool
) -> None:
    topics = [new_topic(3), new_topic(2)]
    sent = [
        (topic, partition) for topic, partitions in zip(topics, (3, 2), strict=True) for partition in range(partitions)
    ]
    with transactional(client, servers, topics[0]) as producer:
        producer.begin()
        producer.deliver(*[Outgoing(topic, b"first", partition=partition) for topic, partition in sent])
        for topic, partition in sent:
            ends = client.ends(servers, topic, [partition], read_committed=True)
            assert ends == {partition: (0, 0)}, "nobody sees a part of it"
        producer.deliver(*[Outgoing(topic, b"second", partition=partition) for topic, partition in sent])
        if is_commit:
            producer.commit()
        else:
            producer.abort()
    expected = [b"first", b"second"] if is_commit else []
    for topic, partitions in zip(topics, (3, 2), strict=True):
        records = read_to_end(client, servers, topic, partitions=partitions)
        assert [values(records, number) for number in range(partitions)] == [expected] * partitions


def test_transactions_of_several_producers_are_interleaved_in_one_partition(
    client: Client, servers: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with (
        transactional(client, servers, f"{topic}-a") as a,
        transactional(client, servers, f"{topic}-b") as b,
        transactional(client, servers, f"{topic}-c") as c,
    ):
        for round_number in range(3):
            for producer in (a, b, c):
                producer.begin()
            for name in (b"1", b"2"):
                for letter, producer in ((b"a", a), (b"b", b), (b"c", c)):
                    producer.deliver(*records(topic, letter + name + b"-%d" % round_number))
                write_plain(servers, topic, b"plain" + name + b"-%d" % round_number)
            b.abort()
            c.commit()
            if round_number == 1:
                a.abort()
            else:
                a.commit()
    everything = see(client, servers, topic, UNCOMMITTED)
    assert len(everything) == 24
    aborted = {b"a1-1", b"a2-1"} | {b"b%d-%d" % (i, j) for i in (1, 2) for j in range(3)}
    assert see(client, servers, topic) == [value for value in everything if value not in aborted]


def test_a_transaction_may_be_larger_than_many_answers(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    sent = {
        is_commit: [b"%s %d" % (str(is_commit).encode(), n) + bytes(200) for n in range(LARGE)]
        for is_commit in (True, False)
    }
    with transactional(client, servers, topic) as producer:
        for is_commit in (False, True, False):
            producer.begin()
            producer.deliver(*records(topic, *sent[is_commit]))
            if is_commit:
                producer.commit()
            else:
                producer.abort()
    options = ReaderOptions(fetch_bytes_max=100_000, read_committed=True)
    assert see(client, servers, topic, options) == sent[True]


def test_compaction_keeps_committed_and_drops_aborted_records(client: Client) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": "4000", "min.cleanable.dirty.ratio": "0"}
    with Broker() as broker:
        servers = broker.bootstrap_servers
        broker.create_topic("compacted", 1, settings)
        with transactional(client, servers, "compactor") as producer:
            for number in range(60):
                producer.begin()
                value = b"%s %d" % (b"aborted" if number % 3 == 2 else b"committed", number)
                producer.deliver(*[Outgoing("compacted", value, b"key-%d" % key) for key in range(3)])
                if number % 3 == 2:
                    producer.abort()
                else:
                    producer.commit()
        before = read_to_end(client, servers, "compacted")
        assert broker.run_maintenance().logs_compacted == 1
        after = read_to_end(client, servers, "compacted")
        assert len(read_to_end(client, servers, "compacted", UNCOMMITTED)) < 180
    assert len(before) == 120
    assert len(after) < 120
    assert set(after) <= set(before), "what stays is what it was, at its offset"
    assert {record.key: record.value for record in after} == {record.key: record.value for record in before}
    assert all((record.value or b"").startswith(b"committed") for record in after)


def test_a_second_producer_continues_with_the_same_transactional_id(
    client: Client, servers: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    for number in range(3):
        with transactional(client, servers, topic) as producer:
            producer.begin()
            producer.deliver(*records(topic, b"%d" % number))
            producer.commit()
    assert see(client, servers, topic) == [b"0", b"1", b"2"]
