"""Every request of the JSON protocol but Fetch, against a broker: responses and errors."""

from contextlib import closing
from typing import Any

import pytest

from logbrook.core.groups.messages import JoinRequest
from logbrook.protocol.json_frames import RequestType
from logbrook.protocol.messages.fetch import FetchResponse
from logbrook.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from logbrook.records.batch import iter_headers
from logbrook.records.reader import iter_records
from logbrook.testing import MemoryFiles
from tests.unit.server.coordinators.kit import make_active, make_loading
from tests.unit.server.json.json_kit import JSON_NETWORK, JsonPeer, json_peer, json_shell, values_of
from tests.unit.server.shell_kit import FETCH_VERSION, KIB, HeldFiles, Shell, fetch_request

# The last version for a single group and topic names.
OFFSET_FETCH_VERSION = 7


def test_a_ping_is_answered_with_its_id(peer: JsonPeer) -> None:
    assert peer.ask(RequestType.PING) == {"pong": True}
    assert peer.ask(RequestType.PING, id="one") == {"id": "one", "pong": True}


# Produce


def test_records_are_appended_and_kafka_clients_see_all_of_them(shell: Shell, peer: JsonPeer, topic: str) -> None:
    records = [
        {"key": "k", "value": "v", "timestamp": 5, "headers": [{"key": "h", "value_base64": "/w=="}]},
        {"key_base64": "/wA=", "value": None},
    ]
    answer = peer.ask(RequestType.PRODUCE, topic=topic, partition=0, records=records)
    assert answer == {"topic": topic, "partition": 0, "base_offset": 0, "last_offset": 1, "log_start_offset": 0}
    assert peer.produce(topic, "third") == 2
    with closing(shell.client()) as client:
        response = client.request(fetch_request(topic), FetchResponse, FETCH_VERSION)
    data = response.responses[0].partitions[0].records
    assert isinstance(data, memoryview)
    seen = [record for at, _ in iter_headers(data) for record in iter_records(data, at, bytes_max=KIB)]
    assert [(record.key, record.value, record.headers) for record in seen] == [
        (b"k", b"v", (("h", b"\xff"),)),
        (b"\xff\0", None, ()),
        (None, b"third", ()),
    ]
    assert seen[0].timestamp == 5 < seen[1].timestamp <= seen[2].timestamp
    traffic = shell.services.probe.topics[topic]
    assert (traffic.messages_in, traffic.messages_out) == (3, 3)


def test_a_request_may_be_larger_than_a_batch_and_only_a_record_is_too_large(shell: Shell, peer: JsonPeer) -> None:
    topic = shell.create("small", settings={"max.message.bytes": "1000"})
    assert peer.produce(topic, *["x" * 300] * 20) == 0
    assert peer.produce(topic, "x" * 800, "x" * 800) == 20
    refused = peer.refused(
        RequestType.PRODUCE, topic=topic, partition=0, records=[{"value": "a"}, {"value": "x" * 1000}]
    )
    assert (refused["error"], refused["size_max"], refused["request"]) == ("RecordTooLarge", 1000, "Produce")
    assert refused["size"] > 1000
    # No record of the request was appended.
    assert shell.log(topic).log_end_offset == 22


def test_a_compacted_topic_requires_keys(shell: Shell, peer: JsonPeer) -> None:
    topic = shell.create("compacted", settings={"cleanup.policy": "compact"})
    # The second request is too large to be inspected on the event loop.
    for count in (1, 100):
        records = [{"key": "k", "value": "v"}] * count
        answer = peer.ask(RequestType.PRODUCE, topic=topic, partition=0, records=records)
        assert answer["last_offset"] == answer["base_offset"] + count - 1
        refused = peer.refused(RequestType.PRODUCE, topic=topic, partition=0, records=[*records, {"value": "v"}])
        assert (refused["error"], refused["retriable"]) == ("InvalidRequest", False)
        assert "without key" in refused["message"]
    assert shell.call(lambda: shell.log(topic).log_end_offset) == 101


