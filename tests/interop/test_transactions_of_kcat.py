"""kcat makes one transaction of each run, and commits it at the end."""

from collections.abc import Callable

from tests.interop.clients.interface import Client, Outgoing, ProducerOptions
from tests.interop.conftest import NewTopic
from tests.interop.transactions import UNCOMMITTED, see


def test_a_run_of_kcat_sends_one_transaction(
    get_client: Callable[[str], Client], servers: str, new_topic: NewTopic
) -> None:
    client, topic = get_client("kcat"), new_topic()
    with client.producer(servers, ProducerOptions(transactional_id=topic, idempotent=True)) as producer:
        producer.deliver(*[Outgoing(topic, b"%d" % number) for number in range(10)])
    assert client.ends(servers, topic, [0]) == {0: (0, 11)}, "the last offset is that of the commit"
    assert see(client, servers, topic) == see(client, servers, topic, UNCOMMITTED) == [b"%d" % n for n in range(10)]
