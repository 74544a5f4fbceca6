"""The options of a reader, each by its name."""

import pytest

from logbrook.client import LATEST
from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader
from logbrook.spark.read_options import (
    AdmissionLimits,
    ConnectionOptions,
    FetchLimits,
    ReadOptions,
    read_columns,
    read_options,
    read_value_format,
)

LEAST = {"kafka.bootstrap.servers": "here:9092", "subscribe": "t"}
ALL_BUT_HEADERS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def batch(**options: str) -> ReadOptions:
    return read_options(LEAST | dotted(options), is_batch=True)


def stream(**options: str) -> ReadOptions:
    return read_options(LEAST | dotted(options), is_batch=False)


def dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): text for name, text in options.items()}


def test_the_defaults_are_those_of_sparks_kafka_source() -> None:
    options = stream()
    assert options.cluster == ConnectionOptions("here:9092")
    assert options.subscription.names == ("t",)
    assert options.starting.timestamp_ms == LATEST
    assert options.fail_on_missing_timestamp
    assert options.fail_on_data_loss
    assert options.limits == AdmissionLimits(delay_ms=15 * 60_000)
    assert (options.splits_min, options.split_records_max, options.group_id) == (None, None, None)
    assert options.columns == ALL_BUT_HEADERS
    assert not options.is_committed_only
    assert not options.is_json


def test_every_option_is_read() -> None:
    options = stream(
        kafka__client__id="me",
        kafka__request__timeout__ms="1500",
        fetchOffset__numRetries="5",
        fetchOffset__retryIntervalMs="7",
        kafka__default__api__timeout__ms="9000",
        startingOffsetsByTimestampStrategy="LATEST",
        failOnDataLoss="False",
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxBytesPerTrigger="1000",
        maxTriggerDelay="3s",
        minPartitions="4",
        maxRecordsPerPartition="50",
        includeHeaders="TRUE",
        group__id="g",
        kafka__isolation__level="read_committed",
        value__format="JSON",
        value__schema="a long",
    )
    assert options.cluster == ConnectionOptions("here:9092", "me", 1.5, 5, 7, None, 9.0)
    assert not options.fail_on_missing_timestamp
    assert not options.fail_on_data_loss
    assert options.limits == AdmissionLimits(100, 10, 1000, 3000)
    assert (options.splits_min, options.split_records_max, options.group_id) == (4, 50, "g")
    assert options.columns == (*ALL_BUT_HEADERS, "headers")
    assert options.is_committed_only
    assert options.is_json


def test_names_are_known_in_any_letter_case_and_with_or_without_kafkas_prefix() -> None:
    texts = {"BOOTSTRAP.SERVERS": "a:1", "SUBSCRIBE": "t", "Kafka.MinPartitions": "2", "path": "", "queryName": "q"}
    options = read_options(texts, is_batch=True)
    assert options.cluster.bootstrap_servers == "a:1"
    assert options.splits_min == 2


@pytest.mark.parametrize(
    "name",
    ["groupIdPrefix", "kafka.group.id", "kafka.partition.metadata.cache.ttl.ms", "kafkaConsumer.pollTimeoutMs"],
)
def test_options_without_effect_are_accepted(name: str) -> None:
    assert read_options(LEAST | {name: "1"}, is_batch=True) == batch()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("startingOfsets", "did you mean 'startingOffsets'"),
        ("maxOffsetPerTrigger", "did you mean 'maxOffsetsPerTrigger'"),
        ("kafka.no.such.option", "docs/SPARK.md lists them all"),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(OptionError, match=rf"^option '{name}': there is no such option; {hint}"):
        read_options(LEAST | {name: "1"}, is_batch=False)


@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay"]
)
def test_stream_options_are_refused_for_batch_queries(name: str) -> None:
    with pytest.raises(OptionError, match=rf"^option '{name}': it is for streams$"):
        read_options(LEAST | {name: "1"}, is_batch=True)