def test_records_are_acknowledged_once_they_are_durable() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell({"network": JSON_NETWORK}, files=files) as shell, json_peer(shell) as peer:
        shell.create("t")
        files.hold()
        peer.send(RequestType.PRODUCE, topic="t", partition=0, records=[{"value": "v"}])
        peer.send(RequestType.PING)
        shell.until(lambda: files.waiting)
        assert shell.call(lambda: shell.log("t").high_watermark) == 0
        assert shell.call(lambda: [len(connection._pending) for connection in shell.connections_now()]) == [2]
        files.release()
        assert peer.receive().fields["base_offset"] == 0
        assert peer.receive().fields == {"pong": True}


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ({"topic": "nowhere", "partition": 0}, "TopicNotFound"),
        ({"partition": 7}, "PartitionNotFound"),
        ({"topic": "__consumer_offsets", "partition": 0}, "InvalidRequest"),
    ],
)
def test_records_for_unknown_partitions_are_refused_and_the_connection_stays_open(
    peer: JsonPeer, topic: str, place: dict[str, Any], error: str
) -> None:
    refused = peer.refused(RequestType.PRODUCE, **{"topic": topic, **place}, records=[{}], id=9)
    assert (refused["error"], refused["id"], refused["retriable"]) == (error, 9, False)
    assert peer.produce(topic, "v") == 0


def test_a_full_disk_is_reported_and_records_can_still_be_read() -> None:
    files = MemoryFiles()
    with Shell({"network": JSON_NETWORK}, files=files) as shell, json_peer(shell) as peer:
        shell.create("t")
        peer.produce("t", "kept")
        files.capacity_bytes = files.used_bytes()
        large = [{"value": "x" * 400 * KIB}] * 2
        refused = peer.refused(RequestType.PRODUCE, topic="t", partition=0, records=large)
        assert (refused["error"], refused["retriable"]) == ("InsufficientSpace", True)
        assert values_of(peer.fetch("t")) == ["kept"]
        files.capacity_bytes = None
        assert peer.produce("t", "again") == 1


# Groups


def test_an_offset_is_committed_and_kafka_clients_continue_from_it(shell: Shell, peer: JsonPeer, topic: str) -> None:
    of: dict[str, Any] = {"topic": topic, "partition": 0, "group": f"of-{topic}"}
    assert peer.ask(RequestType.OFFSET_FETCH, **of) == {**of, "offset": None, "metadata": None}
    assert peer.ask(RequestType.OFFSET_COMMIT, **of, offset=5, metadata="m") == {**of, "offset": 5}
    assert peer.ask(RequestType.OFFSET_FETCH, **of) == {**of, "offset": 5, "metadata": "m"}
    asked = OffsetFetchRequest(
        group_id=of["group"], topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    )
    with closing(shell.client()) as client:
        (committed,) = client.request(asked, OffsetFetchResponse, OFFSET_FETCH_VERSION).topics
    assert [(partition.committed_offset, partition.metadata) for partition in committed.partitions] == [(5, "m")]


def test_a_client_sees_its_own_commit_though_both_were_sent_at_once(peer: JsonPeer, topic: str) -> None:
    of = {"topic": topic, "partition": 0, "group": f"of-{topic}"}
    peer.send(RequestType.OFFSET_COMMIT, **of, offset=3)
    peer.send(RequestType.OFFSET_FETCH, **of)
    assert peer.receive().fields["offset"] == 3
    assert peer.receive().fields["offset"] == 3


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topic": "nowhere"}, "TopicNotFound"),
        ({"partition": 3}, "PartitionNotFound"),
        ({"metadata": "x" * 5000}, "InvalidRequest"),
        ({"group": ""}, "InvalidRequest"),
        ({"offset": None}, "InvalidRequest"),
    ],
)
def test_an_invalid_commit_is_refused(peer: JsonPeer, topic: str, fields: dict[str, Any], error: str) -> None:
    good = {"topic": topic, "partition": 0, "group": "g", "offset": 1}
    assert peer.refused(RequestType.OFFSET_COMMIT, **{**good, **fields})["error"] == error


def test_a_group_with_members_takes_no_commit_from_others(shell: Shell, peer: JsonPeer, topic: str) -> None:
    join = JoinRequest(
        group_id="busy",
        member_id="",
        client_id="c",
        client_host="h",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
    )
    shell.call(lambda: shell.services.groups.join(join))
    refused = peer.refused(RequestType.OFFSET_COMMIT, topic=topic, partition=0, group="busy", offset=1)
    assert (refused["error"], refused["retriable"]) == ("GroupInUse", False)


# Topics


