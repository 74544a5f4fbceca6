"""IncrementalAlterConfigs."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from logbrook.testing import MemoryFiles
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import (
    BROKER,
    BROKER_LOGGER,
    EARLIEST,
    GROUP,
    NODE_ID,
    TOPIC,
    Peer,
    distinct_versions,
)
from tests.unit.server.handlers.settings_kit import APPEND, DELETE, SET, SUBTRACT, alter, operation, set_settings

RETENTION = "retention.ms"
POLICY = "cleanup.policy"


@distinct_versions(IncrementalAlterConfigsRequest)
def test_a_setting_is_set_and_unset_and_others_stay(peer: Peer, version: int) -> None:
    name = peer.create(settings={"segment.bytes": "1000000"})
    assert alter(peer, TOPIC, name, operation(RETENTION, SET, "5000"), version=version).error_code == ErrorCode.NONE
    assert (peer.config(name, RETENTION), peer.config(name, "segment.bytes")) == ("5000", "1000000")
    assert alter(peer, TOPIC, name, operation(RETENTION, DELETE), version=version).error_code == ErrorCode.NONE
    assert (peer.config(name, RETENTION), peer.config(name, "segment.bytes")) == ("604800000", "1000000")


@distinct_versions(IncrementalAlterConfigsRequest)
def test_a_list_is_added_to_and_taken_from(peer: Peer, version: int) -> None:
    name = peer.create()
    assert alter(peer, TOPIC, name, operation(POLICY, APPEND, "compact"), version=version).error_code == 0
    assert peer.config(name, POLICY) == "compact,delete"
    assert alter(peer, TOPIC, name, operation(POLICY, APPEND, "compact"), version=version).error_code == 0
    assert peer.config(name, POLICY) == "compact,delete"
    assert alter(peer, TOPIC, name, operation(POLICY, SUBTRACT, "delete"), version=version).error_code == 0
    assert peer.config(name, POLICY) == "compact"


def test_a_list_is_kept_in_one_notation_however_it_was_typed(peer: Peer) -> None:
    name = peer.create()
    set_settings(peer, TOPIC, name, {POLICY: "delete , compact"})
    assert alter(peer, TOPIC, name, operation(POLICY, SUBTRACT, " delete")).error_code == ErrorCode.NONE
    assert peer.config(name, POLICY) == "compact"


@distinct_versions(IncrementalAlterConfigsRequest)
def test_a_request_that_only_validates_changes_nothing(peer: Peer, version: int) -> None:
    name = peer.create()
    change = operation(RETENTION, SET, "5000")
    assert alter(peer, TOPIC, name, change, version=version, validate_only=True).error_code == ErrorCode.NONE
    assert peer.config(name, RETENTION) == "604800000"
    wrong = operation(RETENTION, SET, "soon")
    assert alter(peer, TOPIC, name, wrong, version=version, validate_only=True).error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("kind", "name", "value", "code"),
    [
        (SET, "no.such.setting", "1", ErrorCode.INVALID_CONFIG),
        (SET, RETENTION, "soon", ErrorCode.INVALID_CONFIG),
        (SET, RETENTION, "-2", ErrorCode.INVALID_CONFIG),
        (SET, RETENTION, None, ErrorCode.INVALID_REQUEST),
        (APPEND, POLICY, None, ErrorCode.INVALID_REQUEST),
        (APPEND, POLICY, "shrink", ErrorCode.INVALID_CONFIG),
        (APPEND, RETENTION, "1", ErrorCode.INVALID_CONFIG),
        (SUBTRACT, "no.such.setting", "1", ErrorCode.INVALID_CONFIG),
        (4, RETENTION, "1", ErrorCode.INVALID_REQUEST),
        (-1, RETENTION, "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_change_refuses_the_whole_request(
    peer: Peer, kind: int, name: str, value: str | None, code: ErrorCode
) -> None:
    topic = peer.create()
    response = alter(peer, TOPIC, topic, operation("segment.bytes", SET, "1000000"), operation(name, kind, value))
    assert response.error_code == code
    assert peer.config(topic, "segment.bytes") == "1073741824"


def test_a_setting_may_be_changed_once_in_a_request(peer: Peer) -> None:
    name = peer.create()
    response = alter(peer, TOPIC, name, operation(RETENTION, SET, "1"), operation(RETENTION, DELETE))
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_a_resource_may_be_changed_once_in_a_request(peer: Peer) -> None:
    name = peer.create()
    resource = AlterConfigsResource(
        resource_type=TOPIC, resource_name=name, configs=[operation(RETENTION, SET, "5000")]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource, resource])
    responses = peer.ask(request, IncrementalAlterConfigsResponse).responses
    assert [response.error_code for response in responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert peer.config(name, RETENTION) == "604800000"


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "no/slashes", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, str(NODE_ID + 1), ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, str(NODE_ID + 1), ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (16, "metrics", ErrorCode.INVALID_REQUEST),
        (0, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_resource_that_does_not_exist_is_refused(peer: Peer, resource_type: int, name: str, code: ErrorCode) -> None:
    assert alter(peer, resource_type, name, operation(RETENTION, SET, "5000")).error_code == code


def test_a_setting_that_the_broker_is_started_with_cannot_be_changed(peer: Peer) -> None:
    response = alter(peer, BROKER, "", operation("num.partitions", SET, "3"))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert "num.partitions" in (response.error_message or "")


def test_a_cleanup_policy_can_be_replaced_by_subtract_and_append(peer: Peer) -> None:
    name = peer.create()
    for kind, word, expected in ((SUBTRACT, "delete", ""), (APPEND, "compact", "compact")):
        assert alter(peer, TOPIC, name, operation(POLICY, kind, word)).error_code == ErrorCode.NONE
        assert peer.config(name, POLICY) == expected


def test_a_broker_setting_without_effect_is_kept_and_shown(peer: Peer) -> None:
    key = "log.cleaner.threads"
    assert peer.config(str(NODE_ID), key, BROKER) == "1"
    set_settings(peer, BROKER, str(NODE_ID), {key: "4"})
    assert peer.config(str(NODE_ID), key, BROKER) == "4"
    assert alter(peer, BROKER, str(NODE_ID), operation(key, SET, "-1")).error_code == ErrorCode.INVALID_CONFIG
    assert alter(peer, BROKER, str(NODE_ID), operation(key, DELETE)).error_code == ErrorCode.NONE
    assert peer.config(str(NODE_ID), key, BROKER) == "1"
    shown = operation("default.replication.factor", SET, "3")
    assert alter(peer, BROKER, str(NODE_ID), shown).error_code == ErrorCode.INVALID_REQUEST


def test_the_largest_batch_takes_effect_at_once(peer: Peer) -> None:
    name = peer.create()
    assert peer.produce(name, bytes(1_000)).error_code == ErrorCode.NONE
    set_settings(peer, TOPIC, name, {"max.message.bytes": "500"})
    assert peer.produce(name, bytes(1_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    alter(peer, TOPIC, name, operation("max.message.bytes", DELETE))
    assert peer.produce(name, bytes(1_000)).error_code == ErrorCode.NONE


def test_the_timestamp_type_takes_effect_at_once(peer: Peer) -> None:
    name = peer.create()
    assert peer.produce(name, timestamp=1_000).log_append_time_ms == -1
    set_settings(peer, TOPIC, name, {"message.timestamp.type": "LogAppendTime"})
    assert peer.produce(name, timestamp=1_000).log_append_time_ms > 1_000


def test_the_replicas_that_must_be_in_sync_take_effect_at_once(peer: Peer) -> None:
    name = peer.create()
    set_settings(peer, TOPIC, name, {"min.insync.replicas": "2"})
    assert peer.produce(name).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def run_maintenance(broker: HandlerShell) -> None:
    """Run a checkpoint and one round of retention."""
    broker.run(broker.broker.maintenance.checkpoint())
    broker.run(broker.broker.maintenance.run_once())


def test_retention_takes_effect_with_the_next_round_of_maintenance() -> None:
    files = MemoryFiles()
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        name = peer.create(settings={"segment.bytes": "200"})
        for _ in range(3):
            assert peer.produce(name, bytes(90), timestamp=1_000).error_code == ErrorCode.NONE
    # Records after the last checkpoint are not removed, and a stop takes a checkpoint.
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        set_settings(peer, TOPIC, name, {RETENTION: "-1"})
        run_maintenance(broker)
        assert peer.offset(name, EARLIEST) == 0
        set_settings(peer, TOPIC, name, {RETENTION: "1000"})
        run_maintenance(broker)
        assert peer.offset(name, EARLIEST) > 0


@pytest.mark.parametrize("resource_name", ["", str(NODE_ID)])
def test_the_brokers_settings_are_the_defaults_of_topics_that_set_nothing(resource_name: str) -> None:
    with HandlerShell() as broker, Peer(broker) as peer:
        before = peer.create()
        own = peer.create(settings={"max.message.bytes": "5000"})
        set_settings(peer, BROKER, resource_name, {"message.max.bytes": "500"})
        after = peer.create()
        codes = [peer.produce(name, bytes(1_000)).error_code for name in (before, own, after)]
        assert codes == [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE]
        assert alter(peer, BROKER, resource_name, operation("message.max.bytes", DELETE)).error_code == ErrorCode.NONE
        assert peer.produce(before, bytes(1_000)).error_code == ErrorCode.NONE


def test_a_brokers_own_setting_overrides_that_of_all_brokers() -> None:
    files = MemoryFiles()
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        name = peer.create()
        set_settings(peer, BROKER, str(NODE_ID), {"log.retention.ms": "1000"})
        set_settings(peer, BROKER, "", {"log.retention.ms": "2000", "log.segment.bytes": "3000"})
        assert (peer.config(name, RETENTION), peer.config(name, "segment.bytes")) == ("1000", "3000")
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        assert (peer.config(name, RETENTION), peer.config(name, "segment.bytes")) == ("1000", "3000")
        assert alter(peer, BROKER, str(NODE_ID), operation("log.retention.ms", DELETE)).error_code == ErrorCode.NONE
        assert peer.config(name, RETENTION) == "2000"
        assert alter(peer, BROKER, "", operation("log.retention.ms", DELETE)).error_code == ErrorCode.NONE
        assert (peer.config(name, RETENTION), peer.config(name, "segment.bytes")) == ("604800000", "3000")


def test_altered_settings_survive_a_restart() -> None:
    files = MemoryFiles()
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        name = peer.create()
        set_settings(peer, TOPIC, name, {"max.message.bytes": "500"})
        set_settings(peer, BROKER, "", {"log.retention.ms": "5000"})
        set_settings(peer, GROUP, "readers", {"consumer.session.timeout.ms": "50000"})
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        assert broker.services.topics.metadata.group_settings == {"readers": {"consumer.session.timeout.ms": "50000"}}
        assert alter(peer, GROUP, "readers", operation("consumer.session.timeout.ms", DELETE)).error_code == 0
        assert broker.services.topics.metadata.group_settings == {}
        assert peer.config(name, RETENTION) == "5000"
        assert peer.config(name, "max.message.bytes") == "500"
        assert peer.produce(name, bytes(1_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_concurrent_changes_do_not_undo_each_other() -> None:
    settings = {"retention.ms": "1000", "segment.bytes": "2000", "retention.bytes": "3000", "segment.ms": "4000"}
    # Each change waits for the disk, and the others arrive meanwhile.
    with HandlerShell() as broker, Peer(broker) as peer:
        name = peer.create()
        sent = []
        for key, value in settings.items():
            change = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[operation(key, SET, value)])
            request = IncrementalAlterConfigsRequest(resources=[change])
            sent.append(peer.send(request, IncrementalAlterConfigsResponse))
        for ticket in sent:
            assert peer.receive(ticket).responses[0].error_code == ErrorCode.NONE
        assert {key: peer.config(name, key) for key in settings} == settings


def test_a_list_that_changes_nothing_is_added_to_and_taken_from(peer: Peer) -> None:
    name, throttled = peer.create(), "leader.replication.throttled.replicas"
    assert alter(peer, TOPIC, name, operation(throttled, APPEND, "0:1,1:1")).error_code == ErrorCode.NONE
    assert alter(peer, TOPIC, name, operation(throttled, APPEND, "2:1,0:1")).error_code == ErrorCode.NONE
    assert peer.config(name, throttled) == "0:1,1:1,2:1"
    assert alter(peer, TOPIC, name, operation(throttled, SUBTRACT, "1:1")).error_code == ErrorCode.NONE
    assert peer.config(name, throttled) == "0:1,2:1"
    assert alter(peer, TOPIC, name, operation(throttled, APPEND, "all")).error_code == ErrorCode.INVALID_CONFIG
