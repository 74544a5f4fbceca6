"""Parsing of a broker's metrics page, and scraping it over HTTP."""

import pytest

from logbrook.model import TopicPartition
from logbrook.monitoring.metrics import SYNC, parse_metrics, quantile, scrape
from logbrook.testing import Broker


def test_counters_gauges_histograms_and_partitions_are_parsed_and_the_rest_is_ignored() -> None:
    metrics = parse_metrics(
        "# TYPE logbrook_topic_in_bytes_total counter\n"
        'logbrook_topic_in_bytes_total{topic="a"} 5\n'
        'logbrook_topic_in_bytes_total{topic="b"} 7\n'
        'logbrook_connections{listener="kafka"} 2\n'
        'logbrook_connections{listener="json"} 1\n'
        'logbrook_request_duration_seconds_bucket{api="Produce",le="0.1"} 3\n'
        'logbrook_request_duration_seconds_bucket{api="Produce",le="+Inf"} 4\n'
        'logbrook_wal_sync_duration_seconds_bucket{le="+Inf"} 9\n'
        'logbrook_partition_high_watermark{topic="a",partition="0"} 1\n'
        "# TYPE something_else gauge\nsomething_else 1\n"
    )
    assert metrics.topics == {"a": {"in_bytes": 5}, "b": {"in_bytes": 7}}
    assert metrics.gauges == {"logbrook_connections": 3}
    assert metrics.histograms == {"Produce": {0.1: 3, float("inf"): 4}, SYNC: {float("inf"): 9}}
    assert metrics.partitions == {TopicPartition("a", 0)}


def test_a_broker_is_recognized_by_its_partitions_without_its_metadata_log() -> None:
    metrics = parse_metrics(
        'logbrook_partition_high_watermark{topic="__cluster_metadata",partition="0"} 3\n'
        'logbrook_partition_high_watermark{topic="a",partition="0"} 1\n'
    )
    assert metrics.has_exactly([TopicPartition("a", 0)])
    assert not metrics.has_exactly([TopicPartition("a", 0), TopicPartition("a", 1)])
    assert not metrics.has_exactly([])


def test_a_quantile_is_of_the_events_between_two_readings() -> None:
    infinite = float("inf")
    before = {0.1: 100.0, 0.2: 100.0, infinite: 100.0}
    after = {0.1: 100.0, 0.2: 110.0, infinite: 110.0}
    assert quantile(0.5, before, after) == pytest.approx(0.15)
    assert quantile(0.99, before, before) is None
    # A restarted broker counts from 0.
    assert quantile(0.5, after, before) is None
    assert quantile(0.99, {}, {0.1: 0.0, 0.2: 0.0, infinite: 5.0}) == 0.2


def test_a_running_broker_is_scraped_with_and_without_the_path_and_others_are_not() -> None:
    with Broker(["orders"], settings={"metrics": {"listen": "127.0.0.1:0"}}) as broker:
        address = broker._running.http_address
        assert address is not None
        url = "http://{}:{}".format(*address)
        for form in (url, f"{url}/", f"{url}/metrics"):
            metrics = scrape(form)
            assert metrics is not None
            assert metrics.gauges["logbrook_uptime_seconds"] >= 0
            assert TopicPartition("orders", 0) in metrics.partitions
        assert scrape(f"{url}/healthz") is None
    assert scrape(url) is None
