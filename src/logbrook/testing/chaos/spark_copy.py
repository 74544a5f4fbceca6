"""A streaming query of Spark in a chaos test: it copies the topic, and must neither fail, lose nor repeat a record."""

import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from logbrook.model import TopicPartition
from logbrook.testing.copy.topics import read_topic
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import NewTopic
from logbrook.testing.kill.load_client import TOPIC, LoadState, value_of
from logbrook.testing.kill.plan import ClientMissingError
from logbrook.testing.processes import ChildProcess
from logbrook.testing.reaper import Reaper

COPY = "copied"
_SCRIPT = Path(__file__).with_name("spark_query.py")
_END_TIMEOUT_S = 300.0
_READ_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 10.0
_SHOWN_MAX = 5


class SparkCopy:
    """The process of the query. Raises ClientMissingError without Spark."""

    def __init__(self, state: LoadState, directory: Path, reaper: Reaper) -> None:
        if find_spec("pyspark") is None:
            raise ClientMissingError("Spark")
        self._state = state
        self._directory = directory
        self._driver = ChildProcess(str(directory / "spark.log"), reaper)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, replicas: int) -> None:
        """Create the target, start the query, and wait until it copies. Raises KafkaException or TimeoutError."""
        topic = NewTopic(COPY, len(self._state.partitions), replicas)
        # The result fails if the client is freed before it arrives.
        admin = clients.admin_client(self._state.address)
        admin.create_topics([topic])[COPY].result(_ANSWER_TIMEOUT_S)
        files = self._directory / "spark"
        files.mkdir()
        command = [sys.executable, str(_SCRIPT), self._state.address, TOPIC, COPY, str(files)]
        environment = os.environ | {"TMPDIR": str(files)}
        self._process = self._driver.launch(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def check_running(self) -> None:
        """Report a query that has ended as a problem."""
        if not self._driver.is_running:
            self._state.problems.append(f"the query of Spark has ended: {self._driver.log_tail()}")

    def finish(self) -> None:
        """Let the query copy the rest, and compare the copy. Differences and failures are problems."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            code = self._driver.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._state.problems.append(f"the query of Spark did not end: {self._driver.log_tail()}")
            return
        finally:
            self._process.stdout.close()
        if code:
            self._state.problems.append(f"the query of Spark ended with {code}: {self._driver.log_tail()}")
        originals, copies = self._read(TOPIC), self._read(COPY)
        for partition, expected in originals.items():
            self._state.problems += copy_problems(partition, expected, copies.get(partition, []))

    def end(self) -> None:
        self._driver.end()

    def _read(self, topic: str) -> dict[TopicPartition, list[str]]:
        records = read_topic(
            self._state.address, topic, len(self._state.partitions), self._state.isolation, _READ_TIMEOUT_S
        )
        return {
            TopicPartition(TOPIC, number): [value_of(value) for _, value in values]
            for number, values in records.items()
        }


def copy_problems(partition: TopicPartition, expected: list[str], copied: list[str]) -> list[str]:
    """Return how a copy differs from the original: values that are missing, repeated or in another order."""
    originals, copies = Counter(expected), Counter(copied)
    problems = []
    if missing := list((originals - copies).elements()):
        problems.append(f"{partition}: Spark did not copy {len(missing)} values, such as {missing[:_SHOWN_MAX]}")
    if repeated := list((copies - originals).elements()):
        problems.append(f"{partition}: Spark copied {len(repeated)} values twice, such as {repeated[:_SHOWN_MAX]}")
    if not problems and expected != copied:
        problems.append(f"{partition}: Spark's copy has another order")
    return problems
