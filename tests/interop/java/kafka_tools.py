"""Kafka's tools by the names of their scripts, which are in no Maven artifact: they only start these classes."""

from logbrook import Broker
from tests.interop.java.tool_host import ToolHost
from tests.interop.java.tool_run import ToolRun

_PACKAGE = "org.apache.kafka.tools"
MAIN_CLASSES = {
    "kafka-broker-api-versions": f"{_PACKAGE}.BrokerApiVersionsCommand",
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
    "kafka-log-dirs": f"{_PACKAGE}.LogDirsCommand",
    "kafka-producer-perf-test": f"{_PACKAGE}.ProducerPerformance",
    "kafka-streams-application-reset": f"{_PACKAGE}.StreamsResetter",
    "kafka-topics": f"{_PACKAGE}.TopicCommand",
    "kafka-transactions": f"{_PACKAGE}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{_PACKAGE}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{_PACKAGE}.VerifiableProducer",
}
# They read files, and know no broker.
_OFFLINE = {"kafka-dump-log"}
# Of the tools with commands of their own, most want the address before the command.
_SERVER_LAST = {"kafka-cluster"}


class KafkaTools:
    """The tools of one broker's administrator."""

    def __init__(self, host: ToolHost, broker: Broker) -> None:
        self._host = host
        self._broker = broker

    def of(self, broker: Broker) -> "KafkaTools":
        """The same tools for another broker."""
        return KafkaTools(self._host, broker)

    def run(self, tool: str, *arguments: str, stdin: str = "", code: int = 0, allowed: str = "") -> ToolRun:
        """The run must end with `code`, and complain of nothing but what matches `allowed`."""
        server = () if tool in _OFFLINE else ("--bootstrap-server", self._broker.bootstrap_servers)
        words = (*arguments, *server) if tool in _SERVER_LAST else (*server, *arguments)
        run = self._host.run(MAIN_CLASSES[tool], *words, stdin=stdin)
        run.check(code, allowed)
        return run

    def dump(self, topic: str, *options: str, segment: int = 0) -> ToolRun:
        """What is in a segment of partition 0, as kafka-dump-log reads it."""
        path = f"{self._broker.data}/{topic}-0/{segment:020}.log"
        return self.run("kafka-dump-log", "--files", path, "--deep-iteration", *options)
