"""The cluster's metadata as a state machine, without a broker."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from logbrook.core.metadata import (
    PRODUCER_IDS_SKIPPED,
    ClusterMetadata,
    InvalidPartitionsError,
    MetadataRecord,
    TopicCollisionError,
    TopicExistsError,
    TopicNotFoundError,
    UnknownTopicIdError,
    broker_settings_key,
)
from logbrook.model import InvalidTopicNameError, TopicPartition
from logbrook.model.identifiers import BrokerId

ID, OTHER_ID = bytes(range(16)), bytes(range(16, 32))


def replay(metadata: ClusterMetadata, records: list[MetadataRecord]) -> None:
    for key, value in records:
        metadata.replay(key, value)
    metadata.validate()


def with_topic(name: str = "t", count: int = 2) -> ClusterMetadata:
    metadata = ClusterMetadata()
    replay(metadata, metadata.create_topic(name, count, {"retention.ms": "5"}, ID))
    replay(metadata, metadata.finish_create(name))
    return metadata


def state(metadata: ClusterMetadata) -> object:
    return (
        metadata.cluster_id,
        metadata.epoch,
        metadata.next_producer_id,
        dict(metadata.broker_settings),
        dict(metadata.broker_defaults),
        dict(metadata.group_settings),
        dict(metadata.topics),
    )


def test_a_decision_changes_nothing_before_it_is_replayed() -> None:
    metadata = with_topic()
    before = state(metadata)
    for records in (
        metadata.create_topic("u", 1, {}, OTHER_ID),
        metadata.add_partitions("t", 3),
        metadata.configure_topic("t", {}),
        metadata.begin_delete("t"),
        metadata.begin_epoch(),
        metadata.found_cluster("c"),
        metadata.reserve_producer_ids(5),
        metadata.configure_broker({"a": "b"}),
        metadata.configure_all_brokers({"a": "b"}),
        metadata.configure_group("g", {"a": "b"}),
    ):
        assert len(records) == 1
        assert state(metadata) == before


def test_a_brokers_own_settings_override_those_of_all_brokers() -> None:
    metadata = ClusterMetadata()
    replay(metadata, metadata.configure_broker({"a": "own"}))
    replay(metadata, metadata.configure_all_brokers({"a": "of all", "b": "of all"}))
    assert metadata.dynamic_settings == {"a": "own", "b": "of all"}


def test_a_group_without_settings_is_removed() -> None:
    metadata = ClusterMetadata()
    replay(metadata, metadata.configure_group("g", {"a": "b"}))
    assert metadata.group_settings == {"g": {"a": "b"}}
    replay(metadata, metadata.configure_group("g", {}))
    assert metadata.group_settings == {}


def test_a_topic_is_found_by_name_and_id() -> None:
    metadata = with_topic()
    topic = metadata.topic("t")
    assert topic is metadata.topic_with_id(ID)
    assert (topic.name, topic.id, topic.partition_count, topic.settings) == ("t", ID, 2, {"retention.ms": "5"})
    assert list(topic.partitions) == [TopicPartition("t", 0), TopicPartition("t", 1)]
    with pytest.raises(TopicNotFoundError):
        metadata.topic("nobody")
    with pytest.raises(UnknownTopicIdError):
        metadata.topic_with_id(OTHER_ID)
    with pytest.raises(UnknownTopicIdError):
        metadata.topic_with_id(bytes(16))


def created() -> ClusterMetadata:
    metadata = ClusterMetadata()
    replay(metadata, metadata.create_topic("a.b", 2, {}, ID))
    assert metadata.topics["a.b"].is_creating
    return metadata


def deleted() -> ClusterMetadata:
    metadata = with_topic("a.b")
    replay(metadata, metadata.begin_delete("a.b"))
    assert metadata.topics["a.b"].is_deleting
    return metadata


@pytest.mark.parametrize("hidden", [created, deleted])
def test_a_topic_that_is_coming_or_going_is_not_there_for_clients_and_its_name_is_not_free(
    hidden: Callable[[], ClusterMetadata],
) -> None:
    metadata = hidden()
    for look_up in (
        lambda: metadata.topic("a.b"),
        lambda: metadata.begin_delete("a.b"),
        lambda: metadata.add_partitions("a.b", 9),
        lambda: metadata.configure_topic("a.b", {}),
    ):
        with pytest.raises(TopicNotFoundError):
            look_up()
    with pytest.raises(UnknownTopicIdError):
        metadata.topic_with_id(ID)
    with pytest.raises(TopicExistsError):
        metadata.create_topic("a.b", 1, {}, OTHER_ID)
    with pytest.raises(TopicCollisionError):
        metadata.create_topic("a_b", 1, {}, OTHER_ID)
    replay(metadata, metadata.finish_delete("a.b"))
    assert len(metadata) == 0
    replay(metadata, metadata.create_topic("a_b", 1, {}, ID))


def test_a_topic_is_visible_once_all_its_partitions_exist() -> None:
    metadata = created()
    hidden = metadata.topics["a.b"]
    replay(metadata, metadata.finish_create("a.b"))
    assert metadata.topic("a.b") == replace(hidden, is_creating=False)


def test_only_a_topic_that_is_being_deleted_can_be_removed() -> None:
    with pytest.raises(AssertionError):
        with_topic().finish_delete("t")
    with pytest.raises(AssertionError):
        with_topic().finish_create("t")


def test_two_topics_may_not_differ_in_a_dot_alone() -> None:
    metadata = with_topic("a.b")
    with pytest.raises(TopicCollisionError):
        metadata.create_topic("a_b", 1, {}, OTHER_ID)
    replay(metadata, metadata.create_topic("a-b", 1, {}, OTHER_ID))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250])
def test_a_topic_needs_a_name(name: str) -> None:
    with pytest.raises(InvalidTopicNameError):
        ClusterMetadata().create_topic(name, 1, {}, ID)


@pytest.mark.parametrize("count", [0, -1])
def test_a_topic_has_partitions(count: int) -> None:
    with pytest.raises(InvalidPartitionsError):
        ClusterMetadata().create_topic("t", count, {}, ID)


@pytest.mark.parametrize("count", [-1, 0, 1, 2])
def test_partitions_are_only_added(count: int) -> None:
    with pytest.raises(InvalidPartitionsError):
        with_topic().add_partitions("t", count)


def test_partitions_and_settings_change_without_each_other() -> None:
    metadata = with_topic()
    replay(metadata, metadata.add_partitions("t", 5))
    assert (metadata.topic("t").partition_count, metadata.topic("t").settings) == (5, {"retention.ms": "5"})
    replay(metadata, metadata.configure_topic("t", {"segment.ms": "1"}))
    assert (metadata.topic("t").partition_count, metadata.topic("t").settings) == (5, {"segment.ms": "1"})
    assert metadata.topic("t").id == ID
    assert metadata.partition_count == 5


def test_records_of_one_thing_have_one_key_so_that_the_newest_counts() -> None:
    metadata = with_topic()
    keys = {
        records[0][0]
        for records in (
            metadata.add_partitions("t", 5),
            metadata.configure_topic("t", {}),
            metadata.begin_delete("t"),
        )
    }
    replay(metadata, metadata.begin_delete("t"))
    ((key, value),) = metadata.finish_delete("t")
    assert keys == {key}
    assert value is None
    others = [metadata.begin_epoch(), metadata.found_cluster("c"), metadata.reserve_producer_ids(1)]
    assert len({key, *(records[0][0] for records in others)}) == 4


def test_producer_ids_are_skipped_once_when_the_store_was_restored() -> None:
    metadata = ClusterMetadata()

    def reserve(history_id: str, *, store_was_restored: bool = False) -> int:
        metadata.store_history = lambda: (history_id, store_was_restored)
        first = metadata.unassigned_producer_id
        replay(metadata, metadata.reserve_producer_ids(10))
        return first

    assert [reserve("first"), reserve("first"), reserve("restored")] == [0, 10, 20 + PRODUCER_IDS_SKIPPED]
    # Also for brokers that know of the restore.
    assert reserve("restored", store_was_restored=True) == 30 + PRODUCER_IDS_SKIPPED


def test_a_broker_that_knows_of_the_restore_skips_producer_ids_of_an_unknown_history() -> None:
    metadata = ClusterMetadata()
    replay(metadata, metadata.reserve_producer_ids(10))
    metadata.store_history = lambda: ("any", False)
    assert metadata.unassigned_producer_id == 10
    metadata.store_history = lambda: ("any", True)
    assert metadata.unassigned_producer_id == 10 + PRODUCER_IDS_SKIPPED


def test_a_topic_may_be_named_like_anything_else_in_the_metadata() -> None:
    metadata = ClusterMetadata()
    for number, name in enumerate(["cluster", "epoch", "producer-ids", "broker-settings", "topic"]):
        replay(metadata, metadata.create_topic(name, 1, {}, bytes([number]) * 16))
    assert (metadata.epoch, metadata.cluster_id, metadata.next_producer_id, len(metadata)) == (-1, "", 0, 5)


def test_a_broker_is_cordoned_by_its_own_setting_or_that_of_all_brokers() -> None:
    first, second = BrokerId(1), BrokerId(2)
    metadata, other = ClusterMetadata(first), ClusterMetadata(second)
    replay(metadata, metadata.configure_broker({"cordoned.log.dirs": "*"}))
    replay(other, metadata.configure_broker({"cordoned.log.dirs": "*"}))
    assert [metadata.is_cordoned(first), metadata.is_cordoned(second), other.is_cordoned(first)] == [True, False, True]
    replay(metadata, metadata.configure_all_brokers({"cordoned.log.dirs": "*"}))
    replay(metadata, metadata.configure_broker({"cordoned.log.dirs": ""}))
    assert [metadata.is_cordoned(first), metadata.is_cordoned(second)] == [False, True]
    metadata.replay(broker_settings_key(first), None)
    assert metadata.is_cordoned(first)


def test_a_tombstone_of_an_unknown_key_has_no_effect() -> None:
    """Compaction may have removed the record that it deletes."""
    metadata = with_topic("gone")
    replay(metadata, metadata.begin_delete("gone"))
    tombstone = metadata.finish_delete("gone")
    fresh = ClusterMetadata()
    replay(fresh, tombstone)
    assert len(fresh) == 0


@pytest.mark.parametrize(
    ("key", "value"), [("later", b"{}"), ("", b"{}"), ("epoch", b"not json"), ("topics/t", b"\xff")]
)
def test_a_record_of_another_version_is_refused(key: str, value: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        ClusterMetadata().replay(key, value)
