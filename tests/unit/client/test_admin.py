"""`Admin` against a real broker. The tests of the CLI cover more of it."""

from collections.abc import Iterator

import pytest

from logbrook import Broker
from logbrook.client import (
    BrokerError,
    Client,
    ClientError,
    OffsetAndMetadata,
    ProducerFencedError,
    TransactionalProducer,
)
from logbrook.client.admin import Admin
from logbrook.client.admin_groups import Shift
from logbrook.client.admin_results import OffsetChange, SettingSource
from logbrook.client.group_member import GroupMember
from logbrook.client.offset_specs import Latest
from logbrook.client.record_writer import RecordWriter
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId, Offset
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
    description = admin.describe_cluster()
    (node,) = description.brokers
    assert (f"{node.host}:{node.port}", description.controller_id) == (broker.bootstrap_servers, node.id)
    assert description.cluster_id


def test_topics_have_offsets_and_sizes(admin: Admin) -> None:
    admin.topics.create("sized", 3)
    write(admin, "sized", 1, 5)
    sized = {topic.name: topic for topic in admin.topics.all()}["sized"]
    assert sized == admin.topics.describe("sized")
    assert [(partition.start_offset, partition.end_offset, partition.offsets) for partition in sized.partitions] == [
        (0, 0, 0),
        (0, 5, 5),
        (0, 0, 0),
    ]
    assert sized.offsets == 5
    (directory,) = admin.log_directories()
    assert directory.partitions[TopicPartition("sized", 1)] == sized.partitions[1].size_bytes == sized.size_bytes
    assert directory.size_bytes >= (sized.size_bytes or 0) > 0


def test_validate_only_changes_nothing(admin: Admin) -> None:
    admin.topics.create("tried", 1, validate_only=True)
    assert "tried" not in admin.topics.names()
    admin.topics.create("tried", 1)
    admin.topics.set_partitions("tried", 5, validate_only=True)
    admin.configs.alter_topic("tried", {"retention.ms": "1"}, validate_only=True)
    assert len(admin.topics.describe("tried").partitions) == 1
    assert all(setting.is_default for setting in admin.configs.of_topic("tried"))


def test_a_setting_has_its_source_and_its_default(admin: Admin) -> None:
    admin.topics.create("set", settings={"retention.ms": "77"})
    retention = {setting.name: setting for setting in admin.configs.of_topic("set")}["retention.ms"]
    assert (retention.value, retention.source, retention.default) == ("77", SettingSource.TOPIC, "604800000")
    assert retention.documentation
    admin.configs.alter_topic("set", {}, ["retention.ms"])
    retention = {setting.name: setting for setting in admin.configs.of_topic("set")}["retention.ms"]
    assert (retention.value, retention.source, retention.default) == ("604800000", SettingSource.DEFAULT, "604800000")


def test_the_settings_of_an_unknown_broker_are_an_error(admin: Admin) -> None:
    (broker_info,) = admin.describe_cluster().brokers
    assert {setting.name for setting in admin.configs.of_broker(BrokerId(broker_info.id))}
    with pytest.raises(ClientError, match=r"there is no broker 99; there are 1"):
        admin.configs.of_broker(BrokerId(99))


def test_settings_of_several_topics_are_described_at_once(admin: Admin) -> None:
    admin.topics.create("first-of-two")
    admin.topics.create("second-of-two", settings={"retention.ms": "5"})
    by_topic = admin.configs.of_topics(["first-of-two", "second-of-two"])
    changed = {
        topic: [setting.name for setting in settings if not setting.is_default] for topic, settings in by_topic.items()
    }
    assert changed == {"first-of-two": [], "second-of-two": ["retention.ms"]}


def test_records_are_deleted_up_to_an_offset(admin: Admin) -> None:
    admin.topics.create("shortened", 2)
    write(admin, "shortened", 0, 5)
    partition = TopicPartition("shortened", 0)
    assert admin.topics.delete_records({partition: Offset(3)}) == {partition: 3}
    assert admin.topics.describe("shortened").partitions[0].start_offset == 3
    with pytest.raises(BrokerError) as raised:
        admin.topics.delete_records({partition: Offset(9)})
    assert code_of(raised) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_lag_of_a_group_excludes_deleted_records(admin: Admin) -> None:
    admin.topics.create("lagging", 2)
    write(admin, "lagging", 0, 10)
    partition = TopicPartition("lagging", 0)
    admin.groups.reset("laggards", [OffsetChange(partition, None, Offset(2))])
    assert admin.groups.describe("laggards").lag == 8
    admin.topics.delete_records({partition: Offset(6)})
    description = admin.groups.describe("laggards")
    assert [
        (partition.committed_offset, partition.start_offset, partition.lag) for partition in description.partitions
    ] == [(2, 6, 4)]
    assert description.state == "Empty"


