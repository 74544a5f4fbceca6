"""Kafka Streams: the most demanding application of Kafka's own clients."""

from pathlib import Path

import pytest

from logbrook import Broker
from tests.interop.java.conftest import or_skip
from tests.interop.java.jars import streams_classpath
from tests.interop.java.tool_host import run_alone


@pytest.mark.parametrize("guarantee", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once_v2"])
def test_a_kafka_streams_application_restores_its_counts(broker: Broker, tmp_path: Path, guarantee: str) -> None:
    classpath = or_skip(streams_classpath)
    for topic in ("lines", "counts"):
        broker.create_topic(f"{guarantee}-{topic}", 2)
    run = run_alone(classpath, "WordCount", broker.bootstrap_servers, str(tmp_path), guarantee, timeout_s=90)
    # It warns about its own defaults, a temporary state directory, and topics that it is about to create.
    run.check(allowed="StreamsConfig|StateDirectory|UNKNOWN_TOPIC_OR_PARTITION")
    assert run.lines == ["{even=300, every=600, odd=300}"]
