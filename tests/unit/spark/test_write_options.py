"""Options of the topic sink."""

import pytest

from logbrook.records.batch import Codec
from logbrook.spark.errors import OptionError
from logbrook.spark.write_options import WriteOptions, write_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_options_are_read_by_kafkas_names_and_sparks() -> None:
    given = {
        "kafka.bootstrap.servers": "a:1, b:2",
        "topic": "t",
        "kafka.compression.type": "ZSTD",
        "kafka.batch.size": "500",
        "kafka.max.request.size": "1000",
        "kafka.delivery.timeout.ms": "5000",
        "kafka.request.timeout.ms": "2000",
        "kafka.client.id": "me",
        "includeheaders": "true",
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "checkpointlocation": "/somewhere",
    }
    assert write_options(given) == WriteOptions("a:1, b:2", "t", Codec.ZSTD, 500, 1000, 5.0, 2.0, "me")
    assert write_options({**SERVERS, "compression": "snappy"}).codec is Codec.SNAPPY
    assert write_options({**SERVERS, "max.request.size": "1000"}).batch_bytes_max == 1000


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"kafka.key.serializer": "x"}, "option 'kafka.key.serializer': it cannot be set here; keys and values are"),
        ({"kafka.transactional.id": "x"}, "delivery = exactly-once derives it from app.id and the task number"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "it needs security.protocol=SASL_SSL"),
        ({"kafka.security.protocol": "TLS"}, "option 'kafka.security.protocol': 'TLS' is not one of PLAINTEXT"),
        ({"subscribe": "t"}, "it is for reading"),
        ({"compression": "brotli"}, "it must be none or gzip or snappy or lz4 or zstd, not 'brotli'"),
        ({"compression": "lz4", "kafka.compression.type": "lz4"}, "cannot be given together"),
        ({"kafka.batch.size": "0"}, "at least 1"),
        ({"kafka.max.request.size": str(2**31)}, "at most"),
        ({"kafka.delivery.timeout.ms": "10"}, "less than request.timeout.ms"),
        ({"kafka.bootstrap.servers": "nowhere"}, "'nowhere' is not HOST:PORT"),
        ({"topics": "t"}, "option 'topics': there is no such option; did you mean 'topic'?"),
    ],
    ids=str,
)
def test_an_option_that_makes_no_sense_is_refused_by_name(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as raised:
        write_options({**SERVERS, **given})
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({"compression": "zstd", "kafka.compression.zstd.level": "9", "kafka.compression.gzip.level": "2"}, 9),
        ({"compression": "gzip", "kafka.compression.gzip.level": "-1"}, None),
        ({"compression": "lz4", "kafka.compression.lz4.level": "9"}, None),
        ({"compression": "lz4", "kafka.compression.lz4.level": "12"}, 12),
        ({"kafka.compression.zstd.level": "9"}, None),
    ],
)
def test_the_level_is_that_of_the_codec(given: dict[str, str], level: int | None) -> None:
    assert write_options({**SERVERS, **given}).level == level


def test_a_level_that_the_codec_does_not_have_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^option 'compression.gzip.level': it must be from 1 to 9, not 10$"):
        write_options({**SERVERS, "kafka.compression.gzip.level": "10"})


def test_buffer_and_connecting_have_limits() -> None:
    given = {"kafka.buffer.memory": "100000000000", "kafka.socket.connection.setup.timeout.ms": "1500"}
    parsed = write_options({**SERVERS, **given})
    assert (parsed.in_flight_bytes_max, parsed.connect_timeout_s) == (100_000_000_000, 1.5)


def test_the_default_delivery_timeout_is_at_least_that_of_a_request() -> None:
    assert write_options({**SERVERS, "kafka.request.timeout.ms": "400000"}).delivery_timeout_s == 400


def test_servers_are_required() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers.*required"):
        write_options({"topic": "t"})
