"""Offsets committed in transactions become visible together with the records of the transaction."""

from collections.abc import Callable

import pytest

from logbrook.protocol.error_codes import ErrorCode
from tests.interop.clients.interface import Client, Feature, MemberOptions, Outgoing, Producer, RefusedError
from tests.interop.conftest import NewTopic
from tests.interop.members import poll_until, shares
from tests.interop.transactions import QUIET_S, TRANSACTIONAL, read_to_end, records, transactional, values, write_plain
from tests.interop.waiting import Deadline

COUNT = 60
PARTITIONS = 2
# The error codes with which clients report that the partitions are assigned to another member.
_NO_LONGER_A_MEMBER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


@pytest.fixture(params=TRANSACTIONAL)
def client(request: pytest.FixtureRequest, get_client: Callable[[str], Client]) -> Client:
    """Run the test with each client that has transactions."""
    return get_client(request.param)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_offsets_are_visible_once_their_transaction_is_committed(
    client: Client, servers: str, new_topic: NewTopic, is_commit: bool
) -> None:
    source, target, group = new_topic(), new_topic(), f"offsets-{client.name}-{is_commit}"
    write_plain(servers, source, *[b"%d" % number for number in range(5)])
    with (
        transactional(client, servers, target) as producer,
        client.member(servers, source, MemberOptions(group)) as member,
        client.admin(servers) as admin,
    ):
        poll_until([member], count=5)
        producer.begin()
        producer.deliver(*records(target, b"all five"))
        producer.send_offsets(member)
        assert admin.group_offsets(group, source).get(0, -1) == -1, "it is not decided yet"
        if is_commit:
            producer.commit()
        else:
            producer.abort()
        assert admin.group_offsets(group, source).get(0, -1) == (5 if is_commit else -1)
    assert values(read_to_end(client, servers, target)) == ([b"all five"] if is_commit else [])


def test_a_removed_member_cannot_commit_offsets_in_a_transaction(
    client: Client, servers: str, new_topic: NewTopic
) -> None:
    client.needs(Feature.MEMBERS_IN_TRANSACTIONS)
    source, target, group = new_topic(), new_topic(), f"no-member-{client.name}"
    write_plain(servers, source, *[b"%d" % number for number in range(5)])
    options = MemberOptions(group, session_timeout_ms=1_000, poll_interval_ms=1_000)
    with (
        transactional(client, servers, target) as producer,
        client.member(servers, source, options) as slow,
    ):
        poll_until([slow], count=5)
        producer.begin()
        producer.deliver(*records(target, b"of the slow one"))
        slow.stall()
        with client.member(servers, source, MemberOptions(group)) as successor:
            # The slow member is no longer polled, so the group continues without it.
            poll_until([successor], shares([successor], 1), count=5)
            with pytest.raises(RefusedError) as refused:
                producer.send_offsets(slow)
            assert refused.value.code in _NO_LONGER_A_MEMBER
            producer.abort()
            successor.commit()
        with client.admin(servers) as admin:
            assert admin.group_offsets(group, source) == {0: 5}
    assert values(read_to_end(client, servers, target)) == []


def test_a_member_waits_for_offsets_that_a_transaction_is_about_to_change(
    client: Client, servers: str, new_topic: NewTopic
) -> None:
    client.needs(Feature.STABLE_OFFSETS)
    source, target, group = new_topic(), new_topic(), f"stable-{client.name}"
    write_plain(servers, source, *[b"%d" % number for number in range(5)])
    with transactional(client, servers, target) as producer:
        with client.member(servers, source, MemberOptions(group, read_committed=True)) as first:
            poll_until([first], count=5)
            producer.begin()
            producer.send_offsets(first)
        write_plain(servers, source, b"5", b"6")
        with client.member(servers, source, MemberOptions(group, read_committed=True)) as second:
            poll_until([second], shares([second], 1))
            deadline = Deadline(QUIET_S)
            while not deadline.has_passed:
                assert second.poll(deadline.left_s) == [], "it does not know where to begin"
            producer.commit()
            assert values(poll_until([second], count=2)) == [b"5", b"6"]


def test_consume_transform_produce_writes_every_record_once_despite_aborts(
    client: Client, servers: str, new_topic: NewTopic
) -> None:
    source, target = new_topic(PARTITIONS), new_topic(PARTITIONS)
    for number in range(COUNT):
        write_plain(servers, source, b"%d" % number, partition=number % PARTITIONS)
    copied = 0
    with transactional(client, servers, target) as producer:
        for attempt in range(4):
            copied += _copy(client, servers, producer, source, target, give_up=attempt < 3, want=COUNT - copied)
    assert copied == COUNT
    records = read_to_end(client, servers, target, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        expected = [b"copy of %d" % number for number in range(partition, COUNT, PARTITIONS)]
        assert values(records, partition) == expected


def _copy(
    client: Client, servers: str, producer: Producer, source: str, target: str, *, give_up: bool, want: int
) -> int:
    """Copy and commit one poll, then abort the next; or copy the rest. Returns the number of committed records."""
    copied = 0
    with client.member(servers, source, MemberOptions(f"copy-{client.name}", read_committed=True)) as member:
        while copied < want:
            polled = poll_until([member], count=1)[:]
            producer.begin()
            producer.deliver(
                *[
                    Outgoing(target, b"copy of " + (record.value or b""), partition=record.partition)
                    for record in polled
                ]
            )
            producer.send_offsets(member)
            if give_up and (copied or len(polled) >= want):
                producer.abort()
                return copied
            producer.commit()
            copied += len(polled)
    return copied
