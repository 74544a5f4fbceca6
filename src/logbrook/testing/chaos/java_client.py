"""A producer of Kafka's Java clients in a chaos test, in a process of its own that reports what it does."""

import shutil
import subprocess
import sys
from pathlib import Path
from threading import Thread

from logbrook.model import TopicPartition
from logbrook.testing.history.events import Acknowledged, ProducerStarted, Sent, Unknown
from logbrook.testing.kill.load_client import TOPIC, LoadClient, LoadState
from logbrook.testing.kill.plan import ClientMissingError
from logbrook.testing.processes import ChildProcess
from logbrook.testing.reaper import Reaper

_SOURCE = Path(__file__).with_name("ChaosProducer.java")
_END_TIMEOUT_S = 60.0


class JavaClient(LoadClient):
    """One idempotent producer from start to end, since a JVM takes seconds to start. `classpath` has Kafka's clients.

    Raises ClientMissingError if there is no Java.
    """

    def __init__(self, state: LoadState, name: str, classpath: str, log_path: str, reaper: Reaper) -> None:
        super().__init__(state, name)
        if shutil.which("java") is None:
            raise ClientMissingError("Java")
        self._producer = f"{name}.1"
        self._process = ChildProcess(log_path, reaper)
        self._command = [
            *("java", "-cp", classpath, str(_SOURCE), state.address, TOPIC, str(len(state.partitions)), self._producer),
            *(str(state.pace.burst_max), str(int(state.pace.pause_s * 1000))),
        ]

    def run(self) -> None:
        self.state.recorder.record(ProducerStarted, self._producer, idempotent=True)
        process = self._process.launch(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        stopping = Thread(target=self._end_input, args=(process,), daemon=True)
        stopping.start()
        for line in process.stdout:
            self._record(line.decode().split(maxsplit=3))
        process.stdout.close()
        code = self._process.wait(_END_TIMEOUT_S)
        if code and not self.state.is_abandoned:
            self.state.problems.append(f"{self.name} ended with {code}: {self._process.log_tail()}")

    def _end_input(self, process: "subprocess.Popen[bytes]") -> None:
        """Tell the producer to flush and end."""
        self.stopping.wait()
        assert process.stdin is not None
        if self.state.is_abandoned:
            process.kill()
            return
        try:
            process.stdin.write(b"\n")
            process.stdin.close()
        except BrokenPipeError:
            sys.stderr.write(f"{self.name} has ended by itself\n")

    def _record(self, fields: list[str]) -> None:
        recorder = self.state.recorder
        match fields:
            case ["sent", partition, value]:
                recorder.record(Sent, self._producer, TopicPartition(TOPIC, int(partition)), value)
            case ["acknowledged", partition, value, offset]:
                place = TopicPartition(TOPIC, int(partition))
                recorder.record(Acknowledged, self._producer, place, int(offset), value)
                self.state.acknowledged += 1
            case ["unknown", partition, value, reason]:
                recorder.record(Unknown, self._producer, TopicPartition(TOPIC, int(partition)), value, reason)
