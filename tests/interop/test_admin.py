"""Clients administer topics, settings, records and groups, and the changes take effect."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from tests.interop.clients.interface import Client, Feature, MemberOptions, Outgoing, RefusedError
from tests.interop.conftest import KEPT_FOREVER, NewTopic
from tests.interop.members import poll_until


@pytest.fixture
def client(client: Client) -> Client:
    client.needs(Feature.ADMIN)
    return client


def test_a_topic_is_created_with_its_settings_and_deleted(client: Client, servers: str) -> None:
    name = f"made-by-{client.name}"
    with client.admin(servers) as admin:
        admin.create_topic(name, 3, {"retention.ms": "123456"})
        assert admin.topics()[name] == 3
        assert admin.configs(name)["retention.ms"] == "123456"
        with client.producer(servers) as producer:
            producer.deliver(Outgoing(name, b"v", partition=2))
        admin.delete_topic(name)
        assert name not in admin.topics()


def test_a_topic_is_created_once(client: Client, servers: str, new_topic: NewTopic) -> None:
    with client.admin(servers) as admin, pytest.raises(RefusedError) as refused:
        admin.create_topic(new_topic(), 1, {})
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_topic_with_a_bad_name_or_setting_is_refused(client: Client, servers: str) -> None:
    with client.admin(servers) as admin:
        with pytest.raises(RefusedError) as refused:
            admin.create_topic("no spaces", 1, {})
        assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(RefusedError) as refused:
            admin.create_topic("good-name", 1, {"retention.ms": "soon"})
        assert refused.value.code == ErrorCode.INVALID_CONFIG
        with pytest.raises(RefusedError) as refused:
            admin.create_topic("good-name", 0, {})
        assert refused.value.code == ErrorCode.INVALID_PARTITIONS
        assert "good-name" not in admin.topics()


def test_settings_without_effect_on_one_node_are_accepted_and_described(client: Client, servers: str) -> None:
    name = f"tuned-by-{client.name}"
    settings = {
        "segment.jitter.ms": "1000",
        "flush.ms": "60000",
        "preallocate": "true",
        "unclean.leader.election.enable": "true",
        "segment.index.bytes": "1048576",
        "local.retention.ms": "1000",
        "remote.storage.enable": "false",
        "leader.replication.throttled.replicas": "0:1",
    }
    with client.admin(servers) as admin:
        admin.create_topic(name, 1, settings)
        configs = admin.configs(name)
        assert {setting: configs[setting] for setting in settings} == settings
        assert configs["max.compaction.lag.ms"] == str(2**63 - 1)
        with client.producer(servers) as producer:
            producer.deliver(Outgoing(name, b"v"))
        with pytest.raises(RefusedError) as refused:
            admin.create_topic(f"{name}-remotely", 1, {"remote.storage.enable": "true"})
        assert refused.value.code == ErrorCode.INVALID_CONFIG
        assert f"{name}-remotely" not in admin.topics()
        admin.alter_configs(name, {"segment.jitter.ms": "5", "retention.ms": "123456"})
        configs = admin.configs(name)
        assert (configs["segment.jitter.ms"], configs["retention.ms"]) == ("5", "123456")
        admin.alter_configs(name, {"max.compaction.lag.ms": "1000", "retention.ms": "123456"})
        assert admin.configs(name)["max.compaction.lag.ms"] == "1000"


def test_a_topic_that_does_not_exist_is_not_deleted(client: Client, servers: str) -> None:
    with client.admin(servers) as admin, pytest.raises(RefusedError) as refused:
        admin.delete_topic("never-was")
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_topic_comes_back_empty(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with client.admin(servers) as admin, client.producer(servers) as producer:
        producer.deliver(*[Outgoing(topic, b"old") for _ in range(5)])
        admin.delete_topic(topic)
        admin.create_topic(topic, 1, {})
    with client.producer(servers) as producer:
        producer.deliver(Outgoing(topic, b"new"))
    assert [(record.offset, record.value) for record in client.read_all(servers, topic)] == [(0, b"new")]


def test_partitions_are_added_and_usable(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    with client.admin(servers) as admin:
        admin.create_partitions(topic, 5)
        assert admin.topics()[topic] == 5
        with pytest.raises(RefusedError) as refused:
            admin.create_partitions(topic, 3)
        assert refused.value.code == ErrorCode.INVALID_PARTITIONS
    with client.producer(servers) as producer:
        producer.deliver(Outgoing(topic, b"v", partition=4))
    assert [record.partition for record in client.read_all(servers, topic, partitions=5)] == [4]


def test_an_altered_setting_has_its_effect(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with client.admin(servers) as admin, client.producer(servers) as producer:
        producer.deliver(Outgoing(topic, bytes(2_000)))
        admin.alter_configs(topic, {"max.message.bytes": "1000"})
        assert admin.configs(topic)["max.message.bytes"] == "1000"
        with pytest.raises(RefusedError) as refused:
            producer.deliver(Outgoing(topic, bytes(2_000)))
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_altering_settings_replaces_all_of_them(client: Client, servers: str, new_topic: NewTopic) -> None:
    client.needs(Feature.PLAIN_ALTER_CONFIGS)
    topic = new_topic(settings={"retention.ms": "123456"})
    with client.admin(servers) as admin:
        admin.alter_configs(topic, {"segment.bytes": "1000000"})
        configs = admin.configs(topic)
    assert configs["segment.bytes"] == "1000000"
    assert configs["retention.ms"] == "604800000"


def test_altering_incrementally_leaves_the_rest(client: Client, servers: str, new_topic: NewTopic) -> None:
    client.needs(Feature.INCREMENTAL_CONFIGS)
    topic = new_topic(settings={"retention.ms": "123456", "segment.bytes": "1000000"})
    with client.admin(servers) as admin:
        admin.alter_configs_incrementally(topic, {"max.message.bytes": "2000", "segment.bytes": None})
        configs = admin.configs(topic)
        assert configs["retention.ms"] == "123456"
        assert configs["max.message.bytes"] == "2000"
        assert configs["segment.bytes"] == str(1 << 30)
        with pytest.raises(RefusedError) as refused:
            admin.alter_configs_incrementally(topic, {"retention.ms": "soon"})
        assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_the_brokers_settings_are_described(client: Client, servers: str) -> None:
    with client.admin(servers) as admin:
        configs = admin.broker_configs()
    assert configs["auto.create.topics.enable"] == "false"
    assert configs["num.partitions"] == "1"


def test_deleted_records_are_gone_and_the_rest_stays(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with client.producer(servers) as producer:
        producer.deliver(*[Outgoing(topic, b"%d" % number) for number in range(10)])
    with client.admin(servers) as admin:
        assert admin.delete_records(topic, 0, 6) == 6
        with pytest.raises(RefusedError) as refused:
            admin.delete_records(topic, 0, 11)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.ends(servers, topic, [0]) == {0: (6, 10)}
    assert [record.offset for record in client.read_all(servers, topic)] == [6, 7, 8, 9]


def test_the_cluster_is_this_broker(client: Client, servers: str) -> None:
    with client.admin(servers) as admin:
        assert admin.brokers() == {1: servers}


def test_the_sizes_of_logs_are_described(client: Client, servers: str, new_topic: NewTopic) -> None:
    client.needs(Feature.LOG_DIRS)
    topic = new_topic(partitions=2)
    with client.producer(servers) as producer:
        producer.deliver(Outgoing(topic, bytes(5_000), partition=1))
    with client.admin(servers) as admin:
        sizes = admin.log_sizes(topic)
    assert sizes[0] == 0
    assert 5_000 < sizes[1] < 6_000


def test_offsets_are_listed_by_earliest_latest_and_timestamp(client: Client, servers: str, new_topic: NewTopic) -> None:
    client.needs(Feature.LIST_OFFSETS, Feature.TIMESTAMPS)
    topic = new_topic(settings=KEPT_FOREVER)
    with client.admin(servers) as admin, client.producer(servers) as producer:
        assert admin.earliest_latest_newest(topic, 0) == (0, 0, -1)
        producer.deliver(*[Outgoing(topic, b"v", timestamp_ms=1_000 + number) for number in (1, 3, 2)])
        assert admin.earliest_latest_newest(topic, 0) == (0, 3, 1)


def test_a_group_is_listed_and_described(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic, group = new_topic(partitions=2), f"looked-at-by-{client.name}"
    with client.admin(servers) as admin:
        with client.member(servers, topic, MemberOptions(group)) as member:
            poll_until([member], lambda: member.assignment == {0, 1})
            assert group in admin.groups()
            assert admin.describe_group(group) == ("stable", 1)
        assert admin.describe_group(group) == ("empty", 0)


def test_a_group_is_deleted_when_it_has_no_members(client: Client, servers: str, new_topic: NewTopic) -> None:
    client.needs(Feature.DELETE_GROUPS)
    topic, group = new_topic(partitions=2), f"deleted-by-{client.name}"
    with client.admin(servers) as admin:
        with client.member(servers, topic, MemberOptions(group)) as member:
            poll_until([member], lambda: member.assignment == {0, 1})
            with pytest.raises(RefusedError) as refused:
                admin.delete_group(group)
            assert refused.value.code == ErrorCode.NON_EMPTY_GROUP
        admin.delete_group(group)
        assert group not in admin.groups()
        with pytest.raises(RefusedError) as refused:
            admin.delete_group(group)
        assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_offsets_of_a_group_are_listed(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic, group = new_topic(partitions=2), f"listed-by-{client.name}"
    with client.producer(servers) as producer:
        producer.deliver(*[Outgoing(topic, b"v", partition=number % 2) for number in range(10)])
    with client.member(servers, topic, MemberOptions(group)) as member:
        poll_until([member], count=10)
        member.commit()
    with client.admin(servers) as admin:
        assert admin.group_offsets(group, topic) == {0: 5, 1: 5}


def test_a_group_continues_at_the_offsets_that_it_is_given(client: Client, servers: str, new_topic: NewTopic) -> None:
    client.needs(Feature.ALTER_GROUP_OFFSETS)
    topic, group = new_topic(), f"altered-by-{client.name}"
    with client.producer(servers) as producer:
        producer.deliver(*[Outgoing(topic, b"%d" % number) for number in range(10)])
    with client.admin(servers) as admin:
        admin.alter_group_offsets(group, topic, {0: 7})
        with client.member(servers, topic, MemberOptions(group)) as member:
            assert [record.offset for record in poll_until([member], count=3)] == [7, 8, 9]
            with pytest.raises(RefusedError) as refused:
                admin.alter_group_offsets(group, topic, {0: 3})
            assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_whose_committed_offset_was_deleted_continues_at_the_log_start(
    client: Client, servers: str, new_topic: NewTopic
) -> None:
    topic, options = new_topic(), MemberOptions(f"displaced-by-{client.name}")
    with client.producer(servers) as producer:
        producer.deliver(*[Outgoing(topic, b"%d" % number) for number in range(4)])
        with client.member(servers, topic, options) as member:
            poll_until([member], count=4)
            member.commit()
        producer.deliver(*[Outgoing(topic, b"%d" % number) for number in range(4, 10)])
    with client.admin(servers) as admin:
        admin.delete_records(topic, 0, 6)
    with client.member(servers, topic, options) as member:
        assert [record.offset for record in poll_until([member], count=4)] == [6, 7, 8, 9]


def test_deleted_offsets_of_a_group_are_removed(client: Client, servers: str, new_topic: NewTopic) -> None:
    client.needs(Feature.DELETE_GROUP_OFFSETS, Feature.ALTER_GROUP_OFFSETS)
    topic, group = new_topic(partitions=2), f"forgotten-by-{client.name}"
    with client.admin(servers) as admin:
        admin.alter_group_offsets(group, topic, {0: 7, 1: 8})
        admin.delete_group_offsets(group, topic, [0])
        assert admin.group_offsets(group, topic) == {1: 8}
        with client.member(servers, topic, MemberOptions(group)) as member:
            poll_until([member], lambda: member.assignment == {0, 1})
            with pytest.raises(RefusedError) as refused:
                admin.delete_group_offsets(group, topic, [1])
            assert refused.value.code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
