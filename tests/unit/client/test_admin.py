"""What an operator asks of a cluster, against a real broker; the command line's tests show the rest of it."""

from collections.abc import Iterator

import pytest

from logbrook import Broker
from logbrook.client import BrokerError, Client, ClientError, TransactionalProducer
from logbrook.client.admin import Admin
from logbrook.client.admin_groups import Shift
from logbrook.client.admin_results import OffsetChange, SettingSource
from logbrook.client.group_member import GroupMember
from logbrook.client.positions import End
from logbrook.client.record_writer import RecordWriter
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.record import Record


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"groups": {"initial_rebalance_delay_ms": 0}}) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Client(broker.bootstrap_servers) as client:
        yield Admin(client)


def write(admin: Admin, topic: str, partition: int, count: int) -> None:
    with RecordWriter(admin.client, topic) as writer:
        for number in range(count):
            writer.write(Record(value=b"%d" % number, timestamp=1_000 * number), partition)


def code_of(raised: pytest.ExceptionInfo[BrokerError]) -> ErrorCode:
    return raised.value.code


def test_the_cluster_is_described(admin: Admin, broker: Broker) -> None:
    told = admin.describe_cluster()
    (one,) = told.brokers
    assert (f"{one.host}:{one.port}", told.controller_id) == (broker.bootstrap_servers, one.id)
    assert told.cluster_id


def test_topics_have_offsets_and_sizes(admin: Admin) -> None:
    admin.topics.create("sized", 3)
    write(admin, "sized", 1, 5)
    found = {topic.name: topic for topic in admin.topics.all()}["sized"]
    assert found == admin.topics.describe("sized")
    assert [(one.start_offset, one.end_offset, one.offsets) for one in found.partitions] == [
        (0, 0, 0),
        (0, 5, 5),
        (0, 0, 0),
    ]
    assert found.offsets == 5
    (directory,) = admin.log_directories()
    assert directory.partitions[TopicPartition("sized", 1)] == found.partitions[1].size_bytes == found.size_bytes
    assert directory.size_bytes >= (found.size_bytes or 0) > 0


def test_what_is_only_tried_changes_nothing(admin: Admin) -> None:
    admin.topics.create("tried", 1, validate_only=True)
    assert "tried" not in admin.topics.names()
    admin.topics.create("tried", 1)
    admin.topics.set_partitions("tried", 5, validate_only=True)
    admin.configs.alter_topic("tried", {"retention.ms": "1"}, validate_only=True)
    assert len(admin.topics.describe("tried").partitions) == 1
    assert all(one.is_default for one in admin.configs.of_topic("tried"))


def test_a_setting_knows_where_it_is_from_and_what_it_would_be(admin: Admin) -> None:
    admin.topics.create("set", settings={"retention.ms": "77"})
    found = {one.name: one for one in admin.configs.of_topic("set")}["retention.ms"]
    assert (found.value, found.source, found.default) == ("77", SettingSource.TOPIC, "604800000")
    assert found.documentation
    admin.configs.alter_topic("set", {}, ["retention.ms"])
    found = {one.name: one for one in admin.configs.of_topic("set")}["retention.ms"]
    assert (found.value, found.source, found.default) == ("604800000", SettingSource.DEFAULT, "604800000")


def test_a_broker_tells_its_settings_and_one_that_is_not_there_does_not(admin: Admin) -> None:
    (one,) = admin.describe_cluster().brokers
    assert {setting.name for setting in admin.configs.of_broker(one.id)}
    with pytest.raises(ClientError, match=r"there is no broker 99; there are 1"):
        admin.configs.of_broker(99)


def test_several_topics_are_described_at_once(admin: Admin) -> None:
    admin.topics.create("first-of-two")
    admin.topics.create("second-of-two", settings={"retention.ms": "5"})
    found = admin.configs.of_topics(["first-of-two", "second-of-two"])
    changed = {topic: [one.name for one in settings if not one.is_default] for topic, settings in found.items()}
    assert changed == {"first-of-two": [], "second-of-two": ["retention.ms"]}


