"""A run of the copy test: one broker, a topic, its copiers, and faults until everything is copied."""

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from time import monotonic

from logbrook.testing.copy import topics
from logbrook.testing.copy.comparison import Record, differences
from logbrook.testing.copy.copier_process import CopierProcess
from logbrook.testing.copy.plan import CopyOutcome, CopyPlan, Fault, ScheduledFault, schedule
from logbrook.testing.kill import clients
from logbrook.testing.kill.broker_process import BrokerFailedError, BrokerProcess
from logbrook.testing.kill.clients import KafkaException
from logbrook.testing.processes import free_port, pause, wait_until, working_directory
from logbrook.testing.reaper import Reaper

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0
_IN_TRANSACTION_TIMEOUT_S = 1.0
_STABLE_TIMEOUT_S = 40.0
_READ_TIMEOUT_S = 30.0


@dataclass
class CopyCampaign:
    """Runs a plan. `on_fault` is called after every fault."""

    plan: CopyPlan
    on_fault: Callable[[Fault], None] = lambda _: None
    _problems: list[str] = field(default_factory=list)
    _faults: Counter[Fault] = field(default_factory=Counter)

    def run(self) -> CopyOutcome:
        begun = monotonic()
        copies: dict[int, list[Record]] = {}
        different: list[str] = []
        written_count = 0
        with working_directory("copy") as (directory, reaper):
            broker = BrokerProcess(
                os.path.join(directory, "data"),
                free_port(),
                os.path.join(directory, "broker.log"),
                self.plan.flags,
                reaper,
            )
            copiers = self._copiers(broker.address, os.path.join(directory, "copiers.log"), reaper)
            try:
                originals = self._begin(broker)
                self._copy(broker, copiers)
                self._end(broker, copiers)
                copies, written_count, different = self._compare(broker.address, originals)
                broker.stop(_STOP_TIMEOUT_S)
            except BrokerFailedError as error:
                self._problems.append(str(error))
            except (KafkaException, TimeoutError, subprocess.TimeoutExpired) as error:
                self._problems.append(f"{error!r}; the end of the broker's log:\n{broker.log_tail()}")
            finally:
                for copier in copiers:
                    copier.end()
                broker.end()
        copied = sum(map(len, copies.values()))
        self._problems += [reason for copier in copiers for reason in copier.gave_up]
        seconds = monotonic() - begun
        return CopyOutcome(self.plan, different, self._problems, self._faults, copied, written_count - copied, seconds)

    def _copiers(self, address: str, log_path: str, reaper: Reaper) -> list[CopierProcess]:
        flags = ["--address", address, "--group", topics.GROUP, "--source", topics.SOURCE, "--target", topics.TARGET]
        flags += ["--per-transaction", str(self.plan.per_transaction), *self.plan.copier_flags]
        return [CopierProcess(f"copier-{number}", flags, log_path, reaper) for number in range(self.plan.copiers)]

    def _begin(self, broker: BrokerProcess) -> dict[int, list[Record]]:
        broker.start()
        broker.wait_until_ready(_START_TIMEOUT_S)
        topics.create(broker.address, self.plan.partitions)
        return topics.write_originals(broker.address, self.plan.records, self.plan.partitions)

    def _copy(self, broker: BrokerProcess, copiers: list[CopierProcess]) -> None:
        deadline = monotonic() + self.plan.timeout_s
        for copier in copiers:
            copier.start()
        for scheduled in schedule(Random(f"{self.plan.seed}/harms"), self.plan.faults):
            records = scheduled.copied_share * self.plan.records
            self._wait(partial(_have_copied, copiers, records), broker, copiers, deadline)
            self._inject(scheduled, broker, copiers)
            self._faults[scheduled.fault] += 1
            self.on_fault(scheduled.fault)
        observer = clients.consumer(broker.address, topics.GROUP)
        try:
            self._wait(
                lambda: all(copier.has_begun for copier in copiers) and self._is_done(observer),
                broker,
                copiers,
                deadline,
            )
        finally:
            observer.close()

    def _is_done(self, observer: clients.Consumer) -> bool:
        return sum(topics.committed(observer, self.plan.partitions).values()) >= self.plan.records

    def _wait(
        self, condition: Callable[[], bool], broker: BrokerProcess, copiers: list[CopierProcess], deadline: float
    ) -> None:
        """Wait for the condition. Raises BrokerFailedError if the broker exits, TimeoutError if it takes too long."""

        def is_over() -> bool:
            for copier in copiers:
                copier.revive()
            return condition() or not broker.is_running

        if not wait_until(is_over, deadline - monotonic()):
            copied = sum(copier.copied for copier in copiers)
            raise TimeoutError(f"{copied:,} of {self.plan.records:,} records were copied")
        broker.check_running()

    def _inject(self, scheduled: ScheduledFault, broker: BrokerProcess, copiers: list[CopierProcess]) -> None:
        copier = copiers[scheduled.copier % len(copiers)]
        if scheduled.is_in_transaction:
            wait_until(lambda: copier.is_in_transaction, _IN_TRANSACTION_TIMEOUT_S)
        else:
            pause(scheduled.delay_s)
        if scheduled.fault is Fault.BROKER_KILLED:
            broker.kill()
            broker.start()
            broker.wait_until_ready(_START_TIMEOUT_S)
        elif scheduled.fault is Fault.COPIER_KILLED:
            copier.end()
            pause(scheduled.away_s)
            copier.start()
        else:
            copier.pause()
            pause(scheduled.away_s)
            copier.resume()

    def _end(self, broker: BrokerProcess, copiers: list[CopierProcess]) -> None:
        """Stop the copiers. Raises TimeoutError if a transaction stays open."""
        for copier in copiers:
            code = copier.stop(_STOP_TIMEOUT_S)
            if code:
                self._problems.append(f"{copier.name} exited with {code} on SIGTERM")
        address, partitions = broker.address, self.plan.partitions
        if not wait_until(lambda: not topics.has_open_transactions(address, partitions), _STABLE_TIMEOUT_S):
            raise TimeoutError("a transaction is still open after all copiers have stopped")

    def _compare(
        self, address: str, originals: dict[int, list[Record]]
    ) -> tuple[dict[int, list[Record]], int, list[str]]:
        target = (address, topics.TARGET, self.plan.partitions)
        copies = topics.read_topic(*target, "read_committed", _READ_TIMEOUT_S)
        everything = topics.read_topic(*target, "read_uncommitted", _READ_TIMEOUT_S)
        observer = clients.consumer(address, topics.GROUP)
        try:
            committed = topics.committed(observer, self.plan.partitions)
        finally:
            observer.close()
        return copies, sum(map(len, everything.values())), differences(originals, copies, committed)


def _have_copied(copiers: list[CopierProcess], records: float) -> bool:
    return sum(copier.copied for copier in copiers) >= records
