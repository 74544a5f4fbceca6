"""DescribeConfigs."""

import pytest

from logbrook.config.kafka_settings import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import (
    BROKER,
    BROKER_LOGGER,
    GROUP,
    NODE_ID,
    TOPIC,
    Peer,
    distinct_versions,
    fresh,
)
from tests.unit.server.handlers.settings_kit import set_settings

DETAILS_SINCE = 3
DYNAMIC_TOPIC = 1
DYNAMIC_BROKER = 2
DYNAMIC_DEFAULT_BROKER = 3
STATIC_BROKER = 4
DEFAULT_CONFIG = 5
DYNAMIC_LOGGER = 6
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7


def describe(
    peer: Peer,
    *resources: tuple[int, str],
    keys: list[str] | None = None,
    version: int | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> list[DescribeConfigsResult]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name in resources
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    return list(peer.ask(request, DescribeConfigsResponse, version).results)


@distinct_versions(DescribeConfigsRequest)
def test_a_topic_has_every_setting_with_its_value_and_source(peer: Peer, version: int) -> None:
    name = peer.create(settings={"retention.ms": "5000"})
    (result,) = describe(peer, (TOPIC, name), version=version)
    assert (result.resource_type, result.resource_name, result.error_code) == (TOPIC, name, ErrorCode.NONE)
    entries = {entry.name: entry for entry in result.configs}
    assert set(entries) == set(TOPIC_SETTINGS)
    assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == ("5000", DYNAMIC_TOPIC)
    assert (entries["segment.ms"].value, entries["segment.ms"].config_source) == ("3600000", STATIC_BROKER)
    assert (entries["segment.bytes"].value, entries["segment.bytes"].config_source) == ("1073741824", DEFAULT_CONFIG)
    assert not any(entry.read_only or entry.is_sensitive or entry.synonyms for entry in result.configs)


@distinct_versions(DescribeConfigsRequest)
def test_this_broker_has_every_setting_and_some_cannot_be_changed(peer: Peer, version: int) -> None:
    name = str(NODE_ID)
    (result,) = describe(peer, (BROKER, name), version=version)
    assert (result.resource_type, result.resource_name, result.error_code) == (BROKER, name, ErrorCode.NONE)
    entries = {entry.name: entry for entry in result.configs}
    assert set(entries) == set(BROKER_SETTINGS)
    assert (entries["num.partitions"].value, entries["num.partitions"].config_source) == ("2", STATIC_BROKER)
    assert entries["num.partitions"].read_only
    assert entries["node.id"].read_only
    assert (entries["log.roll.ms"].value, entries["log.roll.ms"].config_source) == ("3600000", STATIC_BROKER)
    assert not entries["log.roll.ms"].read_only


@distinct_versions(DescribeConfigsRequest)
@pytest.mark.parametrize("keys", [["retention.ms"], ["retention.ms", "no.such.setting", "retention.ms"]])
def test_only_requested_settings_are_described(peer: Peer, version: int, keys: list[str]) -> None:
    (result,) = describe(peer, (TOPIC, peer.create()), keys=keys, version=version)
    assert [entry.name for entry in result.configs] == ["retention.ms"]


@distinct_versions(DescribeConfigsRequest)
def test_no_names_at_all_ask_for_all(peer: Peer, version: int) -> None:
    (result,) = describe(peer, (TOPIC, peer.create()), keys=[], version=version)
    assert len(result.configs) == len(TOPIC_SETTINGS)


@distinct_versions(DescribeConfigsRequest)
def test_synonyms_list_the_sources_of_a_value_in_order_of_precedence(version: int) -> None:
    with HandlerShell({"log": {"retention_ms": 3_000}}) as broker, Peer(broker) as peer:
        name = peer.create(settings={"retention.ms": "1000"})
        set_settings(peer, BROKER, "", {"log.retention.ms": "2500"})
        set_settings(peer, BROKER, str(NODE_ID), {"log.retention.ms": "2000"})
        (result,) = describe(peer, (TOPIC, name), keys=["retention.ms"], version=version, synonyms=True)
        (entry,) = result.configs
        assert (entry.value, entry.config_source) == ("1000", DYNAMIC_TOPIC)
        of_broker = [
            ("log.retention.ms", "2000", DYNAMIC_BROKER),
            ("log.retention.ms", "2500", DYNAMIC_DEFAULT_BROKER),
            ("log.retention.ms", "3000", STATIC_BROKER),
            ("log.retention.ms", "604800000", DEFAULT_CONFIG),
        ]
        synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]
        assert synonyms == [("retention.ms", "1000", DYNAMIC_TOPIC), *of_broker]
        named = (BROKER, str(NODE_ID))
        (result,) = describe(peer, named, keys=["log.retention.ms"], version=version, synonyms=True)
        (entry,) = result.configs
        assert (entry.value, entry.config_source) == ("2000", DYNAMIC_BROKER)
        assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == of_broker


