"""Pipelines in files, run in one Spark against one broker: the parts that the tests of several modules share."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import Row, SparkSession

from logbrook import Broker
from logbrook.client import Client
from logbrook.pipelines.report import REPORTS_TOPIC, PipelineReport
from logbrook.pipelines.report_reader import ReportHistory, read_new_reports
from logbrook.spark.pipeline.command import RunRequest, run

Errors: TypeAlias = Callable[[], list[str]]

ORDERS = """
[sources.orders]
topic = "@-orders"
schema = "id BIGINT, amount DOUBLE, at TIMESTAMP"
watermark = { column = "at", delay = "1 minute" }
"""
PER_MINUTE = """
[[views]]
name = "per_minute"
sql = '''
SELECT window.start AS minute, count(*) AS orders, sum(amount) AS total
FROM (SELECT window(at, '1 minute') AS window, amount FROM orders)
GROUP BY window
'''
[sinks.totals]
view = "per_minute"
topic = "@-totals"
key = "minute"
mode = "update"
"""
COPY = """
[sinks.copy]
view = "orders"
topic = "@-copy"
"""


class Bench:
    """Topics whose names begin with the test's, and a file in which `@` stands for that beginning."""

    def __init__(self, spark: SparkSession, broker: Broker, prefix: str, directory: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.prefix = prefix
        self.directory = directory
        self.file = directory / "p.toml"
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    def create(self, *names: str, partitions: int = 1) -> None:
        for name in names:
            self.broker.create_topic(f"{self.prefix}-{name}", partitions)

    def write(self, text: str, head: str = 'trigger = "once"') -> None:
        servers = f'name = "p"\nbootstrap_servers = "{self.broker.bootstrap_servers}"\n{head}\n'
        self.file.write_text((servers + text).replace("@", self.prefix))

    def send(self, name: str, *values: bytes | None, **fields: Any) -> None:
        for value in values:
            self._producer.produce(f"{self.prefix}-{name}", value, **fields)
        assert self._producer.flush(30) == 0

    def run(self, **request: Any) -> int:
        return run(RunRequest(str(self.file), **request), self.spark)

    def records(self, name: str) -> list[Row]:
        options = {"kafka.bootstrap.servers": self.broker.bootstrap_servers, "subscribe": f"{self.prefix}-{name}"}
        frame = self.spark.read.format("logbrook").options(**options).option("includeHeaders", "true").load()
        return frame.orderBy("partition", "offset").collect()

    def values(self, name: str) -> list[Any]:
        return [json.loads(row.value) for row in self.records(name)]

    def table(self, name: str) -> list[Row]:
        return self.spark.read.format("logbrook_table").load(str(self.directory / name)).collect()

    def reports(self) -> Mapping[str, tuple[PipelineReport, ...]]:
        with Client(self.broker.bootstrap_servers) as client:
            return read_new_reports(client, REPORTS_TOPIC, ReportHistory()).reports

    def committed(self, group: str, name: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": group})
        try:
            return int(consumer.committed([TopicPartition(f"{self.prefix}-{name}", 0)], timeout=30)[0].offset)
        finally:
            consumer.close()


def order(number: int, amount: float, second: int) -> bytes:
    at = f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"
    return json.dumps({"id": number, "amount": amount, "at": at}).encode()