def test_a_topic_is_created_listed_and_described(shell: Shell, peer: JsonPeer) -> None:
    settings = {"retention.ms": "5000"}
    created = peer.ask(RequestType.CREATE_TOPIC, topic="made", partition_count=2, settings=settings)
    about = {"topic": "made", "partition_count": 2, "internal": False}
    assert created == {**about, "settings": settings}
    assert about in peer.ask(RequestType.LIST_TOPICS)["topics"]
    peer.produce("made", "a", "b", partition=1)
    size = shell.call(lambda: shell.log("made", 1).size)
    offsets = {"log_start_offset": 0, "last_stable_offset": 2, "high_watermark": 2, "log_end_offset": 2}
    described = peer.ask(RequestType.DESCRIBE_TOPIC, topic="made")
    assert {key: described[key] for key in created} == created
    assert described["partitions"][1] == {"partition": 1, **offsets, "size_bytes": size}
    assert peer.ask(RequestType.DESCRIBE_PARTITION, topic="made", partition=1) == {
        "topic": "made",
        "partition": 1,
        **offsets,
        "size_bytes": size,
        "segments": 1,
        "quarantined": None,
    }


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "TopicExists"),
        ({"topic": "no/name"}, "InvalidRequest"),
        ({"topic": "__transaction_state"}, "InvalidRequest"),
        ({"topic": "new", "partition_count": 0}, "InvalidRequest"),
        ({"topic": "new", "settings": {"no.such.setting": "1"}}, "InvalidRequest"),
        ({"topic": "new", "settings": {"retention.ms": "soon"}}, "InvalidRequest"),
    ],
)
def test_an_invalid_topic_is_refused(peer: JsonPeer, topic: str, fields: dict[str, Any], error: str) -> None:
    assert peer.refused(RequestType.CREATE_TOPIC, **{"topic": topic, **fields})["error"] == error


def test_unknown_topics_and_partitions_are_not_described(peer: JsonPeer, topic: str) -> None:
    assert peer.refused(RequestType.DESCRIBE_TOPIC, topic="nowhere")["error"] == "TopicNotFound"
    assert peer.refused(RequestType.DESCRIBE_PARTITION, topic="nowhere", partition=0)["error"] == "TopicNotFound"
    assert peer.refused(RequestType.DESCRIBE_PARTITION, topic=topic, partition=1)["error"] == "PartitionNotFound"


# Metrics


def test_metrics_equal_the_prometheus_exposition(peer: JsonPeer, topic: str) -> None:
    peer.produce(topic, "v")
    metrics = peer.ask(RequestType.METRICS_FETCH)["metrics"]
    assert metrics[f'logbrook_topic_messages_in_total{{topic="{topic}"}}'] == 1
    assert metrics["logbrook_connections"] == 1
    assert metrics["process_open_fds"] > 0
    assert metrics['logbrook_requests_total{api="JsonProduce",version="0"}'] >= 1
    assert all(isinstance(number, int | float) for number in metrics.values())
    some = peer.ask(RequestType.METRICS_FETCH, prefix="logbrook_connections")["metrics"]
    assert some.keys() == {name for name in metrics if name.startswith("logbrook_connections")}


def test_errors_are_counted_by_their_names(shell: Shell, peer: JsonPeer) -> None:
    before = shell.services.probe.errors["JsonDescribeTopic", "TopicNotFound"]
    peer.refused(RequestType.DESCRIBE_TOPIC, topic="nowhere")
    assert shell.services.probe.errors["JsonDescribeTopic", "TopicNotFound"] == before + 1


def test_groups_that_are_being_read_back_are_not_ready_yet() -> None:
    with json_shell() as shell, json_peer(shell) as peer:
        shell.create("t")
        of = {"topic": "t", "partition": 0, "group": "g"}
        shell.call(lambda: make_loading(shell.services.groups.runtime))
        for refused in (
            peer.refused(RequestType.OFFSET_COMMIT, **of, offset=1),
            peer.refused(RequestType.OFFSET_FETCH, **of),
            peer.refused(RequestType.FETCH, topic="t", partition=0, group_id="g"),
        ):
            assert (refused["error"], refused["retriable"]) == ("NotReady", True)
        shell.call(lambda: make_active(shell.services.groups.runtime))
        assert peer.ask(RequestType.OFFSET_COMMIT, **of, offset=1)["offset"] == 1