@distinct_versions(DescribeConfigsRequest)
def test_the_default_broker_resource_has_only_its_own_settings(version: int) -> None:
    with HandlerShell({"log": {"retention_ms": 3_000}}) as broker, Peer(broker) as peer:
        (result,) = describe(peer, (BROKER, ""), version=version)
        assert (result.error_code, result.configs) == (ErrorCode.NONE, [])
        set_settings(peer, BROKER, "", {"log.retention.ms": "2500", "log.cleaner.threads": "2"})
        set_settings(peer, BROKER, str(NODE_ID), {"log.retention.ms": "2000"})
        (result,) = describe(peer, (BROKER, ""), version=version, synonyms=True)
        assert {entry.name: (entry.value, entry.config_source) for entry in result.configs} == {
            "log.retention.ms": ("2500", DYNAMIC_DEFAULT_BROKER),
            "log.cleaner.threads": ("2", DYNAMIC_DEFAULT_BROKER),
        }
        assert all(len(entry.synonyms) == 1 for entry in result.configs)
        (result,) = describe(peer, (BROKER, str(NODE_ID)), keys=["log.cleaner.threads"], version=version)
        assert [(entry.value, entry.config_source) for entry in result.configs] == [("2", DYNAMIC_DEFAULT_BROKER)]


@distinct_versions(DescribeConfigsRequest)
def test_a_group_has_settings_even_if_it_does_not_exist(peer: Peer, version: int) -> None:
    (result,) = describe(peer, (GROUP, fresh("group")), version=version, synonyms=True)
    assert result.error_code == ErrorCode.NONE
    entries = {entry.name: entry for entry in result.configs}
    assert set(entries) == set(GROUP_SETTINGS)
    session = entries["consumer.session.timeout.ms"]
    assert (session.value, session.config_source, session.read_only) == ("45000", DEFAULT_CONFIG, False)
    assert [synonym.source for synonym in session.synonyms] == [DEFAULT_CONFIG]


@distinct_versions(DescribeConfigsRequest)
def test_loggers_have_levels(peer: Peer, version: int) -> None:
    (result,) = describe(peer, (BROKER_LOGGER, str(NODE_ID)), version=version)
    assert result.error_code == ErrorCode.NONE
    entries = {entry.name: entry for entry in result.configs}
    assert {"root", "logbrook", "logbrook.server", "logbrook.server.topics"} <= entries.keys()
    assert {entry.config_source for entry in result.configs} == {DYNAMIC_LOGGER}
    assert not any(entry.read_only for entry in result.configs)


@distinct_versions(DescribeConfigsRequest, first=DETAILS_SINCE)
def test_types_are_described_and_documentation_on_request(peer: Peer, version: int) -> None:
    name = peer.create()
    (plain,) = describe(peer, (TOPIC, name), version=version)
    (documented,) = describe(peer, (TOPIC, name), version=version, documentation=True)
    types = {entry.name: entry.config_type for entry in plain.configs}
    assert types["retention.ms"] == LONG
    assert types["min.insync.replicas"] == INT
    assert types["cleanup.policy"] == LIST
    assert types["message.timestamp.type"] == STRING
    assert types["min.cleanable.dirty.ratio"] == DOUBLE
    assert all(entry.documentation is None for entry in plain.configs)
    assert all(entry.documentation for entry in documented.configs)


@distinct_versions(DescribeConfigsRequest)
def test_unknown_resources_are_refused_and_the_others_are_described(peer: Peer, version: int) -> None:
    name = peer.create()
    results = describe(
        peer,
        (TOPIC, "nobody"),
        (TOPIC, "no/slashes"),
        (BROKER, str(NODE_ID + 1)),
        (BROKER, "one"),
        (BROKER_LOGGER, ""),
        (GROUP, ""),
        (16, "metrics"),
        (0, name),
        (TOPIC, name),
        version=version,
    )
    assert [result.error_code for result in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        *[ErrorCode.INVALID_REQUEST] * 6,
        ErrorCode.NONE,
    ]
    assert all(result.error_message for result in results[:-1])


def test_a_resource_is_described_once_in_a_request(peer: Peer) -> None:
    name = peer.create()
    results = describe(peer, (TOPIC, name), (TOPIC, name))
    assert [result.error_code for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert results[1].configs == []
