"""The metrics of a real broker under real clients, as parsed by Prometheus' own parser."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from logbrook.model import TopicPartition as Partition
from logbrook.model.identifiers import Offset
from logbrook.model.version import VERSION
from logbrook.server.metrics.cluster import CLUSTER
from logbrook.server.metrics.declaration import MetricKind
from logbrook.server.metrics.exposition import all_metrics
from logbrook.storage.errors import CorruptLogError, DiskFullError, StorageOfflineError
from tests.unit.server.coordinators.kit import make_loading
from tests.unit.server.http_kit import TIMEOUT_S, Served

PARTITIONS = 3
MESSAGES = 200


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as served:
        served.create_topic("orders", PARTITIONS)
        yield served


def produce(served: Served, topic: str, count: int = MESSAGES, *, size: int = 100, partition: int = -1) -> None:
    producer = Producer({"bootstrap.servers": served.bootstrap_servers, "linger.ms": 1})
    for number in range(count):
        producer.produce(topic, key=str(number % 10), value=os.urandom(size // 2).hex(), partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


@contextmanager
def consumer(served: Served, group: str = "readers", reset: str = "earliest") -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": served.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": reset,
            "enable.auto.commit": False,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def commit(served: Served, group: str, topic: str, partition: int, offset: int) -> None:
    with consumer(served, group) as reader:
        reader.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)


def test_produced_records_are_counted(served: Served) -> None:
    produce(served, "orders")
    scraped = served.scrape()
    assert scraped.value("logbrook_topic_messages_in_total", topic="orders") == MESSAGES
    appended = sum(served.log("orders", number).size for number in range(PARTITIONS))
    assert scraped.value("logbrook_topic_in_bytes_total", topic="orders") == appended
    assert scraped.value("logbrook_topic_out_bytes_total", topic="orders") == 0


def test_partitions_are_shown_as_they_are_on_the_disk(served: Served) -> None:
    produce(served, "orders")
    scraped = served.scrape()
    assert scraped.sum("logbrook_partition_high_watermark", topic="orders") == MESSAGES
    assert scraped.sum("logbrook_partition_log_end_offset", topic="orders") == MESSAGES
    assert scraped.sum("logbrook_partition_last_stable_offset", topic="orders") == MESSAGES
    for partition in range(PARTITIONS):
        labels = {"topic": "orders", "partition": partition}
        path = os.path.join(served.config.data, f"orders-{partition}", f"{0:020}.log")
        assert scraped.value("logbrook_partition_size_bytes", **labels) == os.path.getsize(path)
        assert scraped.value("logbrook_partition_segments", **labels) == 1
        assert scraped.value("logbrook_partition_log_start_offset", **labels) == 0
        assert scraped.value("logbrook_partition_quarantined", **labels) == 0
    assert scraped.value("logbrook_partition_segments", topic="__cluster_metadata", partition=0) == 1
    assert scraped.value("logbrook_partitions") == PARTITIONS


def test_group_lag_is_the_distance_to_the_committed_offset(served: Served) -> None:
    produce(served, "orders", partition=1)
    with consumer(served) as reader:
        reader.subscribe(["orders"])
        messages = reader.consume(MESSAGES, TIMEOUT_S)
        assert len(messages) == MESSAGES
        reader.commit(message=messages[149], asynchronous=False)
        scraped = served.scrape()
    labels = {"group": "readers", "topic": "orders", "partition": 1}
    assert scraped.value("logbrook_group_committed_offset", **labels) == 150
    assert scraped.value("logbrook_group_lag", **labels) == MESSAGES - 150
    assert scraped.value("logbrook_group_members", group="readers") == 1
    assert scraped.value("logbrook_groups", state="Stable") == 1
    assert (scraped.value("logbrook_topic_out_bytes_total", topic="orders") or 0) >= served.log("orders", 1).size

    scraped = served.scrape()
    assert scraped.value("logbrook_group_members", group="readers") == 0
    assert scraped.value("logbrook_groups", state="Empty") == 1
    assert scraped.value("logbrook_group_lag", **labels) == MESSAGES - 150


def test_requests_are_counted_and_timed(served: Served) -> None:
    produce(served, "orders")
    scraped = served.scrape()
    counted = scraped.sum("logbrook_requests_total", api="Produce")
    assert counted >= 1
    assert scraped.value("logbrook_request_duration_seconds_count", api="Produce") == counted
    assert scraped.value("logbrook_request_duration_seconds_bucket", api="Produce", le="+Inf") == counted
    assert (scraped.value("logbrook_request_duration_seconds_sum", api="Produce") or 0) > 0
    assert (scraped.value("logbrook_received_bytes_total") or 0) > MESSAGES * 100
    assert (scraped.value("logbrook_sent_bytes_total") or 0) > 0
    assert (scraped.value("logbrook_connections_accepted_total") or 0) >= 1


def test_errors_are_counted_by_their_codes(served: Served) -> None:
    with consumer(served, reset="error") as reader:
        reader.assign([TopicPartition("orders", 0, 1_000)])
        (message,) = reader.consume(1, TIMEOUT_S)
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert served.scrape().sum("logbrook_request_errors_total", api="Fetch", code="OFFSET_OUT_OF_RANGE") >= 1


def test_bytes_that_are_no_request_are_counted(served: Served) -> None:
    with served.connect_to_broker() as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.recv(1) == b""
    assert served.scrape().value("logbrook_protocol_errors_total") == 1


def test_every_sync_of_the_write_ahead_log_is_timed(served: Served) -> None:
    produce(served, "orders")
    scraped = served.scrape()
    commits = scraped.value("logbrook_wal_commits_total")
    assert commits is not None
    assert commits > 1
    assert scraped.value("logbrook_wal_commit_duration_seconds_count") == commits
    assert scraped.value("logbrook_wal_sync_duration_seconds_count") == commits
    assert (scraped.value("logbrook_wal_entries_total") or 0) >= commits
    assert (scraped.value("logbrook_wal_in_use_bytes") or 0) > MESSAGES * 100
    appended = scraped.value("logbrook_storage_appended_bytes_total") or 0
    assert (scraped.value("logbrook_wal_written_bytes_total") or 0) > appended > MESSAGES * 100


def test_every_metric_that_is_declared_appears_as_it_is_declared(served: Served) -> None:
    produce(served, "orders")
    with consumer(served) as reader:
        reader.subscribe(["orders"])
        assert len(reader.consume(MESSAGES, TIMEOUT_S)) == MESSAGES
        reader.commit(asynchronous=False)
    test_errors_are_counted_by_their_codes(served)

    families = served.scrape().families
    for metric in all_metrics():
        family = families[metric.name.removesuffix("_total") if metric.kind is MetricKind.COUNTER else metric.name]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        # A single node has no samples of clusters.
        assert bool(family.samples) == (metric not in CLUSTER), f"{metric.name} has no samples"
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == set(metric.labels), sample
    process = {"process_cpu_seconds", "process_resident_memory_bytes", "process_open_fds"}
    assert process <= families.keys()
    assert len(families) == len(all_metrics()) + sum(name.startswith("process_") for name in families)


def test_a_deleted_topic_is_no_longer_shown(served: Served) -> None:
    produce(served, "orders")
    commit(served, "readers", "orders", 0, 1)
    assert 'topic="orders"' in served.ask("/metrics").text
    served.call(served.broker.services.topics.delete("orders"))
    assert 'topic="orders"' not in served.ask("/metrics").text


def test_offsets_of_partitions_that_do_not_exist_are_not_shown(served: Served) -> None:
    commit(served, "readers", "orders", 0, 1)
    del served.broker.directory.members[0]._logs[Partition("orders", 0)]
    assert served.scrape().sum("logbrook_group_committed_offset") == 0


def test_a_group_may_be_called_anything(served: Served) -> None:
    name = 'a "group"\nwith\\every{thing} in=it, and ü'
    commit(served, name, "orders", 0, 7)
    assert served.scrape().value("logbrook_group_committed_offset", group=name, topic="orders", partition=0) == 7


def test_a_quarantined_partition_is_shown(served: Served) -> None:
    log = served.log("orders", 2)

    async def quarantine() -> None:
        log.quarantine(CorruptLogError(log.partition, log.active.path, 0, Offset(0), "for the test"))

    served.call(quarantine())
    scraped = served.scrape()
    assert scraped.value("logbrook_partition_quarantined", topic="orders", partition=2) == 1
    assert scraped.value("logbrook_partition_quarantined", topic="orders", partition=1) == 0
    assert scraped.value("logbrook_storage_corruptions_total") == 1


def test_a_segment_missing_on_disk_invalidates_only_its_own_metric(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        served.create_topic("orders", 2, segment_bytes=10_000)
        produce(served, "orders", partition=0)
        produce(served, "orders", partition=0)
    with Served(tmp_path) as served:
        os.unlink(os.path.join(served.config.data, served.log("orders").closed[0].path))
        scraped = served.scrape()
    assert scraped.value("logbrook_partition_size_bytes", topic="orders", partition=0) is None
    assert scraped.value("logbrook_partition_size_bytes", topic="orders", partition=1) == 0
    assert (scraped.value("logbrook_partition_segments", topic="orders", partition=0) or 0) > 1


def test_storage_that_is_offline_is_shown(served: Served) -> None:
    async def fail() -> None:
        failure = StorageOfflineError("sync", "wal", OSError("for the test"))
        served.broker.directory.environment.health.fail(failure)

    assert served.scrape().value("logbrook_storage_offline") == 0
    served.call(fail())
    scraped = served.scrape()
    assert scraped.value("logbrook_storage_offline") == 1
    assert scraped.value("logbrook_storage_writes_refused") == 1


def test_a_broker_that_waits_for_room_to_begin_its_epoch_is_shown(served: Served) -> None:
    async def refuse() -> None:
        served.broker.services.appender.refusal = DiskFullError("a file", 1)

    assert served.scrape().value("logbrook_storage_writes_refused") == 0
    served.call(refuse())
    scraped = served.scrape()
    assert scraped.value("logbrook_storage_writes_refused") == 1
    assert scraped.value("logbrook_storage_offline") == 0


def test_the_broker_reports_its_version_and_start_time(served: Served) -> None:
    scraped = served.scrape()
    (build,) = scraped.families["logbrook_build_info"].samples
    assert build.labels["version"] == VERSION
    started_s = scraped.value("logbrook_start_time_seconds") or 0
    now_s = served.broker.services.clock.now_ms() / 1000
    assert now_s - TIMEOUT_S < started_s <= now_s
    assert 0 <= (scraped.value("logbrook_uptime_seconds") or -1) < TIMEOUT_S


def test_the_group_metric_is_0_while_groups_are_loading(served: Served) -> None:
    make_loading(served.broker.services.groups.runtime)
    assert served.scrape().sum("logbrook_groups") == 0