def test_records_are_deleted_up_to_an_offset(admin: Admin) -> None:
    admin.topics.create("shortened", 2)
    write(admin, "shortened", 0, 5)
    partition = TopicPartition("shortened", 0)
    assert admin.topics.delete_records({partition: 3}) == {partition: 3}
    assert admin.topics.describe("shortened").partitions[0].start_offset == 3
    with pytest.raises(BrokerError) as raised:
        admin.topics.delete_records({partition: 9})
    assert code_of(raised) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_lag_of_a_group_counts_what_can_still_be_read(admin: Admin) -> None:
    admin.topics.create("lagging", 2)
    write(admin, "lagging", 0, 10)
    partition = TopicPartition("lagging", 0)
    admin.groups.reset("laggards", [OffsetChange(partition, None, 2)])
    assert admin.groups.describe("laggards").lag == 8
    admin.topics.delete_records({partition: 6})
    told = admin.groups.describe("laggards")
    assert [(one.committed_offset, one.start_offset, one.lag) for one in told.partitions] == [(2, 6, 4)]
    assert told.state == "Empty"


def test_a_member_of_a_group_may_outlive_its_topic(admin: Admin) -> None:
    admin.topics.create("short-lived")
    with GroupMember(admin.client, "mourners", ["short-lived"]) as member:
        member.join()
        admin.topics.delete(["short-lived"])
        told = admin.groups.describe("mourners")
        assert [(str(one.partition), one.end_offset, one.lag) for one in told.partitions] == [
            ("short-lived-0", None, None)
        ]
        assert told.lag is None


def test_a_plan_moves_only_what_was_chosen(admin: Admin) -> None:
    admin.topics.create("planned", 3)
    write(admin, "planned", 0, 4)
    write(admin, "planned", 2, 2)
    admin.groups.reset("planners", [OffsetChange(TopicPartition("planned", 0), None, 1)])
    planned = admin.groups.plan_reset("planners", End(), ["planned"], [0, 2])
    assert planned == [
        OffsetChange(TopicPartition("planned", 0), 1, 4),
        OffsetChange(TopicPartition("planned", 2), None, 2),
    ]
    assert admin.groups.plan_reset("planners", Shift(-5)) == [OffsetChange(TopicPartition("planned", 0), 1, 0)]
    assert admin.groups.plan_reset("nobody", End()) == []


def test_a_group_with_a_member_is_not_reset(admin: Admin) -> None:
    admin.topics.create("busy")
    with GroupMember(admin.client, "busy-ones", ["busy"]) as member:
        member.join()
        with pytest.raises(BrokerError) as raised:
            admin.groups.reset("busy-ones", [OffsetChange(TopicPartition("busy", 0), None, 0)])
    assert code_of(raised) is ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_a_group_are_forgotten_one_by_one(admin: Admin) -> None:
    admin.topics.create("forgotten", 2)
    zero, one = TopicPartition("forgotten", 0), TopicPartition("forgotten", 1)
    admin.groups.reset("forgetful", [OffsetChange(zero, None, 0), OffsetChange(one, None, 0)])
    admin.groups.delete_offsets("forgetful", [zero])
    assert set(admin.groups.committed("forgetful")) == {one}


def test_transactions_are_listed_with_what_they_write_to(admin: Admin, broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as client, TransactionalProducer(client, "listed-id") as producer:
        (found,) = [one for one in admin.transactions() if one.transactional_id == "listed-id"]
        assert (found.producer_id, found.state, found.partitions) == (producer.producer_id, "Empty", ())
        assert found.started_ms is None


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda admin: admin.topics.describe("nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda admin: admin.topics.delete(["nope"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda admin: admin.topics.set_partitions("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda admin: admin.configs.of_topic("nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda admin: admin.groups.describe("nope"), ErrorCode.GROUP_ID_NOT_FOUND),
        (lambda admin: admin.groups.delete(["nope"]), ErrorCode.GROUP_ID_NOT_FOUND),
        (lambda admin: admin.groups.plan_reset("nope", End(), ["nope"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_not_there_is_told_by_its_code(admin: Admin, ask: object, code: ErrorCode) -> None:
    assert callable(ask)
    with pytest.raises(BrokerError) as raised:
        ask(admin)
    assert code_of(raised) is code
