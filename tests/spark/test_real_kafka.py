"""The Spark source and sink against a real Apache Kafka: only Kafka's protocol is used.

`make test` has the same queries with Logbrook, and in test_kafka_connector.py beside Spark's own connector.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.pipelines.report import REPORTS_TOPIC, RunState
from logbrook.pipelines.report_reader import ReportHistory, read_new_reports
from logbrook.pipelines.reporter import PipelineReporter
from logbrook.spark.errors import DataLossError
from logbrook.spark.read_options import read_options
from logbrook.spark.sending import close_idle
from logbrook.spark.source import TopicReader
from logbrook.spark.writer import batch_writer
from tests.interop.java.download_cache import MissingToolError
from tests.interop.java.jars import tools_classpath
from tests.interop.java.kafka_broker import KafkaBroker
from tests.interop.waiting import Deadline, wait_until
from tests.spark.limits import finish

pytestmark = pytest.mark.long
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIME_MS = 1_700_000_000_000
PER_PARTITION = 60


class Read(NamedTuple):
    """A record as a client has read it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]


class Kafka:
    """Operations on the real cluster, with librdkafka."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers})

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, also right after one of that name was deleted, which may take the broker a while."""
        wait_until(lambda: self._is_created(topic, partitions), f"the creation of {topic}")

    def recreate(self, topic: str, partitions: int = 1) -> None:
        self._admin.delete_topics([topic])[topic].result(10)
        self.create(topic, partitions)

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        listed = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
        return {
            (partition.topic, partition.partition): partition.offset
            for partition in listed[group_id].result(10).topic_partitions
        }

    def producer(self, **settings: Any) -> Producer:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({"bootstrap.servers": self.servers, **named})

    def consume(self, topic: str, isolation: str = "read_uncommitted") -> list[Read]:
        """Return all records by partition and offset."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "group.id": "witness",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
        consumer = Consumer(settings)
        try:
            unfinished = set(consumer.list_topics(topic, 10).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, partition, 0) for partition in unfinished])
            records = []
            deadline = Deadline()
            while unfinished:
                deadline.check(f"reading {topic}")
                message = consumer.poll(0.1)
                if message is None:
                    continue
                partition, offset, error = message.partition(), message.offset(), message.error()
                assert partition is not None
                assert offset is not None
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unfinished.discard(partition)
                    continue
                headers: Any = message.headers() or []
                time_ms = message.timestamp()[1]
                records.append(Read(partition, offset, message.key(), message.value(), time_ms, headers))
            return sorted(records, key=lambda record: record[:2])
        finally:
            consumer.close()

    def _is_created(self, topic: str, partitions: int) -> bool:
        try:
            self._admin.create_topics([NewTopic(topic, partitions)])[topic].result(10)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    try:
        classpath = tools_classpath()
    except MissingToolError as error:
        pytest.skip(f"NO REAL KAFKA, SO NOTHING IS PROVEN WITH ONE: {error}")
    # Keep records with old timestamps.
    with KafkaBroker(classpath, tmp_path_factory.mktemp("kafka"), {"log.retention.ms": "-1"}) as broker:
        yield Kafka(broker.bootstrap_servers)


@pytest.fixture(scope="module")
def everything(kafka: Kafka) -> str:
    """A topic with a partition for each codec, with tombstones, missing keys, and headers."""
    topic = "everything"
    kafka.create(topic, len(CODECS))
    for partition, codec in enumerate(CODECS):
        producer = kafka.producer(compression_type=codec, linger_ms=50)
        for number in range(PER_PARTITION):
            producer.produce(
                topic,
                value=None if number % 10 == 3 else (b"%d " % number) * number,
                key=None if number % 7 == 0 else b"k%d" % (number % 5),
                partition=partition,
                timestamp=TIME_MS + 1000 * number,
                headers=[("n", b"%d" % number), ("n", None), ("é", b"")] if number % 4 == 0 else None,
            )
        assert producer.flush(10) == 0
    return topic


def read(spark: SparkSession, kafka: Kafka, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("logbrook").options(**{"kafka.bootstrap.servers": kafka.servers, "subscribe": topic})
    return reader.options(**{name.replace("__", "."): value for name, value in options.items()}).load()


def stream(spark: SparkSession, kafka: Kafka, topic: str, checkpoint: Path, **options: Any) -> list[Read]:
    """Return the rows that a stream reads from its checkpoint to the current end."""
    rows: list[Row] = []
    reader = spark.readStream.format("logbrook").options(
        **{"kafka.bootstrap.servers": kafka.servers, "subscribe": topic, "startingOffsets": "earliest"}
    )
    frame = reader.options(**{name.replace("__", "."): value for name, value in options.items()}).load()
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    return reads(rows)


def reads(rows: list[Row]) -> list[Read]:
    records = []
    for row in rows:
        key, value = (None if data is None else bytes(data) for data in (row.key, row.value))
        headers = getattr(row, "headers", None) or []
        pairs = [(header.key, None if header.value is None else bytes(header.value)) for header in headers]
        records.append(Read(row.partition, row.offset, key, value, round(row.timestamp.timestamp() * 1000), pairs))
    return sorted(records, key=lambda record: record[:2])


def test_a_batch_query_and_a_stream_have_what_librdkafka_reads_and_commit_progress_as_a_group(
    spark: SparkSession, kafka: Kafka, everything: str, tmp_path: Path
) -> None:
    expected = kafka.consume(everything)
    assert len(expected) == PER_PARTITION * len(CODECS)
    assert reads(read(spark, kafka, everything, includeHeaders=True).collect()) == expected
    options = {"includeHeaders": True, "maxOffsetsPerTrigger": 170, "group.id": "lag-watchers"}
    assert stream(spark, kafka, everything, tmp_path, **options) == expected
    assert kafka.committed("lag-watchers") == {(everything, number): PER_PARTITION for number in range(len(CODECS))}


def test_a_filter_spares_tasks_and_changes_no_result(spark: SparkSession, kafka: Kafka, everything: str) -> None:
    frame = read(spark, kafka, everything)
    assert frame.rdd.getNumPartitions() == len(CODECS)
    some = frame.where("partition in (1, 4) and offset >= 20 and offset < 23")
    assert some.rdd.getNumPartitions() == 2
    assert [record[:2] for record in reads(some.collect())] == [(p, offset) for p in (1, 4) for offset in (20, 21, 22)]
    late = frame.where("partition = 2 and timestamp >= timestamp'2023-11-14 22:14:10 UTC'")
    assert [record.offset for record in reads(late.collect())] == list(range(50, PER_PARTITION))


def test_committed_records_are_distinguished_from_aborted_ones(
    spark: SparkSession, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    kafka.create(topic)
    writer, rival = (kafka.producer(transactional_id=f"{topic}-{name}") for name in ("one", "other"))
    plain = kafka.producer()
    for producer in (writer, rival):
        producer.init_transactions(20)

    def write(producer: Producer, *values: str) -> None:
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(10) == 0

    for number in range(6):
        writer.begin_transaction()
        rival.begin_transaction()
        write(writer, f"a{number}", f"b{number}")
        write(rival, f"c{number}")
        write(plain, f"p{number}")
        write(writer, f"d{number}")
        # Both outcomes, in both orders.
        first, second = (writer, rival) if number % 2 else (rival, writer)
        for producer in (first, second):
            if (number + (producer is writer)) % 3:
                producer.commit_transaction(20)
            else:
                producer.abort_transaction(20)
    writer.begin_transaction()
    write(writer, "open")
    write(plain, "behind what is open")
    committed = kafka.consume(topic, "read_committed")
    everything = kafka.consume(topic)
    assert 0 < len(committed) < len(everything) - 2
    assert reads(read(spark, kafka, topic, kafka__isolation__level="read_committed").collect()) == committed
    assert reads(read(spark, kafka, topic, kafka__isolation__level="read_uncommitted").collect()) == everything
    assert stream(spark, kafka, topic, tmp_path, isolation__level="read_committed") == committed
    writer.commit_transaction(20)
    rest = stream(spark, kafka, topic, tmp_path, isolation__level="read_committed")
    assert [record.value for record in rest] == [b"open", b"behind what is open"]


def test_the_sink_writes_what_librdkafka_reads(
    spark: SparkSession, kafka: Kafka, everything: str, topic: str, tmp_path: Path
) -> None:
    expected = contents(kafka.consume(everything))
    source = read(spark, kafka, everything, includeHeaders=True).select("key", "value", "headers").coalesce(1)
    written, streamed = f"{topic}-written", f"{topic}-streamed"
    for name in (written, streamed):
        kafka.create(name, 2)
    source.write.format("logbrook").mode("append").options(**sink_options(kafka, written)).save()
    assert contents(kafka.consume(written)) == expected
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": written, "startingOffsets": "earliest"}
    query = (
        spark.readStream.format("logbrook")
        .options(**options, includeHeaders="true")
        .load()
        .drop("topic")
        .writeStream.format("logbrook")
        .options(**sink_options(kafka, streamed), checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    assert [record._replace(timestamp_ms=0) for record in kafka.consume(streamed)] == [
        record._replace(timestamp_ms=0) for record in kafka.consume(written)
    ]


def test_kafka_takes_batches_of_every_codec(spark: SparkSession, kafka: Kafka, everything: str, topic: str) -> None:
    """Without Spark's tasks, which would take longer and do the same."""
    rows = read(spark, kafka, everything, includeHeaders=True, columns="key,value,headers")
    batches, expected = rows.toArrow().to_batches(), contents(kafka.consume(everything))
    for codec in CODECS:
        written = f"{topic}-{codec}"
        kafka.create(written, 2)
        options = sink_options(kafka, written) | {"compression.type": codec}
        try:
            batch_writer(options, rows.schema, False).write(iter(batches))
        finally:
            close_idle()
        assert contents(kafka.consume(written)) == expected


