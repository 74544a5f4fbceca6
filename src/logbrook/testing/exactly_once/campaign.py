"""Kills a streaming query and its workers at random, lets it finish, and compares its output with its input.

Each round writes more input and restarts the driver from its checkpoint. Workers are killed, or kill themselves at
ordered points, and Spark retries the failed tasks. Then the driver is killed with its JVM. Its workers may outlive it
for a moment, as they would on other machines.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from signal import SIGKILL
from tempfile import TemporaryDirectory
from typing import NamedTuple

from logbrook.client import Client, TransactionalProducer
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.copy.topics import read_topic
from logbrook.testing.exactly_once.campaign_broker import BrokerFactory, BrokerInProcess, create_topics
from logbrook.testing.exactly_once.control_files import VARIABLE, ControlFiles, KillPoint, TaskWrite
from logbrook.testing.exactly_once.driver import INPUT, OUTPUT, QUICK_JAVA, RECORDS_PER_BATCH
from logbrook.testing.processes import ChildProcess, pause, wait_until
from logbrook.testing.reaper import Reaper

PARTITIONS = 2
DRIVER = "the driver"
WORKER = "a worker"
# The worker kills of each driver, in random order.
_WORKER_KILLS = (WORKER, *KillPoint, WORKER)
# Two tasks write each batch, and a kill waits for a few writes.
_BATCHES_PER_ROUND = 10
_WRITES_MAX = 3
_RECORDS_PER_TRANSACTION = 7
_DELAY_S_MAX = 0.05
_STEP_S = 0.02
_STUCK_S = 300.0


class ExactlyOncePlan(NamedTuple):
    kills: int
    seed: int = 0


@dataclass
class ExactlyOnceOutcome:
    """The kills of a campaign and the differences between output and input."""

    plan: ExactlyOncePlan
    kills: Counter[str] = field(default_factory=Counter)
    records: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        kinds = ", ".join(f"{number} of {kind}" for kind, number in sorted(self.kills.items()))
        lines = [
            f"seed {self.plan.seed}: {self.kills.total()} kills ({kinds}); "
            f"{self.records:,} records {'arrived exactly once' if self.is_good else 'did not arrive exactly once'}"
        ]
        return "\n".join([*lines, *self.differences])


class StuckError(Exception):
    """The query made no progress in time."""


class ExactlyOnceCampaign:
    """A broker and one query. Leaving its context removes everything it created."""

    def __init__(
        self,
        plan: ExactlyOncePlan,
        on_kill: Callable[[str], None] = lambda _kind: None,
        broker: BrokerFactory = BrokerInProcess,
    ) -> None:
        self.plan = plan
        self.outcome = ExactlyOnceOutcome(plan)
        self._on_kill = on_kill
        self._random = Random(plan.seed)
        # Committed records in each partition of the input.
        self.records_written = 0
        self._directory = TemporaryDirectory(prefix="logbrook-once-")
        self._reaper = Reaper()
        broker_directory = Path(self._directory.name) / "broker"
        broker_directory.mkdir()
        self.broker = broker(broker_directory, self._reaper)
        self.control = ControlFiles(Path(self._directory.name))
        self._driver = ChildProcess(str(self.control.log), self._reaper)

    def __enter__(self) -> "ExactlyOnceCampaign":
        self._reaper.watch_directory(self._directory.name)
        try:
            self.broker.start()
            create_topics(self.broker.bootstrap_servers, dict.fromkeys((INPUT, OUTPUT), PARTITIONS))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.kill()
        self._reaper.close()
        with suppress(FileNotFoundError):
            self._directory.cleanup()

    def kill_all(self) -> None:
        """Run rounds until the planned number of kills is reached. The rest of the input is not copied yet."""
        while self.outcome.kills.total() < self.plan.kills:
            self.write_input()
            self.run_driver(is_killed=True)

    def write_input(self) -> None:
        """Write transactions to both partitions; every third is aborted."""
        with Client(self.broker.bootstrap_servers) as client, TransactionalProducer(client, "input") as producer:
            end = self.records_written + _BATCHES_PER_ROUND * RECORDS_PER_BATCH // PARTITIONS
            number = 0
            while self.records_written < end:
                producer.begin()
                first = self.records_written
                values = [b"%d" % value for value in range(first, first + _RECORDS_PER_TRANSACTION)]
                for partition in range(PARTITIONS):
                    self._produce(producer, partition, values)
                number += 1
                if number % 3 == 0:
                    producer.flush()
                    producer.abort()
                    continue
                producer.commit()
                self.records_written += _RECORDS_PER_TRANSACTION

    def run_driver(self, *, is_killed: bool) -> None:
        """Run the query to its end, or until it and some of its workers were killed. Raises StuckError."""
        command = [sys.executable, "-m", "logbrook.testing.exactly_once.driver"]
        command += [self.broker.bootstrap_servers, str(self.control.directory)]
        with TemporaryDirectory(prefix="logbrook-spark-") as temporary:
            self._reaper.watch_directory(temporary)
            # Spark starts a separate JVM to build its launch command.
            environment = {"JDK_JAVA_OPTIONS": " ".join(QUICK_JAVA)} | os.environ
            environment |= {"TMPDIR": temporary, VARIABLE: str(self.control.directory)}
            self._driver.launch(command, env=environment)
            try:
                if is_killed:
                    self._kill()
                elif self._wait(lambda: False) and self._driver.exit_code:
                    self.outcome.differences.append(f"the query failed: {self._driver.log_tail()}")
            finally:
                self._driver.end()
                self.control.withdraw_orders()
                self._wait_for_workers()

    def compare(self) -> ExactlyOnceOutcome:
        """Compare the output as a read_committed consumer sees it with the committed input."""
        expected = list(range(self.records_written))
        self.outcome.records = 0
        output = read_topic(self.broker.bootstrap_servers, OUTPUT, PARTITIONS, "read_committed", _STUCK_S)
        for partition in range(PARTITIONS):
            values = [int(value) for _, value in output.get(partition, ())]
            self.outcome.records += len(values)
            if values == expected:
                continue
            counts = Counter(values)
            lost = [value for value in expected if value not in counts]
            repeated = sorted(value for value, count in counts.items() if count > 1)
            self.outcome.differences.append(
                f"partition {partition}: of {len(expected)} records {len(lost)} are lost {lost[:10]}, "
                f"{len(repeated)} are there more than once {repeated[:10]}, {len(values)} in all"
                f"{'' if values == sorted(values) else ', and not in order'}"
            )
        return self.outcome

    def _produce(self, producer: TransactionalProducer, partition: int, values: list[bytes]) -> None:
        batch = build_batch(
            [Record(key=value, value=value) for value in values],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=producer.next_sequence(INPUT, partition),
            transactional=True,
        )
        producer.send(INPUT, partition, batch)

    def _kill(self) -> None:
        for kind in self._random.sample(_WORKER_KILLS, len(_WORKER_KILLS)):
            if self.outcome.kills.total() + 1 >= self.plan.kills:
                break
            killed = self._kill_worker() if kind == WORKER else self._kill_at(KillPoint(kind))
            if killed:
                self._count(kind)
        if self._wait_for_write() is not None:
            self._driver.signal(SIGKILL)
            self._count(DRIVER)

    def _count(self, kind: str) -> None:
        self.outcome.kills[kind] += 1
        self._on_kill(kind)

    def _kill_worker(self) -> bool:
        write = self._wait_for_write()
        if write is None:
            return False
        try:
            os.kill(write.pid, SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _kill_at(self, point: KillPoint) -> bool:
        self.control.order(point)
        self._wait(lambda: self.control.is_carried_out(point))
        return self.control.is_carried_out(point)

    def _wait_for_write(self) -> TaskWrite | None:
        """Wait for a few more writes and a short delay; return the latest, or None if the query ends first."""
        enough = len(self.control.writes()) + self._random.randint(1, _WRITES_MAX)
        if self._wait(lambda: len(self.control.writes()) >= enough):
            return None
        pause(self._random.random() * _DELAY_S_MAX)
        return self.control.writes()[-1]

    def _wait(self, condition: Callable[[], bool]) -> bool:
        """Wait for the condition. Returns True if the query ended first. Raises StuckError."""
        if not wait_until(lambda: condition() or not self._driver.is_running, _STUCK_S, _STEP_S):
            raise StuckError(f"no progress for {_STUCK_S:g} s: {self._driver.log_tail()}")
        return not condition()

    def _wait_for_workers(self) -> None:
        """Wait for the workers, which exit when they notice that the JVM is gone."""
        pids = {write.pid for write in self.control.writes()}
        if not wait_until(lambda: not any(map(_is_running, pids)), _STUCK_S, _STEP_S):
            raise StuckError("a worker has outlived its driver")


def _is_running(pid: int) -> bool:
    """True if the process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:
        # The pid was reused by another user's process.
        return False
    return state != "Z"
