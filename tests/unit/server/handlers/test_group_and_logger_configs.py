"""IncrementalAlterConfigs of groups and of loggers."""

import logging
from collections.abc import Iterator

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from logbrook.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import BROKER_LOGGER, GROUP, NODE_ID, Peer, fresh
from tests.unit.server.handlers.settings_kit import APPEND, DELETE, SET, SUBTRACT, alter, operation, set_settings

GROUP_CONFIG = 8
SESSION = "consumer.session.timeout.ms"
NODE = str(NODE_ID)
LOGGER = "logbrook.server.topics"


def described(peer: Peer, resource_type: int, name: str) -> dict[str, tuple[str | None, int]]:
    """Return value and source by name."""
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    (result,) = peer.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse).results
    assert result.error_code == ErrorCode.NONE
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


# Groups


def test_a_setting_of_a_group_is_kept_and_shown(peer: Peer) -> None:
    group = fresh("group")
    set_settings(peer, GROUP, group, {SESSION: "50000", "share.auto.offset.reset": "by_duration:P1D"})
    assert described(peer, GROUP, group)[SESSION] == ("50000", GROUP_CONFIG)
    assert described(peer, GROUP, group)["share.auto.offset.reset"] == ("by_duration:P1D", GROUP_CONFIG)
    assert described(peer, GROUP, fresh("group"))[SESSION][0] == "45000"
    request = ListConfigResourcesRequest(resource_types=[GROUP])
    listed = peer.ask(request, ListConfigResourcesResponse).config_resources
    assert group in [resource.resource_name for resource in listed]
    assert alter(peer, GROUP, group, operation(SESSION, DELETE)).error_code == ErrorCode.NONE
    assert described(peer, GROUP, group)[SESSION][0] == "45000"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "1"),
        (SESSION, "44999"),
        (SESSION, "soon"),
        ("share.auto.offset.reset", "newest"),
        ("share.auto.offset.reset", "LATEST"),
        ("share.auto.offset.reset", "by_duration:-P1D"),
        ("share.isolation.level", "serializable"),
    ],
)
def test_a_setting_that_kafka_would_refuse_is_refused(peer: Peer, name: str, value: str) -> None:
    group = fresh("group")
    assert alter(peer, GROUP, group, operation(name, SET, value)).error_code == ErrorCode.INVALID_CONFIG
    assert described(peer, GROUP, group)[SESSION][0] == "45000"


def test_the_groups_with_settings_are_bounded_in_number_and_length() -> None:
    with HandlerShell({"groups": {"groups_max": 2}}) as broker, Peer(broker) as peer:
        for group in ("a", "b"):
            set_settings(peer, GROUP, group, {SESSION: "50000"})
        change = operation(SESSION, SET, "50000")
        assert alter(peer, GROUP, "c", change).error_code == ErrorCode.POLICY_VIOLATION
        assert alter(peer, GROUP, "a", change).error_code == ErrorCode.NONE
        assert alter(peer, GROUP, "a" * 1_001, change).error_code == ErrorCode.INVALID_REQUEST
        alter(peer, GROUP, "a", operation(SESSION, DELETE))
        assert alter(peer, GROUP, "c", change).error_code == ErrorCode.NONE


# Loggers


@pytest.fixture
def levels() -> Iterator[None]:
    """Restore the levels that a test changes: they are those of the process."""
    names = (None, "logbrook", LOGGER)
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.usefixtures("levels")
def test_the_level_filters_log_messages(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    set_settings(peer, BROKER_LOGGER, NODE, {LOGGER: "ERROR"})
    assert described(peer, BROKER_LOGGER, NODE)[LOGGER][0] == "ERROR"
    silent, loud = peer.create(), fresh()
    set_settings(peer, BROKER_LOGGER, NODE, {LOGGER: "INFO"})
    peer.create(loud)
    assert loud in caplog.text
    assert silent not in caplog.text


@pytest.mark.usefixtures("levels")
def test_a_logger_without_a_level_has_that_of_the_logger_above(peer: Peer) -> None:
    set_settings(peer, BROKER_LOGGER, NODE, {"logbrook": "DEBUG", LOGGER: "FATAL", "root": "ERROR"})
    assert alter(peer, BROKER_LOGGER, NODE, operation(LOGGER, DELETE)).error_code == ErrorCode.NONE
    shown = described(peer, BROKER_LOGGER, NODE)
    assert (shown[LOGGER][0], shown["root"][0]) == ("DEBUG", "ERROR")
    # The broker's logger returns to the level of its configuration.
    assert alter(peer, BROKER_LOGGER, NODE, operation("logbrook", DELETE)).error_code == ErrorCode.NONE
    assert described(peer, BROKER_LOGGER, NODE)[LOGGER][0] == "INFO"


@pytest.mark.usefixtures("levels")
@pytest.mark.parametrize(
    ("name", "kind", "value", "code"),
    [
        ("no.such.logger", SET, "INFO", ErrorCode.INVALID_CONFIG),
        ("no.such.logger", DELETE, None, ErrorCode.INVALID_CONFIG),
        (LOGGER, SET, "LOUD", ErrorCode.INVALID_CONFIG),
        (LOGGER, SET, "info", ErrorCode.INVALID_CONFIG),
        (LOGGER, SET, "", ErrorCode.INVALID_CONFIG),
        ("root", DELETE, None, ErrorCode.INVALID_REQUEST),
        (LOGGER, APPEND, "INFO", ErrorCode.INVALID_REQUEST),
        (LOGGER, SUBTRACT, "INFO", ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_impossible_change_refuses_the_whole_request(
    peer: Peer, name: str, kind: int, value: str | None, code: ErrorCode
) -> None:
    before = described(peer, BROKER_LOGGER, NODE)
    response = alter(peer, BROKER_LOGGER, NODE, operation("logbrook", SET, "TRACE"), operation(name, kind, value))
    assert response.error_code == code
    assert described(peer, BROKER_LOGGER, NODE) == before


@pytest.mark.usefixtures("levels")
def test_a_request_that_only_validates_changes_no_level(peer: Peer) -> None:
    before = described(peer, BROKER_LOGGER, NODE)
    change = operation(LOGGER, SET, "TRACE")
    assert alter(peer, BROKER_LOGGER, NODE, change, validate_only=True).error_code == ErrorCode.NONE
    assert described(peer, BROKER_LOGGER, NODE) == before
