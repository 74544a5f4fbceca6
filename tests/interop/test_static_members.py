"""Static members (KIP-345) return to their partitions without a rebalance, and are fenced by a newer instance."""

from collections.abc import Iterator

import pytest

from logbrook import Broker
from logbrook.protocol.error_codes import ErrorCode
from tests.interop.clients.interface import Client, Feature, MemberOptions, Outgoing, RefusedError
from tests.interop.members import poll_until, shares
from tests.interop.proxy import JOIN_GROUP, CuttingProxy

TOPIC = "shared"


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    """A proxy in front of a broker, to count JoinGroup requests."""
    with CuttingProxy() as proxy, Broker({TOPIC: 4}, settings={"network": {"advertise": proxy.address}}) as broker:
        proxy.upstream = broker.bootstrap_servers
        yield proxy


def test_a_static_member_comes_back_without_a_rebalance(client: Client, proxy: CuttingProxy) -> None:
    servers = proxy.address
    options = MemberOptions("static", instance_id="one")
    with client.member(servers, TOPIC, MemberOptions("static", instance_id="two")) as second:
        with client.member(servers, TOPIC, options) as member:
            poll_until([member, second], shares([member, second], 4))
            had = member.assignment
        joins = proxy.requests[JOIN_GROUP]
        with client.producer(servers) as producer:
            producer.deliver(*[Outgoing(TOPIC, b"%d" % number, partition=number) for number in range(4)])
        with client.member(servers, TOPIC, options) as back:
            received = poll_until([back, second], shares([back, second], 4), count=4)
            assert back.assignment == had
    assert {record.value for record in received} == {b"0", b"1", b"2", b"3"}
    assert proxy.requests[JOIN_GROUP] == joins + 1, "only the one that came back joined"


def test_a_static_member_is_fenced_by_its_successor(client: Client, proxy: CuttingProxy) -> None:
    client.needs(Feature.FENCING, Feature.COMMIT)
    options = MemberOptions("static", instance_id="one")
    with client.producer(proxy.address) as producer:
        producer.deliver(*[Outgoing(TOPIC, b"%d" % number, partition=number) for number in range(4)])
    with client.member(proxy.address, TOPIC, options) as old:
        poll_until([old], shares([old], 4), count=4)
        with client.member(proxy.address, TOPIC, options) as new:
            poll_until([new], shares([new], 4), count=4)
            with pytest.raises(RefusedError) as refused:
                old.commit()
            assert refused.value.code == ErrorCode.FENCED_INSTANCE_ID
            new.commit()
