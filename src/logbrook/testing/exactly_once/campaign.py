"""Kills a query and its workers at random, lets it end, and compares what it wrote with what it read.

In each round there is more input, and the driver is started from its checkpoint. Workers are killed under it, or die
where they are told to; a task that fails is tried again by Spark. Then the driver is killed with its JVM, and
the next round begins. Its workers may outlive it for a moment, as they would on other machines.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from signal import SIGKILL
from tempfile import TemporaryDirectory
from threading import Event
from time import monotonic
from typing import Any, NamedTuple

import confluent_kafka

from logbrook.client import Client, TransactionalProducer
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.broker import Broker
from logbrook.testing.exactly_once.driver import INPUT, OUTPUT, RECORDS_PER_BATCH
from logbrook.testing.exactly_once.java import QUICK_JAVA
from logbrook.testing.exactly_once.scene import VARIABLE, Scene, Step, Writing
from logbrook.testing.kill.guardian import Guardian

PARTITIONS = 2
DRIVER = "the driver"
WORKER = "a worker"
# Of each driver, in any order.
_WORKER_KILLS = (WORKER, *Step, WORKER)
# Two tasks write each batch, and a kill takes a few of them.
_BATCHES_PER_ROUND = 10
_WRITES_MAX = 3
_RECORDS_PER_TRANSACTION = 7
_DELAY_S_MAX = 0.05
_STEP_S = 0.02
_STUCK_S = 300.0


class Plan(NamedTuple):
    kills: int
    seed: int = 0


@dataclass
class Outcome:
    """What was killed, and in which partition what was found that should not be, or not found that should."""

    plan: Plan
    kills: Counter[str] = field(default_factory=Counter)
    records: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        kinds = ", ".join(f"{number} of {kind}" for kind, number in sorted(self.kills.items()))
        lines = [
            f"seed {self.plan.seed}: {self.kills.total()} kills ({kinds}); "
            f"{self.records:,} records {'arrived exactly once' if self.is_good else 'did not arrive exactly once'}"
        ]
        return "\n".join([*lines, *self.findings])


class StuckError(Exception):
    """The query did not get on."""


class Campaign:
    """A broker, a scene, and one query. A context, at whose end nothing of it is left."""

    def __init__(self, plan: Plan, told: Callable[[str], None] = lambda _kind: None) -> None:
        self.plan = plan
        self.outcome = Outcome(plan)
        self._told = told
        self._random = Random(plan.seed)
        # In each partition of the input, and committed.
        self.records_written = 0
        self._never = Event()
        self._directory = TemporaryDirectory(prefix="logbrook-once-")
        self._guardian = Guardian()
        self.broker = Broker({INPUT: PARTITIONS, OUTPUT: PARTITIONS})
        self.scene = Scene(Path(self._directory.name))

    def __enter__(self) -> "Campaign":
        self._guardian.watch_directory(self._directory.name)
        self.broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.stop()
        self._guardian.close()
        with suppress(FileNotFoundError):
            self._directory.cleanup()

    def kill_all(self) -> None:
        """Round by round until there were as many kills as planned. What is left of the input is still to be copied."""
        while self.outcome.kills.total() < self.plan.kills:
            self.write_input()
            self.run_driver(is_killed=True)

    def write_input(self) -> None:
        """Transactions in both partitions, of which every third is aborted."""
        with Client(self.broker.bootstrap_servers) as client, TransactionalProducer(client, "input") as producer:
            end = self.records_written + _BATCHES_PER_ROUND * RECORDS_PER_BATCH // PARTITIONS
            number = 0
            while self.records_written < end:
                producer.begin()
                first = self.records_written
                values = [b"%d" % one for one in range(first, first + _RECORDS_PER_TRANSACTION)]
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
        """Until it ends, or until it was killed after some of its workers. Raises StuckError."""
        command = [sys.executable, "-m", "logbrook.testing.exactly_once.driver"]
        command += [self.broker.bootstrap_servers, str(self.scene.directory)]
        with TemporaryDirectory(prefix="logbrook-spark-") as temporary, open(self.scene.log, "ab") as log:
            self._guardian.watch_directory(temporary)
            # Spark has a JVM of its own find out how to start it.
            environment = {"JDK_JAVA_OPTIONS": " ".join(QUICK_JAVA)} | os.environ
            environment |= {"TMPDIR": temporary, VARIABLE: str(self.scene.directory)}
            driver = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            self._guardian.watch_group(driver.pid)
            try:
                if is_killed:
                    self._kill(driver)
                elif self._wait(driver, lambda: False) and driver.returncode:
                    self.outcome.findings.append(f"the query failed: {self.scene.log.read_text()[-4000:]}")
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(driver.pid, SIGKILL)
                driver.wait()
                self._guardian.forget_group(driver.pid)
                self.scene.withdraw_orders()
                self._wait_for_workers()

    def compare(self) -> Outcome:
        """What a reader of committed records finds, against what was committed."""
        expected = list(range(self.records_written))
        self.outcome.records = 0
        for partition in range(PARTITIONS):
            found = self._read(partition)
            self.outcome.records += len(found)
            if found == expected:
                continue
            counts = Counter(found)
            lost = [value for value in expected if value not in counts]
            doubled = sorted(value for value, count in counts.items() if count > 1)
            self.outcome.findings.append(
                f"partition {partition}: of {len(expected)} records {len(lost)} are lost {lost[:10]}, "
                f"{len(doubled)} are there more than once {doubled[:10]}, {len(found)} in all"
                f"{'' if found == sorted(found) else ', and not in order'}"
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

    def _kill(self, driver: "subprocess.Popen[bytes]") -> None:
        for kind in self._random.sample(_WORKER_KILLS, len(_WORKER_KILLS)):
            if self.outcome.kills.total() + 1 >= self.plan.kills:
                break
            killed = self._kill_worker(driver) if kind == WORKER else self._kill_at(driver, Step(kind))
            if killed:
                self._count(kind)
        if self._wait_for_writing(driver) is not None:
            os.killpg(driver.pid, SIGKILL)
            self._count(DRIVER)

    def _count(self, kind: str) -> None:
        self.outcome.kills[kind] += 1
        self._told(kind)

    def _kill_worker(self, driver: "subprocess.Popen[bytes]") -> bool:
        writing = self._wait_for_writing(driver)
        if writing is None:
            return False
        try:
            os.kill(writing.pid, SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _kill_at(self, driver: "subprocess.Popen[bytes]", step: Step) -> bool:
        self.scene.order(step)
        self._wait(driver, lambda: self.scene.has_been_obeyed(step))
        return self.scene.has_been_obeyed(step)

    def _wait_for_writing(self, driver: "subprocess.Popen[bytes]") -> Writing | None:
        """The task that has begun to write last, a few tasks and a moment from now; None if the query ends before."""
        enough = len(self.scene.begun()) + self._random.randint(1, _WRITES_MAX)
        if self._wait(driver, lambda: len(self.scene.begun()) >= enough):
            return None
        self._never.wait(self._random.random() * _DELAY_S_MAX)
        return self.scene.begun()[-1]

    def _wait(self, driver: "subprocess.Popen[bytes]", happened: Callable[[], bool]) -> bool:
        """Whether the query has ended first. Raises StuckError."""
        give_up_at = monotonic() + _STUCK_S
        while not happened():
            if driver.poll() is not None:
                return True
            if monotonic() >= give_up_at:
                raise StuckError(f"nothing has happened for {_STUCK_S:g} s: {self.scene.log.read_text()[-4000:]}")
            self._never.wait(_STEP_S)
        return False

    def _wait_for_workers(self) -> None:
        """They end by themselves when they notice that the JVM is gone."""
        give_up_at = monotonic() + _STUCK_S
        for pid in {writing.pid for writing in self.scene.begun()}:
            while _is_running(pid):
                if monotonic() >= give_up_at:
                    raise StuckError(f"worker {pid} has outlived its driver")
                self._never.wait(_STEP_S)

    def _read(self, partition: int) -> list[int]:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.broker.bootstrap_servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition(OUTPUT, partition, 0)])
        found: list[int] = []
        while True:
            message = consumer.poll(_STUCK_S)
            if message is None:
                raise StuckError("the output cannot be read")
            if message.error():
                consumer.close()
                return found
            found.append(int(message.value() or b""))


def _is_running(pid: int) -> bool:
    """Not when it has ended and waits to be buried by whoever is its parent now."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:
        # The number belongs to somebody else by now.
        return False
    return state != "Z"