def test_a_group_with_a_deleted_topic_is_described_without_its_offsets(admin: Admin) -> None:
    admin.topics.create("short-lived")
    with GroupMember(admin.client, "mourners", ["short-lived"]) as member:
        member.join()
        admin.topics.delete(["short-lived"])
        description = admin.groups.describe("mourners")
        assert [
            (str(partition.partition), partition.end_offset, partition.lag) for partition in description.partitions
        ] == [("short-lived-0", None, None)]
        assert description.lag is None


def test_a_planned_reset_has_only_the_chosen_partitions(admin: Admin) -> None:
    admin.topics.create("planned", 3)
    write(admin, "planned", 0, 4)
    write(admin, "planned", 2, 2)
    admin.groups.reset("planners", [OffsetChange(TopicPartition("planned", 0), None, Offset(1))])
    planned = admin.groups.plan_reset("planners", Latest(), ["planned"], [0, 2])
    assert planned == [
        OffsetChange(TopicPartition("planned", 0), Offset(1), Offset(4)),
        OffsetChange(TopicPartition("planned", 2), None, Offset(2)),
    ]
    change = OffsetChange(TopicPartition("planned", 0), Offset(1), Offset(0))
    assert admin.groups.plan_reset("planners", Shift(-5)) == [change]
    assert admin.groups.plan_reset("nobody", Latest()) == []


def test_a_group_with_a_member_is_not_reset(admin: Admin) -> None:
    admin.topics.create("busy")
    with GroupMember(admin.client, "busy-ones", ["busy"]) as member:
        member.join()
        with pytest.raises(BrokerError) as raised:
            admin.groups.reset("busy-ones", [OffsetChange(TopicPartition("busy", 0), None, Offset(0))])
    assert code_of(raised) is ErrorCode.NON_EMPTY_GROUP


def test_committed_offsets_are_deleted_by_partition(admin: Admin) -> None:
    admin.topics.create("forgotten", 2)
    zero, remaining = TopicPartition("forgotten", 0), TopicPartition("forgotten", 1)
    admin.groups.reset("forgetful", [OffsetChange(zero, None, Offset(0)), OffsetChange(remaining, None, Offset(0))])
    admin.groups.delete_offsets("forgetful", [zero])
    assert set(admin.groups.committed("forgetful")) == {remaining}


def test_transactions_are_listed_with_their_state(admin: Admin, broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as client, TransactionalProducer(client, "listed-id") as producer:
        (listing,) = [
            transaction for transaction in admin.transactions.all() if transaction.transactional_id == "listed-id"
        ]
        assert (listing.producer_id, listing.state, listing.partitions) == (producer.producer_id, "Empty", ())
        assert listing.started_ms is None
        assert admin.transactions.describe("listed-id") == listing
        with pytest.raises(BrokerError) as raised:
            admin.transactions.abort("listed-id")
        assert code_of(raised) is ErrorCode.INVALID_TXN_STATE


def test_aborting_an_open_transaction_fences_its_producer(admin: Admin, broker: Broker) -> None:
    admin.topics.create("abandoned")
    with (
        Client(broker.bootstrap_servers) as client,
        TransactionalProducer(client, "abandoned-id", transaction_timeout_ms=123_000) as producer,
    ):
        producer.begin()
        producer.send_offsets("abandoned-group", {TopicPartition("abandoned", 0): OffsetAndMetadata(Offset(0))})
        assert admin.transactions.abort("abandoned-id").state == "Ongoing"
        aborted = admin.transactions.describe("abandoned-id")
        assert (aborted.started_ms, aborted.timeout_ms) == (None, 123_000)
        with pytest.raises(ProducerFencedError):
            producer.commit()
    assert admin.groups.committed("abandoned-group") == {}


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda admin: admin.topics.describe("nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda admin: admin.topics.delete(["nope"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda admin: admin.topics.set_partitions("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda admin: admin.configs.of_topic("nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda admin: admin.groups.describe("nope"), ErrorCode.GROUP_ID_NOT_FOUND),
        (lambda admin: admin.groups.delete(["nope"]), ErrorCode.GROUP_ID_NOT_FOUND),
        (lambda admin: admin.transactions.describe("nope"), ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        (lambda admin: admin.groups.plan_reset("nope", Latest(), ["nope"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_unknown_topics_and_groups_are_errors(admin: Admin, ask: object, code: ErrorCode) -> None:
    assert callable(ask)
    with pytest.raises(BrokerError) as raised:
        ask(admin)
    assert code_of(raised) is code
