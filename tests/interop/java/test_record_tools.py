"""Kafka's tools for records: what one writes the other reads, and kafka-dump-log reads our files."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.records.batch import read_header
from tests.interop.java.kafka_tools import MAIN_CLASSES, KafkaTools
from tests.interop.java.tool_host import run_alone
from tests.interop.waiting import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def printing(*names: str) -> list[str]:
    return [argument for name in names for argument in ("--formatter-property", f"print.{name}=true")]


def reading(*names: str) -> list[str]:
    return [argument for name in names for argument in ("--reader-property", name)]


def perf(tools: KafkaTools, topic: str, records: int, *settings: str) -> str:
    """Run the tool and return the last line of its output."""
    size = ("--num-records", str(records), "--record-size", "100", "--throughput", "-1")
    properties = ("--command-property", *settings) if settings else ()
    return tools.run("kafka-producer-perf-test", "--topic", topic, *size, *properties).lines[-1]


@pytest.mark.parametrize("codec", CODECS)
def test_the_console_consumer_prints_what_the_console_producer_sent(
    tools: KafkaTools, broker: Broker, codec: str
) -> None:
    topic = f"console-{codec}"
    broker.create_topic(topic)
    read = reading("parse.key=true", "key.separator=:", "parse.headers=true", "null.marker=NULL")
    lines = "h:1,g:2\tkey:one\nh:3\tkey:NULL\nNULL\tNULL:three\n"
    tools.run("kafka-console-producer", "--topic", topic, "--compression-codec", codec, *read, stdin=lines)
    shown = printing("key", "headers", "partition", "offset")
    count = ("--from-beginning", "--max-messages", "3")
    assert tools.run("kafka-console-consumer", "--topic", topic, *count, *shown).lines == [
        "Partition:0\tOffset:0\th:1,g:2\tkey\tone",
        "Partition:0\tOffset:1\th:3\tkey\tnull",
        "Partition:0\tOffset:2\tNO_HEADERS\tnull\tthree",
    ]


def test_the_console_consumer_reads_by_offset_by_pattern_and_with_read_committed(
    tools: KafkaTools, broker: Broker
) -> None:
    broker.create_topic("chosen-1")
    tools.run("kafka-console-producer", "--topic", "chosen-1", stdin="zero\none\ntwo\n")
    place = ("--topic", "chosen-1", "--partition", "0", "--offset", "1", "--max-messages", "2")
    isolated = tools.run("kafka-console-consumer", *place, "--isolation-level", "read_committed")
    assert isolated.lines == ["one", "two"]
    pattern = ("--include", "chosen-.*", "--from-beginning", "--max-messages", "3")
    assert tools.run("kafka-console-consumer", *pattern).lines == ["zero", "one", "two"]


def test_the_console_producer_creates_a_topic_if_auto_creation_is_enabled(tools: KafkaTools) -> None:
    with Broker(settings={"topics": {"auto_create": True}}) as lenient:
        its_tools = tools.of(lenient)
        # The client warns once, as it does with Kafka: the topic does not exist at its first request.
        its_tools.run(
            "kafka-console-producer", "--topic", "made", stdin="value\n", allowed="LEADER_NOT_AVAILABLE|UNKNOWN_TOPIC"
        )
        read = its_tools.run("kafka-console-consumer", "--topic", "made", "--from-beginning", "--max-messages", "1")
        assert read.lines == ["value"]


def test_the_performance_tools_move_every_record_in_every_codec(tools: KafkaTools, broker: Broker) -> None:
    broker.create_topic("perf", 3)
    for codec in CODECS:
        assert perf(tools, "perf", 3000, f"compression.type={codec}").startswith("3000 records sent")
    read = tools.run("kafka-consumer-perf-test", "--topic", "perf", "--num-records", "15000", "--timeout", "20000")
    names, values = ([cell.strip() for cell in line.split(",")] for line in read.lines)
    assert dict(zip(names, values, strict=True))["data.consumed.in.nMsg"] == "15000"


def test_kafka_e2e_latency_receives_its_own_records(tools: KafkaTools, broker: Broker) -> None:
    broker.create_topic("latency")
    size = ("--num-records", "50", "--producer-acks", "all", "--record-size", "50")
    assert "Avg latency" in tools.run("kafka-e2e-latency", "--topic", "latency", *size).output


def test_the_verifiable_consumer_reads_what_the_verifiable_producer_wrote(
    tools: KafkaTools, broker: Broker, tools_jars: str
) -> None:
    broker.create_topic("verifiable")
    # It prints its results when its JVM ends.
    arguments = ("--topic", "verifiable", "--max-messages", "100", "--acks", "-1")
    producer = MAIN_CLASSES["kafka-verifiable-producer"]
    produced = run_alone(tools_jars, producer, *arguments, "--bootstrap-server", broker.bootstrap_servers)
    produced.check()
    summary = json.loads(produced.lines[-1])
    assert (summary["name"], summary["sent"], summary["acked"]) == ("tool_data", 100, 100)
    limits = ("--group-id", "verifiers", "--max-messages", "100", "--reset-policy", "earliest")
    consumed = tools.run("kafka-verifiable-consumer", "--topic", "verifiable", *limits)
    events = [json.loads(line) for line in consumed.lines]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 100
    committed = [event for event in events if event["name"] == "offsets_committed"][-1]
    assert (committed["success"], committed["offsets"][0]["offset"]) == (True, 100)


def test_kafka_get_offsets_and_kafka_delete_records_agree(tools: KafkaTools, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("trimmed", 2)
    place = reading("parse.key=true", "key.separator=:")
    tools.run("kafka-console-producer", "--topic", "trimmed", *place, stdin="a:1\na:2\na:3\na:4\n")

    def offsets(*options: str) -> set[str]:
        return set(tools.run("kafka-get-offsets", "--topic", "trimmed", *options).lines)

    (number,) = (line.split(":")[1] for line in offsets() if line.endswith(":4"))
    empty_partition = str(1 - int(number))
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "trimmed", "partition": int(number), "offset": 3}]})
    )
    run = tools.run("kafka-delete-records", "--offset-json-file", str(plan))
    assert f"partition: trimmed-{number}\tlow_watermark: 3" in run.lines
    assert offsets("--time", "earliest") == {f"trimmed:{number}:3", f"trimmed:{empty_partition}:0"}
    assert offsets("--time", "latest") == {f"trimmed:{number}:4", f"trimmed:{empty_partition}:0"}
    # An empty partition has no highest timestamp, and nothing is in tiered storage.
    assert offsets("--time", "max-timestamp") == {f"trimmed:{number}:3"}
    assert offsets("--time", "-4") == offsets("--time", "earliest")
    assert offsets("--time", "-5") == set()
    assert offsets("--time", str(int(time.time() * 1000) + 3_600_000)) == set()


def test_kafka_transactions_describes_the_idempotent_producers(tools: KafkaTools, broker: Broker) -> None:
    broker.create_topic("producers")
    perf(tools, "producers", 10)
    (state,) = tools.run("kafka-transactions", "describe-producers", "--topic", "producers", "--partition", "0").table
    assert (state["ProducerEpoch"], state["LastSequence"]) == ("0", "9")
    assert state["CurrentTransactionStartOffset"] == "None"


def test_kafka_dump_log_reads_every_batch_that_we_keep(tools: KafkaTools, broker: Broker) -> None:
    broker.create_topic("dumped")
    for codec in CODECS:
        read = reading("parse.key=true", "key.separator=:", "parse.headers=true")
        options = ("--topic", "dumped", "--compression-codec", codec)
        tools.run("kafka-console-producer", *options, *read, stdin=f"h:x\tk:{codec} 1\nh:x\tk:{codec} 2\n")
    run = tools.dump("dumped", "--print-data-log")
    batches = [line for line in run.lines if line.startswith("baseOffset")]
    assert [re.findall(r"compresscodec: (\w+) crc: \d+ isvalid: (\w+)", batch) for batch in batches] == [
        [(codec, "true")] for codec in CODECS
    ]
    records = re.findall(r"\| offset: (\d+) .* headerKeys: \[h\] key: k payload: (.*)$", run.output, re.MULTILINE)
    assert records == [(str(i), f"{CODECS[i // 2]} {i % 2 + 1}") for i in range(10)]


def test_kafka_reads_the_batches_that_a_topics_codec_compressed(tools: KafkaTools, broker: Broker) -> None:
    # Several blocks of the codecs whose frames Kafka reads with code of its own.
    values = [os.urandom(200).hex() for _ in range(600)]
    for codec in ("snappy", "lz4"):
        topic = f"recompressed-{codec}"
        broker.create_topic(topic, settings={"compression.type": codec, "validate": "full"})
        options = ("--topic", topic, "--compression-codec", "none", "--batch-size", "250000", "--timeout", "50")
        tools.run("kafka-console-producer", *options, stdin="".join(f"{value}\n" for value in values))
        dumped = tools.dump(topic).output
        assert set(re.findall(r"compresscodec: (\w+) crc: \d+ isvalid: (\w+)", dumped)) == {(codec, "true")}
        place = ("--partition", "0", "--offset", "earliest", "--max-messages", str(len(values)))
        assert tools.run("kafka-console-consumer", "--topic", topic, *place).lines == values


def test_kafka_reads_the_batches_that_compaction_wrote(tools: KafkaTools, broker: Broker) -> None:
    # Two thirds of each batch are kept, and that is several blocks of every codec.
    values = [os.urandom(200).hex() for _ in range(3000)]
    lines = [f"{i if i % 3 else 'often'}:{value}\n" for i, value in enumerate(values)]
    keyed = reading("parse.key=true", "key.separator=:")
    settings = {"cleanup.policy": "compact", "segment.bytes": "200000", "min.cleanable.dirty.ratio": "0"}
    for codec in CODECS:
        broker.create_topic(f"compacted-{codec}", settings=settings)
        options = ("--topic", f"compacted-{codec}", "--compression-codec", codec, "--batch-size", "150000")
        tools.run("kafka-console-producer", *options, "--timeout", "50", *keyed, stdin="".join(lines))
    segments = [Path(broker.data) / f"compacted-{codec}-0" / f"{0:020}.log" for codec in CODECS]

    def is_compacted() -> bool:
        """Return True if batches have fewer records than offsets."""
        broker.run_maintenance()
        headers = [read_header(segment.read_bytes()) for segment in segments]
        return all(header.count <= header.last_offset_delta for header in headers)

    wait_until(is_compacted, "the logs are compacted")
    for codec in CODECS:
        dumped = tools.dump(f"compacted-{codec}", "--print-data-log").output
        assert set(re.findall(r"compresscodec: (\w+) crc: \d+ isvalid: (\w+)", dumped)) == {(codec, "true")}
        kept = re.findall(r"\| offset: (\d+) .* key: (\w+) payload: (\w+)$", dumped, re.MULTILINE)[:100]
        assert kept == [(str(i), str(i), values[i]) for i in range(150) if i % 3]
        place = ("--partition", "0", "--offset", "earliest", "--max-messages", "100")
        read = tools.run("kafka-console-consumer", "--topic", f"compacted-{codec}", *place, *printing("offset", "key"))
        assert read.lines == [f"Offset:{offset}\t{key}\t{value}" for offset, key, value in kept]
