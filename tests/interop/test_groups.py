"""Groups of several members: partitions are shared, and reassigned when members join, leave and crash."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest

from logbrook.protocol.error_codes import ErrorCode
from tests.interop.clients.interface import Client, Feature, Member, MemberOptions, Outgoing, Received, RefusedError
from tests.interop.conftest import NAMES, NewTopic
from tests.interop.members import poll_until, shares

PARTITIONS = 6
_NO_LONGER_A_MEMBER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


class Traffic:
    """Records sent to each partition, and the members that received them."""

    def __init__(self, client: Client, servers: str, topic: str) -> None:
        self._client = client
        self._servers = servers
        self._topic = topic
        self._sent: set[bytes] = set()
        self.received: list[Received] = []

    def is_shared_by(self, members: Sequence[Member]) -> None:
        """Wait until each member has partitions, and all partitions are assigned."""
        poll_until(members, shares(members, PARTITIONS), into=self.received)

    def flows_to(self, members: Sequence[Member]) -> None:
        """Send records, and check that each reaches one of the members."""
        values = [b"%d" % (len(self._sent) + number) for number in range(4 * PARTITIONS)]
        with self._client.producer(self._servers) as producer:
            producer.deliver(
                *[Outgoing(self._topic, value, partition=number % PARTITIONS) for number, value in enumerate(values)]
            )
        self._sent.update(values)
        poll_until(members, lambda: {record.value for record in self.received} >= self._sent, into=self.received)


def test_members_share_the_partitions_as_they_join_leave_and_die(
    library: Client, servers: str, new_topic: NewTopic
) -> None:
    topic, group = new_topic(PARTITIONS), f"of-{library.name}"
    options = MemberOptions(group, auto_commit=True)
    traffic = Traffic(library, servers, topic)
    with library.member(servers, topic, options) as first:
        traffic.flows_to([first])
        with library.member(servers, topic, options) as second:
            traffic.is_shared_by([first, second])
            mortal = library.mortal_member(servers, topic, MemberOptions(group, session_timeout_ms=1_500))
            try:
                everyone = [first, second, mortal]
                traffic.is_shared_by(everyone)
                assert [len(member.assignment) for member in everyone] == [2, 2, 2]
                traffic.flows_to(everyone)
            finally:
                mortal.kill()
            traffic.is_shared_by([first, second])
            traffic.flows_to([first, second])
        traffic.is_shared_by([first])
        traffic.flows_to([first])


def test_members_of_all_clients_share_one_group(
    get_client: Callable[[str], Client], servers: str, new_topic: NewTopic
) -> None:
    topic, options = new_topic(PARTITIONS), MemberOptions("of-all-clients")
    traffic = Traffic(get_client("confluent"), servers, topic)
    with ExitStack() as stack:
        members: list[Member] = []
        # aiokafka is closed first: it would wait for the rebalance that the close of any other member starts.
        for name in sorted(NAMES, key="aiokafka".__eq__):
            members.append(stack.enter_context(get_client(name).member(servers, topic, options)))
            traffic.is_shared_by(members)
        assert sorted(len(member.assignment) for member in members) == [1, 1, 2, 2]
        traffic.flows_to(members)


def test_cooperative_members_keep_partitions_that_do_not_move(
    library: Client, servers: str, new_topic: NewTopic
) -> None:
    library.needs(Feature.COOPERATIVE)
    topic = new_topic(PARTITIONS)
    options = MemberOptions(f"cooperative-{library.name}", is_cooperative=True)
    traffic = Traffic(library, servers, topic)
    held: list[frozenset[int]] = []
    with library.member(servers, topic, options) as first:
        traffic.is_shared_by([first])
        with library.member(servers, topic, options) as second:
            is_shared = shares([first, second], PARTITIONS)

            def look() -> bool:
                held.append(first.assignment)
                return is_shared()

            poll_until([first, second], look)
            assert len(first.assignment) == 3
            assert all(assignment >= first.assignment for assignment in held), "it was without what it keeps"
            traffic.flows_to([first, second])
        traffic.is_shared_by([first])
        traffic.flows_to([first])


def test_a_member_removed_from_its_group_cannot_commit(client: Client, servers: str, new_topic: NewTopic) -> None:
    client.needs(Feature.COMMIT, Feature.POLLING)
    topic, group = new_topic(), f"fenced-{client.name}"
    options = MemberOptions(group, session_timeout_ms=1_000, poll_interval_ms=1_000)
    with client.producer(servers) as producer:
        producer.deliver(*[Outgoing(topic, b"%d" % number) for number in range(10)])
    with client.member(servers, topic, options) as slow:
        poll_until([slow], count=10)
        slow.stall()
        with client.member(servers, topic, MemberOptions(group)) as successor:
            # The slow member is no longer polled, so the group continues without it.
            assert len(poll_until([successor], shares([successor], 1), count=10)) == 10
            successor.commit()
            with pytest.raises(RefusedError) as refused:
                slow.commit()
            assert refused.value.code in _NO_LONGER_A_MEMBER


def test_a_group_continues_where_it_has_committed(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    options = MemberOptions(f"continuing-{client.name}", auto_commit=Feature.COMMIT in client.lacks)
    with client.producer(servers) as producer:
        for round_number in range(3):
            values = {b"%d-%d" % (round_number, number) for number in range(10)}
            producer.deliver(*[Outgoing(topic, value, partition=value[-1] % 2) for value in values])
            with client.member(servers, topic, options) as member:
                assert {record.value for record in poll_until([member], count=10)} == values
                if Feature.COMMIT not in client.lacks:
                    member.commit()
