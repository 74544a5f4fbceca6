"""CreateTopics."""

from collections.abc import Sequence

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from logbrook.protocol.schema import ZERO_UUID
from logbrook.testing import MemoryFiles
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import DEFAULT, NODE_ID, Peer, distinct_versions, fresh
from tests.unit.server.shell_kit import HeldFiles

DETAILS_SINCE = 5
DYNAMIC_TOPIC_CONFIG = 1
IDS_SINCE = 7
# The broker's defaults for topics in these tests.
DEFAULT_PARTITIONS = 2


def wanted(
    name: str,
    partitions: int = DEFAULT,
    replicas: int = DEFAULT,
    assignments: Sequence[tuple[int, list[int]]] = (),
    **settings: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[CreatableReplicaAssignment(partition_index=number, broker_ids=ids) for number, ids in assignments],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()],
    )


def create(
    peer: Peer, *topics: CreatableTopic, version: int | None = None, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return list(peer.ask(request, CreateTopicsResponse, version).topics)


def refused(peer: Peer, topic: CreatableTopic, version: int | None = None) -> ErrorCode:
    (result,) = create(peer, topic, version=version)
    assert result.error_code != ErrorCode.NONE
    assert result.error_message
    return ErrorCode(result.error_code)


def test_a_topic_is_created_with_every_setting_that_mirror_maker_copies(peer: Peer) -> None:
    settings = {
        "cleanup.policy": "compact,delete",
        "compression.gzip.level": "5",
        "compression.lz4.level": "12",
        "compression.type": "zstd",
        "compression.zstd.level": "7",
        "delete.retention.ms": "1000",
        "file.delete.delay.ms": "1000",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "follower.replication.throttled.replicas": "",
        "index.interval.bytes": "1024",
        "leader.replication.throttled.replicas": "*",
        "local.retention.bytes": "-2",
        "local.retention.ms": "-2",
        "max.compaction.lag.ms": "86400000",
        "max.message.bytes": "2000000",
        "message.downconversion.enable": "true",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": "86400000",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "60000",
        "min.insync.replicas": "1",
        "preallocate": "true",
        "remote.log.copy.disable": "false",
        "remote.log.delete.on.disable": "false",
        "remote.storage.enable": "false",
        "retention.bytes": "1000000",
        "retention.ms": "60000",
        "segment.bytes": "1048576",
        "segment.index.bytes": "1048576",
        "segment.jitter.ms": "10",
        "segment.ms": "60000",
        "unclean.leader.election.enable": "true",
        "validate": "full",
    }
    name = peer.create(settings=settings)
    described = peer.configs(name)
    assert {key: entry.value for key, entry in described.items()} == settings
    assert all(entry.config_source == DYNAMIC_TOPIC_CONFIG for entry in described.values())


@pytest.mark.parametrize("version", [2, 7])
def test_a_topic_may_have_no_cleanup_policy(peer: Peer, version: int) -> None:
    name = fresh()
    (result,) = create(peer, wanted(name, cleanup_policy=""), version=version)
    assert result.error_code == ErrorCode.NONE
    assert peer.config(name, "cleanup.policy") == ""


def test_the_largest_compaction_lag_is_not_below_the_smallest(peer: Peer) -> None:
    topic = wanted(fresh(), max_compaction_lag_ms="5", min_compaction_lag_ms="6")
    assert refused(peer, topic) is ErrorCode.INVALID_CONFIG


@distinct_versions(CreateTopicsRequest)
def test_a_topic_is_created_with_its_partitions_and_settings(peer: Peer, version: int) -> None:
    name = fresh()
    (result,) = create(peer, wanted(name, 3, 1, retention_ms="5000"), version=version)
    assert (result.name, result.error_code, result.error_message) == (name, ErrorCode.NONE, None)
    topic = peer.metadata(name)
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
    assert all(partition.leader_id == NODE_ID for partition in topic.partitions)
    assert peer.config(name, "retention.ms") == "5000"
    if version >= DETAILS_SINCE:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert {config.name: config.value for config in result.configs or ()}["retention.ms"] == "5000"
    if version >= IDS_SINCE:
        assert result.topic_id == topic.topic_id != ZERO_UUID


@distinct_versions(CreateTopicsRequest)
def test_minus_one_is_the_brokers_default(peer: Peer, version: int) -> None:
    name = fresh()
    create(peer, wanted(name), version=version)
    assert peer.partition_count(name) == DEFAULT_PARTITIONS


@distinct_versions(CreateTopicsRequest)
def test_a_request_that_only_validates_creates_nothing(peer: Peer, version: int) -> None:
    name = fresh()
    (result,) = create(peer, wanted(name, 3), version=version, validate_only=True)
    assert result.error_code == ErrorCode.NONE
    assert peer.metadata(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= DETAILS_SINCE:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert result.topic_id == ZERO_UUID


def test_a_validate_only_request_reports_errors(peer: Peer) -> None:
    (result,) = create(peer, wanted(fresh(), retention_ms="soon"), validate_only=True)
    assert result.error_code == ErrorCode.INVALID_CONFIG


@distinct_versions(CreateTopicsRequest)
def test_one_topic_that_is_refused_does_not_keep_the_others_from_being_created(peer: Peer, version: int) -> None:
    good, bad = fresh(), "no/slashes"
    results = create(peer, wanted(bad), wanted(good), version=version)
    assert [(created.name, created.error_code) for created in results] == [
        (bad, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (good, ErrorCode.NONE),
    ]
    assert peer.partition_count(good) == DEFAULT_PARTITIONS


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 250, "a\x00"])
def test_a_name_that_could_not_be_a_directory_is_refused(peer: Peer, name: str) -> None:
    assert refused(peer, wanted(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_longest_name_is_allowed(peer: Peer) -> None:
    (result,) = create(peer, wanted("x" * 249))
    assert result.error_code == ErrorCode.NONE


def test_names_that_differ_in_dots_and_underscores_alone_collide(peer: Peer) -> None:
    name = fresh("a.b")
    peer.create(name)
    assert refused(peer, wanted(name.replace(".", "_"))) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_topic_already_exists_is_reported_before_other_errors(peer: Peer) -> None:
    name = peer.create()
    assert refused(peer, wanted(name)) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert refused(peer, wanted(name, 1, 3)) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_all_topics_of_one_name_in_a_request_are_refused(peer: Peer) -> None:
    name, another = fresh(), fresh()
    results = create(peer, wanted(name), wanted(another), wanted(name))
    assert [created.error_code for created in results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert peer.metadata(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("replicas", [0, 2, 3, -2])
def test_there_is_one_replica(peer: Peer, replicas: int) -> None:
    assert refused(peer, wanted(fresh(), 1, replicas)) is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("partitions", [0, -2, 2**31 - 1])
def test_the_number_of_partitions_is_positive_and_bounded(peer: Peer, partitions: int) -> None:
    assert refused(peer, wanted(fresh(), partitions)) is ErrorCode.INVALID_PARTITIONS


@distinct_versions(CreateTopicsRequest)
def test_replicas_may_be_assigned_to_this_broker(peer: Peer, version: int) -> None:
    name = fresh()
    (result,) = create(peer, wanted(name, assignments=[(1, [NODE_ID]), (0, [NODE_ID])]), version=version)
    assert result.error_code == ErrorCode.NONE
    assert peer.partition_count(name) == 2


@pytest.mark.parametrize(
    "assignments",
    [
        [(0, [NODE_ID + 1])],
        [(0, [NODE_ID, NODE_ID + 1])],
        [(0, [NODE_ID, NODE_ID])],
        [(0, [])],
        [(1, [NODE_ID])],
        [(0, [NODE_ID]), (2, [NODE_ID])],
        [(0, [NODE_ID]), (0, [NODE_ID])],
    ],
)
def test_other_assignments_are_refused(peer: Peer, assignments: list[tuple[int, list[int]]]) -> None:
    assert refused(peer, wanted(fresh(), assignments=assignments)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(("partitions", "replicas"), [(1, DEFAULT), (DEFAULT, 1), (1, 1)])
def test_assignments_and_numbers_exclude_each_other(peer: Peer, partitions: int, replicas: int) -> None:
    topic = wanted(fresh(), partitions, replicas, [(0, [NODE_ID])])
    assert refused(peer, topic) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "value"),
    [("no.such", "1"), ("retention.ms", "soon"), ("cleanup.policy", None), ("log.dirs", "/")],
)
def test_settings_are_checked(peer: Peer, name: str, value: str | None) -> None:
    topic = wanted(fresh())
    topic.configs = [CreatableTopicConfig(name=name, value=value)]
    assert refused(peer, topic) is ErrorCode.INVALID_CONFIG


def test_a_setting_that_is_given_twice_is_refused(peer: Peer) -> None:
    topic = wanted(fresh())
    topic.configs = [CreatableTopicConfig(name="retention.ms", value=value) for value in ("1", "2")]
    assert refused(peer, topic) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["__consumer_offsets", "__cluster_metadata"])
def test_the_brokers_own_topics_are_created_by_the_broker_alone(name: str) -> None:
    with HandlerShell() as broker, Peer(broker) as peer:
        assert refused(peer, wanted(name)) is ErrorCode.INVALID_REQUEST


def test_a_setting_takes_effect(peer: Peer) -> None:
    name = fresh()
    create(peer, wanted(name, 1, max_message_bytes="200"))
    assert peer.produce(name, bytes(10)).error_code == ErrorCode.NONE
    assert peer.produce(name, bytes(300)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_long_list_in_an_error_message_is_truncated(peer: Peer) -> None:
    """Strings of old versions have at most 32767 bytes, so a longer message could not be sent."""
    name = fresh()
    create(peer, wanted(name, 1, cleanup_policy=",".join(["compact", "delete"] * 5_000)))
    assert peer.config(name, "cleanup.policy") == "compact,delete"


def test_error_messages_are_truncated(peer: Peer) -> None:
    (result,) = create(peer, wanted(fresh(), retention_ms="x" * 30_000), version=2)
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert len(result.error_message or "") <= 1_000


def test_a_creation_that_takes_too_long_times_out_and_continues() -> None:
    files = HeldFiles(MemoryFiles(), lambda path: path.startswith("slow-"))
    with HandlerShell(files=files) as shell, Peer(shell) as peer:
        files.hold()
        topics = [CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in ("slow-a", "late")]
        results = peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=100), CreateTopicsResponse).topics
        assert [result.error_code for result in results] == [ErrorCode.REQUEST_TIMED_OUT] * 2
        assert "the broker continues" in (results[0].error_message or "")
        assert "not begun" in (results[1].error_message or "")
        assert peer.metadata("slow-a").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        files.release()
        shell.until(lambda: len(shell.services.topics.logs()) == 3)
        assert len(peer.metadata("slow-a").partitions) == 3
        assert peer.metadata("late").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
