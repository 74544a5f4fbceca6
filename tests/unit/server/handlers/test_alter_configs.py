"""AlterConfigs."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import BROKER, BROKER_LOGGER, NODE_ID, TOPIC, Peer, distinct_versions


def resource(resource_type: int, name: str, *settings: tuple[str, str | None]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in settings],
    )


def alter(
    peer: Peer, *resources: AlterConfigsResource, version: int | None = None, validate_only: bool = False
) -> list[AlterConfigsResourceResponse]:
    request = AlterConfigsRequest(resources=resources, validate_only=validate_only)
    return list(peer.ask(request, AlterConfigsResponse, version).responses)


@distinct_versions(AlterConfigsRequest)
def test_a_topic_has_these_settings_and_no_others(peer: Peer, version: int) -> None:
    name = peer.create(settings={"retention.ms": "1000", "segment.bytes": "1000000"})
    (response,) = alter(peer, resource(TOPIC, name, ("retention.ms", "5000")), version=version)
    assert (response.resource_type, response.resource_name, response.error_code, response.error_message) == (
        TOPIC,
        name,
        ErrorCode.NONE,
        None,
    )
    assert (peer.config(name, "retention.ms"), peer.config(name, "segment.bytes")) == ("5000", "1073741824")


@distinct_versions(AlterConfigsRequest)
def test_a_request_that_only_validates_changes_nothing(peer: Peer, version: int) -> None:
    name = peer.create(settings={"retention.ms": "1000"})
    (response,) = alter(peer, resource(TOPIC, name), version=version, validate_only=True)
    assert response.error_code == ErrorCode.NONE
    assert peer.config(name, "retention.ms") == "1000"


def test_this_broker_has_these_dynamic_settings_and_no_others() -> None:
    with HandlerShell() as broker, Peer(broker) as peer:
        alter(peer, resource(BROKER, str(NODE_ID), ("log.retention.ms", "5000")))
        alter(peer, resource(BROKER, str(NODE_ID), ("message.max.bytes", "500")))
        name = peer.create()
        assert (peer.config(name, "retention.ms"), peer.config(name, "max.message.bytes")) == ("604800000", "500")
        assert peer.produce(name, bytes(1_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


@distinct_versions(AlterConfigsRequest)
def test_a_setting_takes_effect_at_once(peer: Peer, version: int) -> None:
    name = peer.create()
    alter(peer, resource(TOPIC, name, ("max.message.bytes", "500")), version=version)
    assert peer.produce(name, bytes(1_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    alter(peer, resource(TOPIC, name), version=version)
    assert peer.produce(name, bytes(1_000)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ([("no.such.setting", "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", "soon")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", "1"), ("retention.ms", "2")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_that_are_wrong_are_refused(
    peer: Peer, settings: list[tuple[str, str | None]], code: ErrorCode
) -> None:
    name = peer.create()
    (response,) = alter(peer, resource(TOPIC, name, *settings))
    assert response.error_code == code
    assert response.error_message
    assert peer.config(name, "retention.ms") == "604800000"


def test_each_resource_has_its_own_answer(peer: Peer) -> None:
    name = peer.create()
    responses = alter(
        peer,
        resource(TOPIC, "nobody"),
        resource(BROKER, str(NODE_ID + 1)),
        resource(BROKER, "", ("num.partitions", "7")),
        resource(BROKER_LOGGER, str(NODE_ID), ("logbrook", "DEBUG")),
        resource(TOPIC, name, ("retention.ms", "5000")),
    )
    assert [response.error_code for response in responses] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert peer.config(name, "retention.ms") == "5000"


def test_a_resource_may_be_changed_once_in_a_request(peer: Peer) -> None:
    name = peer.create()
    responses = alter(peer, resource(TOPIC, name), resource(TOPIC, name))
    assert [response.error_code for response in responses] == [ErrorCode.INVALID_REQUEST] * 2