@pytest.mark.parametrize("name", ["endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"])
def test_batch_options_are_refused_for_streams(name: str) -> None:
    with pytest.raises(OptionError, match=rf"^option '{name}': it is for batch queries$"):
        read_options(LEAST | {name: "1"}, is_batch=False)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("minPartitions", "0", "it must be at least 1, not 0"),
        ("minPartitions", "many", "'many' is not a whole number"),
        ("maxRecordsPerPartition", "0", "it must be at least 1"),
        ("maxOffsetsPerTrigger", "0", "it must be at least 1"),
        ("minOffsetsPerTrigger", "-1", "it must be at least 1"),
        ("maxBytesPerTrigger", "0", "it must be at least 1"),
        ("maxTriggerDelay", "15", "'15' is not a time"),
        ("failOnDataLoss", "no", "it must be true or false"),
        ("includeHeaders", "1", "it must be true or false"),
        ("isolation.level", "serializable", "it must be read_uncommitted or read_committed"),
        ("startingOffsetsByTimestampStrategy", "earliest", "it must be error or latest"),
        ("request.timeout.ms", "0", "it must be at least 1"),
        ("fetch.max.bytes", "0", "it must be at least 1"),
        ("fetch.max.wait.ms", "-1", "it must be at least 0"),
        ("socket.connection.setup.timeout.ms", "x", "'x' is not a whole number"),
        ("fetchOffset.numRetries", "-1", "it must be at least 0"),
        ("fetchOffset.retryIntervalMs", "x", "'x' is not a whole number"),
        ("columns", "key,colour", "it must list distinct columns out of key, value"),
        ("columns", "key,KEY", "it must list distinct columns"),
        ("columns", ",", "it must list distinct columns"),
        ("value.format", "xml", "it must be binary or json or avro or protobuf"),
        ("value.schema", "a long", "it is only for 'value.format' json"),
    ],
)
def test_a_wrong_text_is_refused_with_the_reason(name: str, text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=rf"^option '{name}': {reason}"):
        read_options(LEAST | {name: text}, is_batch=False)


def test_the_least_is_not_more_than_the_most() -> None:
    assert stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5").limits.offsets_min == 5
    with pytest.raises(OptionError, match=r"^option 'minOffsetsPerTrigger': 6 is more than maxOffsetsPerTrigger, 5$"):
        stream(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")


def test_a_fetch_has_the_smaller_of_both_sizes() -> None:
    assert batch().fetch == FetchLimits(8 << 20, 1000)
    assert batch(kafka__fetch__max__bytes="5000").fetch == FetchLimits(5000, 1000)
    assert batch(fetch__max__bytes="5000", max__partition__fetch__bytes="700").fetch.bytes_max == 700
    assert batch(fetch__max__bytes="2147483647").fetch.bytes_max == 64 << 20
    assert batch(kafka__fetch__max__wait__ms="0").fetch.wait_ms == 0


def test_connecting_has_a_limit_of_its_own() -> None:
    assert batch().cluster.connect_timeout_s is None
    assert batch(kafka__socket__connection__setup__timeout__ms="1500").cluster.connect_timeout_s == 1.5


def test_a_batch_query_may_name_a_group() -> None:
    assert batch(group__id="g").group_id == "g"
    assert batch(kafka__group__id="g").group_id is None


def test_the_servers_have_to_be_given() -> None:
    with pytest.raises(OptionError, match=r"^option 'kafka.bootstrap.servers': it is required$"):
        read_options({"subscribe": "t"}, is_batch=True)


def test_columns_have_the_order_in_which_they_are_named() -> None:
    assert read_columns(OptionReader({"columns": " Offset, key,HEADERS"})) == ("offset", "key", "headers")
    assert read_columns(OptionReader({"columns": "timestamptype"})) == ("timestampType",)
    assert read_columns(OptionReader({"columns": "", "includeHeaders": "true"})) == (*ALL_BUT_HEADERS, "headers")


def test_values_are_bytes_unless_declared_as_json() -> None:
    assert read_value_format(OptionReader({})) == (False, None)
    assert read_value_format(OptionReader({"value.format": "binary"})) == (False, None)
    assert read_value_format(OptionReader({"VALUE.FORMAT": "Json", "value.schema": "a long"})) == (True, "a long")
    assert read_value_format(OptionReader({"value.format": "json"})) == (True, None)