def sink_options(kafka: Kafka, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.servers, "topic": topic, "includeHeaders": "true"}


def contents(records: list[Read]) -> list[Any]:
    """Return the values, regardless of partition and offset."""
    return sorted((str(record.key), str(record.value), str(record.headers)) for record in records)


def test_a_topic_that_was_created_again_is_an_error_that_names_it(
    spark: SparkSession, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    kafka.create(topic)
    producer = kafka.producer()
    for number in range(5):
        producer.produce(topic, f"old {number}")
    assert producer.flush(10) == 0
    assert len(stream(spark, kafka, topic, tmp_path)) == 5
    options = read_options({"kafka.bootstrap.servers": kafka.servers, "subscribe": topic}, is_batch=True)
    reader = TopicReader(options, ("value",))
    (planned,) = reader.partitions()
    kafka.recreate(topic)
    for number in range(9):
        producer.produce(topic, f"new {number}")
    assert producer.flush(10) == 0
    sentence = f"topic '{topic}' was deleted and created again since the query"
    with pytest.raises(DataLossError, match=f"{sentence} was planned"):
        list(reader.read(planned))
    with pytest.raises(PySparkException, match=f"{sentence} read it"):
        stream(spark, kafka, topic, tmp_path)
    assert len(read(spark, kafka, topic).collect()) == 9


def test_a_topic_that_does_not_exist_is_an_error_that_names_it(spark: SparkSession, kafka: Kafka) -> None:
    with pytest.raises(PySparkException, match=f"there is no topic 'nobody-made-it' at {kafka.servers}"):
        read(spark, kafka, "nobody-made-it").count()


def test_a_pipeline_reports_its_state(kafka: Kafka) -> None:
    reporter = PipelineReporter(kafka.servers, REPORTS_TOPIC, "p")
    reporter.report(RunState.STARTING)
    reporter.report(RunState.STOPPED)
    reporter.close()
    assert reporter.problem is None
    with Client(kafka.servers) as client:
        assert [report.state for report in read_new_reports(client, REPORTS_TOPIC, ReportHistory()).latest] == [
            RunState.STOPPED
        ]
        settings = {setting.name: setting.value for setting in Admin(client).configs.of_topic(REPORTS_TOPIC)}
    assert settings["cleanup.policy"] == "compact"
