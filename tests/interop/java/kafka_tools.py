"""Kafka's tools by the names of their scripts, which are in no Maven artifact: they only start these classes."""

from logbrook import Broker
from tests.interop.java.tool_host import ToolHost
from tests.interop.java.tool_run import ToolRun

_PACKAGE = "org.apache.kafka.tools"
MAIN_CLASSES = {
    "kafka-acls": f"{_PACKAGE}.AclCommand",
    "kafka-broker-api-versions": f"{_PACKAGE}.BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{_PACKAGE}.ClientMetricsCommand",
    "kafka-cluster": f"{_PACKAGE}.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{_PACKAGE}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{_PACKAGE}.ConsoleProducer",
    "kafka-consumer-groups": f"{_PACKAGE}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{_PACKAGE}.ConsumerPerformance",
    "kafka-delete-records": f"{_PACKAGE}.DeleteRecordsCommand",
    "kafka-dump-log": f"{_PACKAGE}.DumpLogSegments",
    "kafka-e2e-latency": f"{_PACKAGE}.EndToEndLatency",
    "kafka-features": f"{_PACKAGE}.FeatureCommand",
    "kafka-get-offsets": f"{_PACKAGE}.GetOffsetShell",
    "kafka-groups": f"{_PACKAGE}.GroupsCommand",
    "kafka-leader-election": f"{_PACKAGE}.LeaderElectionCommand",
    "kafka-log-dirs": f"{_PACKAGE}.LogDirsCommand",
    "kafka-metadata-quorum": f"{_PACKAGE}.MetadataQuorumCommand",
    "kafka-producer-perf-test": f"{_PACKAGE}.ProducerPerformance",
    "kafka-reassign-partitions": f"{_PACKAGE}.reassign.ReassignPartitionsCommand",
    "kafka-streams-application-reset": f"{_PACKAGE}.StreamsResetter",
    "kafka-topics": f"{_PACKAGE}.TopicCommand",
    "kafka-transactions": f"{_PACKAGE}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{_PACKAGE}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{_PACKAGE}.VerifiableProducer",
}
# Tools that read files and need no broker.
_OFFLINE = {"kafka-dump-log"}
# Most tools with subcommands expect the address before the subcommand.
_SERVER_LAST = {"kafka-cluster"}


class KafkaTools:
    """The command line tools, for one broker."""

    def __init__(self, host: ToolHost, broker: Broker) -> None:
        self._host = host
        self._broker = broker

    def of(self, broker: Broker) -> "KafkaTools":
        """Return the same tools for another broker."""
        return KafkaTools(self._host, broker)

    def run(self, tool: str, *arguments: str, stdin: str = "", code: int = 0, allowed: str = "") -> ToolRun:
        """Run a tool. Checks that it exits with `code`, and that all its warnings match `allowed`."""
        server = () if tool in _OFFLINE else ("--bootstrap-server", self._broker.bootstrap_servers)
        words = (*arguments, *server) if tool in _SERVER_LAST else (*server, *arguments)
        run = self._host.run(MAIN_CLASSES[tool], *words, stdin=stdin)
        run.check(code, allowed)
        return run

    def dump(self, topic: str, *options: str, segment: int = 0) -> ToolRun:
        """Dump a segment of partition 0 with kafka-dump-log."""
        path = f"{self._broker.data}/{topic}-0/{segment:020}.log"
        return self.run("kafka-dump-log", "--files", path, "--deep-iteration", *options)
