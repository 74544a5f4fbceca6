"""Apache Kafka from its Maven artifacts: one node, KRaft, its own defaults, and the JVM options of its start script."""

import re
from pathlib import Path

from bench.peers.system import Promise, Server, System, UnavailableError, Variant
from tests.interop.java.download_cache import MissingToolError
from tests.interop.java.jars import tools_classpath
from tests.interop.java.kafka_broker import KafkaBroker

# What `kafka-server-start.sh` and `kafka-run-class.sh` give to a broker.
JAVA_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
# The broker of the tests is made small; a peer has what Kafka has by default, but for the copies that one node has not.
_DEFAULTS = {
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
    "share.coordinator.state.topic.num.partitions": "50",
    "group.initial.rebalance.delay.ms": "3000",
    "log.cleaner.dedupe.buffer.size": str(128 << 20),
}


def classpath() -> str:
    """Raises UnavailableError where Maven, Java or the artifacts cannot be had."""
    try:
        return tools_classpath()
    except MissingToolError as error:
        raise UnavailableError(f"{error} (it needs a JDK and Maven, and Maven's repository within reach)") from error


class Kafka(System):
    name = "Kafka"
    load = "kafka"
    codecs = ("none", "zstd")
    has_rebalances = True
    has_transactions = True

    def version(self) -> str:
        found = re.search(r"kafka-clients-([\d.]+)\.jar", classpath())
        assert found is not None
        return found[1]

    def variants(self) -> dict[Promise, Variant]:
        return {
            Promise.DISK: Variant(
                Promise.DISK,
                "`flush.messages=1` on the topic",
                "in a segment that was synced; a sync for each batch and partition",
                topic_settings={"flush.messages": "1"},
            ),
            Promise.LESS: Variant(
                Promise.LESS,
                "its defaults",
                "with the kernel, which writes when it likes (survives SIGKILL)",
                is_default=True,
            ),
        }

    def server(self, variant: Variant, directory: Path) -> Server:  # noqa: ARG002
        # What it promises is a setting of its topics.
        return _KafkaServer(KafkaBroker(classpath(), directory, _DEFAULTS, JAVA_OPTIONS))


class _KafkaServer(Server):
    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        # Formatting the directory is a step of its own, which nobody does at each start.
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
