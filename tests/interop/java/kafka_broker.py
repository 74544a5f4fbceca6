"""A real Apache Kafka of one node, which is broker and controller, in a process of its own."""

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

from logbrook.client import Client, ClientError
from logbrook.testing.processes import free_port

_MAIN = "kafka.Kafka"
_FORMATTER = "kafka.tools.StorageTool"
# Any 16 bytes in URL-safe base64.
_CLUSTER_ID = "bG9nYnJvb2stdGVzdHMtMQ"
_NODE_ID = 1
_START_S_MAX = 120.0
_STOP_S_MAX = 30.0
_POLL_S = 0.1
_HOST = "127.0.0.1"
_ALONE = {
    # The internal topics for groups and transactions are as small as one broker needs them.
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.cleaner.dedupe.buffer.size": str(2 << 20),
}
# A process of a few seconds gains nothing from the optimising compiler; benchmarks pass their own options.
QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-Xms256m",
    "-Xmx256m",
)


class KafkaBroker:
    """Listens on a free port, keeps everything below `directory`, and has answered once `with` is entered.

    `settings` are those of its server.properties, and win over the ones here. `classpath` is `tools_classpath()`. In
    its own session it is the leader of a process group, for a `Reaper`.
    """

    def __init__(
        self,
        classpath: str,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        java_options: tuple[str, ...] = QUICK_JAVA,
        *,
        in_own_session: bool = False,
    ) -> None:
        self._java = ["java", *java_options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath]
        self._directory = directory
        self._settings = dict(settings or {})
        self._in_own_session = in_own_session
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap_servers = ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop it with SIGTERM, and kill it if it does not end. No effect if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S_MAX)

    def kill(self) -> None:
        """Kill it with SIGKILL. No effect if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(_STOP_S_MAX)

    def log(self) -> str:
        """Return the broker's log, or an empty text if it has none yet."""
        path = self._log_path
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def _log_path(self) -> Path:
        return self._directory / "kafka.log"

    @property
    def _properties_path(self) -> Path:
        return self._directory / "server.properties"

    def _start(self) -> None:
        self.prepare()
        self.launch()
        self.wait_until_ready()

    def prepare(self) -> None:
        """Choose ports, write the settings and format the directory, before the first start."""
        self._directory.mkdir(parents=True, exist_ok=True)
        # Not ephemeral ports, so that they are free again at a restart.
        port = controller_port = free_port()
        while controller_port == port:
            controller_port = free_port()
        self.bootstrap_servers = f"{_HOST}:{port}"
        settings = {**self._required(port, controller_port), **_ALONE, **self._settings}
        self._properties_path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with self._log_path.open("ab") as log:
            format_ = [
                *self._java,
                _FORMATTER,
                "format",
                "-t",
                _CLUSTER_ID,
                "-c",
                str(self._properties_path),
                "--ignore-formatted",
            ]
            formatted = subprocess.run(
                format_, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=_START_S_MAX, check=False
            )
            assert formatted.returncode == 0, self.log()

    def launch(self) -> None:
        """Start or restart the process; it need not respond yet."""
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java, _MAIN, str(self._properties_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=self._in_own_session,
            )

    def _required(self, port: int, controller_port: int) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": str(_NODE_ID),
            "controller.quorum.voters": f"{_NODE_ID}@{_HOST}:{controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{_HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._directory / "data"),
        }

    def wait_until_ready(self) -> None:
        """Wait until it answers. Raises AssertionError if it has ended, or TimeoutError."""
        assert self._process is not None
        pause = Event()
        for _ in range(int(_START_S_MAX / _POLL_S)):
            assert self._process.poll() is None, self.log()
            try:
                with Client(self.bootstrap_servers) as client:
                    if client.metadata([]).brokers:
                        return
            except ClientError:
                pass
            pause.wait(_POLL_S)
        raise TimeoutError(f"Kafka did not answer in {_START_S_MAX:.0f} s: {self.log()}")
