"""Apache Kafka from its Maven artifacts: one KRaft node with its defaults and the JVM options of its start script."""

import re
from pathlib import Path

from bench.peers.system import Promise, Server, System, UnavailableError, Variant
from tests.interop.java.download_cache import MissingToolError
from tests.interop.java.jars import tools_classpath
from tests.interop.java.kafka_broker import KafkaBroker

# The options that `kafka-server-start.sh` and `kafka-run-class.sh` pass.
JAVA_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
# Kafka's defaults, which the test suite's smaller broker overrides. Only replication factors stay 1, on one node.
DEFAULTS = {
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
    "share.coordinator.state.topic.num.partitions": "50",
    "group.initial.rebalance.delay.ms": "3000",
    "log.cleaner.dedupe.buffer.size": str(128 << 20),
}


def classpath() -> str:
    """Return the class path of Kafka's tools. Raises UnavailableError without Java, Maven or the artifacts."""
    try:
        return tools_classpath()
    except MissingToolError as error:
        raise UnavailableError(f"{error} (Kafka needs a JDK, Maven and access to a Maven repository)") from error


class Kafka(System):
    name = "Kafka"
    load = "kafka"
    codecs = ("none", "zstd")
    has_rebalances = True
    has_transactions = True

    def version(self) -> str:
        match = re.search(r"kafka-clients-([\d.]+)\.jar", classpath())
        assert match is not None
        return match[1]

    def variants(self) -> dict[Promise, Variant]:
        return {
            Promise.DISK: Variant(
                Promise.DISK,
                "`flush.messages=1` on the topic",
                "in a synced segment; one sync per batch and partition",
                topic_settings={"flush.messages": "1"},
            ),
            Promise.LESS: Variant(
                Promise.LESS,
                "its defaults",
                "in the page cache; synced by the kernel (survives SIGKILL)",
                is_default=True,
            ),
        }

    def server(self, variant: Variant, directory: Path) -> Server:  # noqa: ARG002
        # Its promise is a topic setting.
        return KafkaServer(KafkaBroker(classpath(), directory, DEFAULTS, JAVA_OPTIONS))


class KafkaServer(Server):
    """A broker whose directory is formatted, and which is not launched yet."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        # Formatting the directory is not part of a start.
        broker.prepare()
        self.address = broker.bootstrap_servers

    @property
    def pid(self) -> int:
        return self._broker.pid

    def launch(self) -> None:
        self._broker.launch()

    def stop(self) -> None:
        self._broker.stop()

    def kill(self) -> None:
        self._broker.kill()
