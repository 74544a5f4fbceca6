"""Options of Kafka's clients on reads and writes: with effect, without, or refused."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logbrook.spark import client_options
from logbrook.spark.client_options import CLIENT_OPTIONS, Treatment, with_table
from logbrook.spark.errors import OptionError
from logbrook.spark.read_options import ReadOptions, read_options
from logbrook.spark.write_options import WriteOptions, write_options

READ = {"kafka.bootstrap.servers": "here:9092", "subscribe": "t"}
WRITE = {"kafka.bootstrap.servers": "here:9092", "topic": "t"}
DOCUMENT = Path(__file__).parents[3] / "docs" / "SPARK.md"
# A tuned consumer and a tuned producer, as configured for Spark's Kafka connector.
CONSUMER = {
    "kafka.security.protocol": "PLAINTEXT",
    "kafka.max.poll.records": "5000",
    "kafka.max.poll.interval.ms": "600000",
    "kafka.session.timeout.ms": "45000",
    "kafka.heartbeat.interval.ms": "15000",
    "kafka.metadata.max.age.ms": "30000",
    "kafka.connections.max.idle.ms": "60000",
    "kafka.reconnect.backoff.ms": "100",
    "kafka.receive.buffer.bytes": "-1",
    "kafka.retry.backoff.ms": "200",
    "kafka.default.api.timeout.ms": "90000",
    "kafka.client.rack": "a",
    "kafka.check.crcs": "true",
    "kafka.enable.auto.commit": "false",
    "kafka.fetch.min.bytes": "65536",
    "kafka.group.id": "g",
    "kafka.partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
}
PRODUCER = {
    "kafka.security.protocol": "plaintext",
    "kafka.linger.ms": "100",
    "kafka.retries": "5",
    "kafka.buffer.memory": "67108864",
    "kafka.max.block.ms": "10000",
    "kafka.acks": "1",
    "kafka.enable.idempotence": "false",
    "kafka.max.in.flight.requests.per.connection": "1",
    "kafka.compression.zstd.level": "9",
    "kafka.batch.size": "65536",
}


@pytest.fixture(autouse=True)
def nothing_logged() -> Iterator[None]:
    client_options._logged.clear()
    yield
    client_options._logged.clear()


def read(options: dict[str, str], *, is_batch: bool = True) -> ReadOptions:
    return read_options(READ | options, is_batch=is_batch)


def write(options: dict[str, str]) -> WriteOptions:
    return write_options(WRITE | options)


@pytest.mark.parametrize("is_batch", [True, False])
def test_a_tuned_consumer_is_taken_with_one_line(is_batch: bool, caplog: pytest.LogCaptureFixture) -> None:
    parsed = read(CONSUMER, is_batch=is_batch)._replace(starting=read({}).starting, ending=read({}).ending)
    assert parsed == read({})._replace(cluster=read({}).cluster._replace(outage_timeout_s=90.0))
    (line,) = caplog.messages
    assert line.startswith("client options without effect operation='read' options=")
    assert "kafka.max.poll.records (rows reach Spark in Arrow" in line
    for silent in ("security.protocol", "check.crcs", "enable.auto.commit"):
        assert silent not in line, "it is what is done anyway"


def test_a_tuned_producer_is_taken_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    parsed = write(PRODUCER)
    assert parsed == write({})._replace(batch_bytes_max=65536, in_flight_bytes_max=64 << 20)
    (line,) = caplog.messages
    assert "kafka.acks (all replicas acknowledge every record)" in line
    assert "kafka.batch.size" not in line


def test_the_line_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        write({"kafka.linger.ms": "5"})
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING


def test_values_that_match_the_behaviour_are_accepted_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    write({"kafka.acks": "ALL", "kafka.enable.idempotence": "true", "kafka.partitioner.ignore.keys": "false"})
    read({"kafka.exclude.internal.topics": "true", "kafka.allow.auto.create.topics": "false"})
    assert caplog.messages == []


def test_one_set_of_options_serves_both_directions(caplog: pytest.LogCaptureFixture) -> None:
    both = {name: text for name, text in (CONSUMER | PRODUCER).items() if name != "kafka.security.protocol"}
    read(both)
    write(both)
    assert len(caplog.messages) == 2
    assert "kafka.linger.ms (it is for writes)" in caplog.messages[0]
    assert "kafka.max.poll.records (it is for reads)" in caplog.messages[1]


@pytest.mark.parametrize("prefix", ["", "kafka."])
@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("auto.offset.reset", "earliest", "it cannot be set here; use startingOffsets"),
        ("enable.auto.commit", "true", "it cannot be 'true' here; use group.id"),
        ("key.deserializer", "x", "it cannot be set here; keys and values are bytes"),
        ("value.deserializer", "x", "it cannot be set here"),
        ("interceptor.classes", "x", "it cannot be set here"),
        ("exclude.internal.topics", "false", "it cannot be 'false' here; a pattern matches no internal topic"),
        ("security.protocol", "TLS", "'TLS' is not one of PLAINTEXT, SSL"),
        ("security.providers", "x", "it cannot be set here; it names Java classes"),
        ("ssl.truststore.location", "/t.jks", "/t.jks is not a PEM file"),
        ("sasl.jaas.config", "x", "it needs security.protocol=SASL_SSL"),
        ("config.providers.file.class", "x", "it cannot be set here; values are taken literally"),
    ],
)
def test_unsupported_row_and_security_options_are_refused_on_reads(
    prefix: str, name: str, text: str, reason: str
) -> None:
    for is_batch in (True, False):
        with pytest.raises(OptionError, match=rf"^option '{prefix}{name}': {reason}"):
            read({f"{prefix}{name}": text}, is_batch=is_batch)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("partitioner.class", "org.example.Mine"),
        ("partitioner.ignore.keys", "true"),
        ("transactional.id", "x"),
        ("value.serializer", "x"),
        ("interceptor.classes", "x"),
    ],
)
def test_unsupported_row_and_security_options_are_refused_on_writes(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=rf"^option 'kafka.{name}': it cannot be "):
        write({f"kafka.{name}": text})


def test_security_is_that_of_every_connection_and_hides_secrets() -> None:
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "s3cr3t",
    }
    reading, writing = read(options), write(options)
    assert reading.cluster.security == writing.security
    assert writing.security.sasl is not None
    assert writing.security.sasl.password == "s3cr3t"
    assert "s3cr3t" not in repr((reading, writing))
    with pytest.raises(OptionError, match="given twice") as raised:
        read(options | {"sasl.password": "other-s3cr3t"})
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("parse", [read, write])
def test_every_option_with_an_effect_is_parsed(parse: Callable[[dict[str, str]], ReadOptions | WriteOptions]) -> None:
    """Otherwise it would be accepted and ignored."""
    for option in CLIENT_OPTIONS:
        rule = option.reads if parse is read else option.writes
        if rule is not None and rule.treatment is Treatment.EFFECT:
            for name in option.names:
                assert is_parsed(parse, name), name


def is_parsed(parse: Callable[[dict[str, str]], ReadOptions | WriteOptions], name: str) -> bool:
    """Return True if a value without sense is refused, or is in the parsed options."""
    try:
        return parse({name: "nonsense"}) != parse({})
    except OptionError:
        return True


def test_a_misspelt_client_option_is_refused_with_the_right_name() -> None:
    with pytest.raises(OptionError, match=r"^option 'kafka.max.poll.record': .* did you mean 'max.poll.records'\?"):
        read({"kafka.max.poll.record": "1"})


def test_the_table_in_the_documentation_is_up_to_date() -> None:
    text = DOCUMENT.read_text()
    assert text == with_table(text), "run: python -m logbrook.spark.client_options docs/SPARK.md"


def test_names_are_unique() -> None:
    names = [name for option in CLIENT_OPTIONS for name in option.names]
    assert len(set(names)) == len(names)
