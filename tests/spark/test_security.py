"""Spark reads, writes and runs pipelines over TLS and SASL, and shows no secret."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from logbrook.client import Client, parse_client_security
from logbrook.pipelines.report import REPORTS_TOPIC
from logbrook.spark.pipeline.command import RunRequest, run
from tests.secured_broker import PASSWORD, SecuredBroker

PIPELINE = """\
name = "secured"
bootstrap_servers = "{servers}"
trigger = "once"
[client]
config = "client.properties"
security.protocol = "SASL_SSL"
[sources.numbers]
topic = "in"
schema = "n BIGINT"
[sinks.copy]
view = "numbers"
topic = "out"
options = {{ delivery = "exactly-once" }}
[dead_letters]
topic = "dead"
"""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    secured = SecuredBroker(tmp_path_factory.mktemp("secured"))
    with secured.broker:
        yield secured


def spark_options(secured: SecuredBroker) -> dict[str, str]:
    options = {f"kafka.{name}": value for name, value in secured.options().items()}
    return options | {"kafka.bootstrap.servers": secured.broker.bootstrap_servers}


def test_rows_are_written_and_read_with_kafkas_options(spark: SparkSession, secured: SecuredBroker) -> None:
    options = spark_options(secured)
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("logbrook").options(**options).option("topic", "orders").mode("append").save()
    frame = spark.read.format("logbrook").options(**options).option("subscribe", "orders").load()
    assert sorted(row.value for row in frame.collect()) == [b"0", b"1", b"2"]
    plan = frame._jdf.queryExecution().toString()
    assert PASSWORD not in plan


def test_a_wrong_password_fails_with_one_sentence(spark: SparkSession, secured: SecuredBroker) -> None:
    options = spark_options(secured) | {"kafka.sasl.password": "wrong-s3cr3t", "subscribe": "orders"}
    with pytest.raises(PySparkException, match="authentication of alice") as caught:
        spark.read.format("logbrook").options(**options).load().collect()
    assert "s3cr3t" not in str(caught.value)


def test_a_pipeline_takes_its_secrets_from_a_file(
    spark: SparkSession, secured: SecuredBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for topic in ("in", "out", "dead"):
        secured.broker.create_topic(topic)
    secured.broker.produce("in", '{"n": 1}', "not JSON", '{"n": 2}')
    file = tmp_path / "secured.toml"
    file.write_text(PIPELINE.format(servers=secured.broker.bootstrap_servers))
    properties = secured.options()
    (tmp_path / "client.properties").write_text("".join(f"{name} = {text}\n" for name, text in properties.items()))
    assert run(RunRequest(str(file), checks_only=True, explain=True), spark) == 0
    assert run(RunRequest(str(file)), spark) == 0
    assert [json.loads(record.value or b"")["n"] for record in secured.broker.records("out")] == [1, 2]
    assert len(secured.broker.records("dead")) == 1
    with Client(secured.broker.bootstrap_servers, security=parse_client_security(properties)) as client:
        assert client.partition_count(REPORTS_TOPIC) == 1
    printed = capfd.readouterr()
    assert PASSWORD not in printed.out + printed.err
