"""A run: one broker, a topic, copiers of it, and what is done to them until all of it is copied."""

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from time import monotonic

from logbrook.testing.copy import topics
from logbrook.testing.copy.copier_process import CopierProcess
from logbrook.testing.copy.harms import Harm, Harming, schedule
from logbrook.testing.copy.judge import Record, differences
from logbrook.testing.copy.plan import Outcome, Plan
from logbrook.testing.kill import clients
from logbrook.testing.kill.broker_process import BrokerProcess
from logbrook.testing.kill.clients import KafkaException
from logbrook.testing.kill.errors import BrokerFailedError
from logbrook.testing.kill.free_port import free_port
from logbrook.testing.kill.guardian import Guardian
from logbrook.testing.kill.waiting import pause, wait_until
from logbrook.testing.kill.workplace import workplace

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0
_INSIDE_TIMEOUT_S = 1.0
_STABLE_TIMEOUT_S = 40.0
_READ_TIMEOUT_S = 30.0


@dataclass
class Campaign:
    """`on_harm` is told of everything that is done."""

    plan: Plan
    on_harm: Callable[[Harm], None] = lambda _: None
    _problems: list[str] = field(default_factory=list)
    _harms: Counter[Harm] = field(default_factory=Counter)

    def run(self) -> Outcome:
        begun = monotonic()
        copies: dict[int, list[Record]] = {}
        found: list[str] = []
        every_record = 0
        with workplace("copy") as (directory, guardian):
            broker = BrokerProcess(
                os.path.join(directory, "data"),
                free_port(),
                os.path.join(directory, "broker.log"),
                self.plan.flags,
                guardian,
            )
            copiers = self._copiers(broker.address, os.path.join(directory, "copiers.log"), guardian)
            try:
                originals = self._begin(broker)
                self._copy(broker, copiers)
                self._end(broker, copiers)
                copies, every_record, found = self._judge(broker.address, originals)
                broker.stop(_STOP_TIMEOUT_S)
            except BrokerFailedError as error:
                self._problems.append(str(error))
            except (KafkaException, TimeoutError, subprocess.TimeoutExpired) as error:
                self._problems.append(f"{error!r}; the end of the broker's log:\n{broker.log_tail()}")
            finally:
                for copier in copiers:
                    copier.kill()
                broker.end()
        copied = sum(map(len, copies.values()))
        self._problems += [reason for copier in copiers for reason in copier.gave_up]
        seconds = monotonic() - begun
        return Outcome(self.plan, found, self._problems, self._harms, copied, every_record - copied, seconds)

    def _copiers(self, address: str, log_path: str, guardian: Guardian) -> list[CopierProcess]:
        flags = ["--address", address, "--group", topics.GROUP, "--source", topics.SOURCE, "--target", topics.TARGET]
        flags += ["--per-transaction", str(self.plan.per_transaction), *self.plan.copier_flags]
        return [CopierProcess(f"copier-{number}", flags, log_path, guardian) for number in range(self.plan.copiers)]

    def _begin(self, broker: BrokerProcess) -> dict[int, list[Record]]:
        broker.start()
        broker.wait_until_it_answers(_START_TIMEOUT_S)
        topics.create(broker.address, self.plan.partitions)
        return topics.write_originals(broker.address, self.plan.records, self.plan.partitions)

    def _copy(self, broker: BrokerProcess, copiers: list[CopierProcess]) -> None:
        deadline = monotonic() + self.plan.timeout_s
        for copier in copiers:
            copier.start()
        for harming in schedule(Random(f"{self.plan.seed}/harms"), self.plan.harms):
            wanted = harming.copied_share * self.plan.records
            self._wait(partial(_have_copied, copiers, wanted), broker, copiers, deadline)
            self._harm(harming, broker, copiers)
            self._harms[harming.harm] += 1
            self.on_harm(harming.harm)
        observer = clients.consumer(broker.address, topics.GROUP)
        try:
            self._wait(
                lambda: all(one.has_begun for one in copiers) and self._is_done(observer), broker, copiers, deadline
            )
        finally:
            observer.close()

    def _is_done(self, observer: clients.Consumer) -> bool:
        return sum(topics.committed(observer, self.plan.partitions).values()) >= self.plan.records

    def _wait(
        self, happened: Callable[[], bool], broker: BrokerProcess, copiers: list[CopierProcess], deadline: float
    ) -> None:
        """Raises BrokerFailedError if the broker ends by itself, TimeoutError if it takes too long."""

        def is_over() -> bool:
            for copier in copiers:
                copier.revive()
            return happened() or not broker.is_running

        if not wait_until(is_over, deadline - monotonic()):
            raise TimeoutError(f"{sum(one.copied for one in copiers):,} of {self.plan.records:,} records were copied")
        broker.check_running()

    def _harm(self, harming: Harming, broker: BrokerProcess, copiers: list[CopierProcess]) -> None:
        copier = copiers[harming.copier % len(copiers)]
        if harming.is_inside:
            wait_until(lambda: copier.is_inside, _INSIDE_TIMEOUT_S)
        else:
            pause(harming.delay_s)
        if harming.harm is Harm.BROKER_KILLED:
            broker.kill()
            broker.start()
            broker.wait_until_it_answers(_START_TIMEOUT_S)
        elif harming.harm is Harm.COPIER_KILLED:
            copier.kill()
            pause(harming.away_s)
            copier.start()
        else:
            copier.hold_up()
            pause(harming.away_s)
            copier.let_go_on()

    def _end(self, broker: BrokerProcess, copiers: list[CopierProcess]) -> None:
        """Raises TimeoutError if a transaction stays open after everybody has ended his."""
        for copier in copiers:
            code = copier.stop(_STOP_TIMEOUT_S)
            if code:
                self._problems.append(f"{copier.name} was asked to stop and ended with {code}")
        address, partitions = broker.address, self.plan.partitions
        if not wait_until(lambda: not topics.has_open_transactions(address, partitions), _STABLE_TIMEOUT_S):
            raise TimeoutError("a transaction is open that nobody is left to end")

    def _judge(
        self, address: str, originals: dict[int, list[Record]]
    ) -> tuple[dict[int, list[Record]], int, list[str]]:
        copies = topics.read_copies(address, self.plan.partitions, "read_committed", _READ_TIMEOUT_S)
        everything = topics.read_copies(address, self.plan.partitions, "read_uncommitted", _READ_TIMEOUT_S)
        observer = clients.consumer(address, topics.GROUP)
        try:
            committed = topics.committed(observer, self.plan.partitions)
        finally:
            observer.close()
        return copies, sum(map(len, everything.values())), differences(originals, copies, committed)


def _have_copied(copiers: list[CopierProcess], records: float) -> bool:
    return sum(one.copied for one in copiers) >= records
