"""Parsing and formatting of setting values."""

from typing import Any

import pytest

from logbrook.config.catalogue import settings_by_key
from logbrook.config.errors import NotAllowedError
from logbrook.config.network import split_address
from logbrook.config.values import allowed_values, read_value, show_value
from tests.unit.config.samples import KEYS, written

SIZE = "storage.wal_bytes_max"
DURATION = "groups.offsets_retention_ms"
NUMBER = "topics.partitions"


def read(key: str, text: object) -> Any:
    return read_value(settings_by_key()[key], text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4096", 4096),
        ("4096B", 4096),
        ("64KiB", 64 << 10),
        ("64MiB", 64 << 20),
        ("64 mib", 64 << 20),
        ("1GiB", 1 << 30),
        ("2TiB", 2 << 40),
        ("64KB", 64_000),
        ("64MB", 64_000_000),
        ("1GB", 10**9),
        ("1TB", 10**12),
        ("1_000_000", 10**6),
        (" 4096\n", 4096),
        (4096, 4096),
    ],
)
def test_a_size_has_a_unit_or_is_in_bytes(text: object, size_bytes: int) -> None:
    assert read(SIZE, text) == size_bytes


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("1500", 1500),
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
        ("7 D", 604_800_000),
        (1500, 1500),
    ],
)
def test_a_duration_has_a_unit_or_is_in_milliseconds(text: object, duration_ms: int) -> None:
    assert read(DURATION, text) == duration_ms


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (SIZE, "64M"),
        (SIZE, "64 apples"),
        (SIZE, "1.5GiB"),
        (SIZE, "7d"),
        (SIZE, "MiB"),
        (SIZE, ""),
        (SIZE, "unlimited"),
        (SIZE, "٤٠٩٦"),
        (SIZE, "9" * 5000),
        (DURATION, "1GiB"),
        (DURATION, "1h30m"),
        (DURATION, "soon"),
        (NUMBER, "1s"),
        (NUMBER, "__"),
        (NUMBER, "1e3"),
        (NUMBER, 1.0),
        (NUMBER, True),
        (NUMBER, [1]),
        ("log.min_cleanable_dirty_ratio", "half"),
        ("log.min_cleanable_dirty_ratio", "nan"),
        ("log.min_cleanable_dirty_ratio", "inf"),
        ("log.min_cleanable_dirty_ratio", False),
        ("topics.auto_create", "maybe"),
        ("topics.auto_create", 1),
        ("storage.durability", "sometimes"),
        ("storage.durability", 1),
        ("logging.level", "loud"),
        ("log.cleanup_policy", "compact,"),
        ("log.cleanup_policy", "compact,shred"),
        ("log.cleanup_policy", ["compact", 1]),
        ("data", ""),
        ("data", "  "),
        ("data", "a\0b"),
        ("data", 5),
    ],
)
def test_an_invalid_value_is_refused_with_the_allowed_ones(key: str, text: object) -> None:
    with pytest.raises(NotAllowedError) as refused:
        read(key, text)
    assert refused.value.must_be == allowed_values(settings_by_key()[key])


@pytest.mark.parametrize("text", ["unlimited", "Unlimited", "-1", -1])
@pytest.mark.parametrize("key", ["log.retention_ms", "log.retention_bytes"])
def test_unlimited_is_written_as_such_where_it_is_allowed(key: str, text: object) -> None:
    assert read(key, text) == -1


@pytest.mark.parametrize("text", [2**63, str(2**63), "9000000TiB"])
def test_a_number_beyond_64_bits_is_refused(text: object) -> None:
    with pytest.raises(NotAllowedError, match="64 bits"):
        read("log.retention_bytes", text)


def test_a_number_past_a_bound_is_refused() -> None:
    for key in KEYS:
        setting = settings_by_key()[key]
        for bound, step in ((setting.facts.at_least, -1), (setting.facts.at_most, 1)):
            if bound is not None:
                assert read_value(setting, bound) == bound, key
                with pytest.raises(NotAllowedError) as refused:
                    read_value(setting, bound + step)
                assert refused.value.must_be == allowed_values(setting), key


@pytest.mark.parametrize("text", ["true", "Yes", "ON", "1", True])
def test_words_for_true(text: object) -> None:
    assert read("topics.auto_create", text) is True


@pytest.mark.parametrize("text", ["false", "No", "OFF", "0", False])
def test_words_for_false(text: object) -> None:
    assert read("topics.auto_create", text) is False


def test_words_are_taken_in_any_case() -> None:
    assert read("logging.level", "WARNING") == "warning"
    assert read("log.message_timestamp_type", "logappendtime") == "LogAppendTime"


@pytest.mark.parametrize("text", ["compact,delete", "Delete, compact", ["compact", "delete"]])
def test_several_words_are_joined_with_commas_or_an_array(text: object) -> None:
    assert read("log.cleanup_policy", text) == {"compact", "delete"}


@pytest.mark.parametrize("written", ["", [], " "])
def test_a_set_of_choices_may_be_empty(written: object) -> None:
    assert read("log.cleanup_policy", written) == frozenset()
    assert show_value(settings_by_key()["log.cleanup_policy"], frozenset()) == ""


@pytest.mark.parametrize("written", ["unlimited", "9223372036854775807"])
def test_the_largest_integer_is_unlimited_where_it_is_the_default(written: str) -> None:
    assert read("log.max_compaction_lag_ms", written) == 2**63 - 1
    assert show_value(settings_by_key()["log.max_compaction_lag_ms"], 2**63 - 1) == "unlimited"
    assert show_value(settings_by_key()["log.compression_gzip_level"], -1) == "-1"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("broker-1.example_net.org:0", "broker-1.example_net.org", 0),
        ("[::1]:65535", "::1", 65535),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)
    assert read("network.listen", text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        ":9092",
        "localhost:",
        "localhost:http",
        "localhost:65536",
        "localhost:-1",
        "localhost:+1",
        "localhost:9 092",
        "local host:1",
        "::1:9092",
        "[::1]",
        "[nonsense]:1",
        "http://localhost:9092",
        "a:1\n[x]:2",
        "localhost:٩",
        "localhost:²",
    ],
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|IPv6"):
        split_address(text)
    with pytest.raises(NotAllowedError):
        read("network.listen", text)


def test_a_port_alone_means_127_0_0_1_where_the_setting_allows_it() -> None:
    assert read("network.json_listen", "9095") == "127.0.0.1:9095"
    assert read("network.json_listen", "0.0.0.0:9095") == "0.0.0.0:9095"
    for text in ("70000", "port", "-1"):
        with pytest.raises(NotAllowedError):
            read("network.json_listen", text)


def test_an_empty_value_is_none_for_optional_settings() -> None:
    assert read("network.advertise", "") is None
    assert read("metrics.listen", "") == ""


def test_shown_values_can_be_read_back() -> None:
    for key in KEYS:
        setting, text, value = written(key)
        assert read_value(setting, text) == value, key


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        (SIZE, 0, "0B"),
        (SIZE, 1 << 30, "1GiB"),
        (SIZE, (1 << 20) + 12, "1048588B"),
        (SIZE, 1536 << 20, "1536MiB"),
        (DURATION, 0, "0ms"),
        (DURATION, 90_000, "90s"),
        (DURATION, 86_400_000, "1d"),
        ("log.retention_ms", -1, "unlimited"),
        (NUMBER, 1000, "1000"),
        ("network.advertise", None, ""),
    ],
)
def test_a_value_is_shown_in_the_largest_unit_without_a_remainder(key: str, value: Any, shown: str) -> None:
    assert show_value(settings_by_key()[key], value) == shown


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        (SIZE, "a size such as 64MiB or 1GiB, at least 4096 bytes"),
        ("log.segment_bytes", "a size such as 64MiB or 1GiB, from 1 to 2147483647 bytes"),
        ("log.retention_bytes", "a size such as 64MiB or 1GiB, or unlimited"),
        (DURATION, "a duration such as 500ms, 30s or 7d, at least 1 ms"),
        (NUMBER, "a whole number from 1 to 10000"),
        ("groups.members_max", "a whole number, at least 1"),
        ("log.min_cleanable_dirty_ratio", "a number from 0 to 1"),
        ("topics.auto_create", "true or false"),
        ("storage.durability", "fsync or interval"),
        ("logging.level", "debug, info, warning or error"),
        ("log.compression_type", "producer, uncompressed, gzip, snappy, lz4 or zstd"),
        ("log.compression_gzip_level", "a whole number from -1 to 9"),
        ("log.max_compaction_lag_ms", "a duration such as 500ms, 30s or 7d, at least 1 ms, or unlimited"),
        ("log.cleanup_policy", "any of delete and compact, or empty"),
        ("network.listen", "HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092"),
        ("metrics.listen", "HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092, or empty"),
        ("data", "the path of a directory"),
    ],
)
def test_valid_values_are_described_in_a_sentence(key: str, allowed: str) -> None:
    assert allowed_values(settings_by_key()[key]) == allowed
