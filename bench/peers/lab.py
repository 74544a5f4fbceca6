"""The test bed of a measurement: installed systems, worker processes, a data directory, and the amount of work."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

from bench.peers.load import RETRY_S, WAIT_S_MAX, Job, LoadError, Spent
from bench.peers.results import Row, Samples, State
from bench.peers.steady import Run, SteadyLine, SteadyRule, run_in_turns
from bench.peers.system import Promise, Server, System, Variant
from bench.peers.workers import Workers, load_named

# Measurements of rounds that only systems with Kafka's protocol have.
KAFKA_ONLY = frozenset({"rebalance", "endurance", "compaction", "cluster_operations", "cluster_failover"})
_PRIME_BYTES = 6_000
_QUIET_S = 0.5
_QUIET_SHARE = 0.1


class OutOfTimeError(Exception):
    """The time given by `--minutes` is used up."""


@dataclass(frozen=True)
class Amounts:
    """The amount of work of a run; `--quick` uses `QUICK`."""

    rule: SteadyRule = field(default_factory=SteadyRule)
    # Rounds of what has no steady state: starts, restarts, rebalances.
    rounds: int = 5
    # Longest load on each server before the first line, all systems alike.
    warm_up_s: float = 120.0
    log_gb: float = 10.0
    memory_bytes: int = 256_000_000
    # Time for which memory is observed.
    endurance_s: float = 3600.0
    compacted_bytes: int = 100_000_000
    # The bytes that a node of a cluster misses, and the rounds of measurements that take minutes.
    missed_bytes: int = 5_000_000_000
    long_rounds: int = 3
    failovers: int = 5

    @property
    def is_quick(self) -> bool:
        return self.rule.is_quick


QUICK = Amounts(
    rule=SteadyRule(run_s=0.4, runs=1, seconds_max=0.8),
    rounds=2,
    warm_up_s=2.0,
    log_gb=0.5,
    memory_bytes=64_000_000,
    endurance_s=12.0,
    compacted_bytes=10_000_000,
    missed_bytes=100_000_000,
    long_rounds=1,
    failovers=1,
)


@dataclass
class Running:
    """A server and the workers that load it."""

    system: System
    variant: Variant
    server: Server
    workers: Workers
    # The server's directory, with its data below `data`.
    directory: Path
    of: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.of = (self.system.name, self.variant.promise.value)

    def job(self, topic: str, **fields: Any) -> Job:
        return Job(self.server.address, topic, settings=dict(self.variant.topic_settings), **fields)

    def call(self, verb: str, job: Job) -> Any:
        return self.workers.call(self.system.load, verb, job)

    def spend(self, verb: str, job: Job, processes: int = 1) -> tuple[Spent, float]:
        """Run the load in `processes` workers; return its time and cost, and the server's CPU time meanwhile."""
        share = -(-job.count // processes)
        before = self.server.cpu_s()
        spent = self.workers.spend(self.system.load, verb, [replace(job, count=share)] * processes)
        return spent, self.server.cpu_s() - before


class Lab:
    """The systems and the amount of work of a run.

    `measured` are lines to be left out (`--resume`), `cases` the only steady lines to be measured (all if it is empty),
    and `minutes` the time after which no line is begun.
    """

    def __init__(
        self,
        systems: list[System],
        amounts: Amounts,
        promises: list[Promise],
        data: Path,
        workers: Workers,
        *,
        measured: Collection[tuple[str, str, str, str]] = (),
        cases: Collection[str] = (),
        minutes: float | None = None,
    ) -> None:
        self.systems = systems
        self.promises = promises
        self.amounts = amounts
        self.workers = workers
        self._measured = set(measured)
        self._cases = set(cases)
        self._minutes = minutes
        # Measurements that have failed.
        self.failed: list[str] = []
        self._data = data
        self._names = count()
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print progress to standard error."""
        took = time.monotonic() - self._started
        print(f"[{int(took) // 60:3d}:{int(took) % 60:02d}] {text}", file=sys.stderr, flush=True)

    def fail(self, measurement: str, error: Exception) -> None:
        self.failed.append(measurement)
        self.say(f"{measurement} failed: {error}")

    def steady(
        self,
        measurement: str,
        what: str,
        run_of: Mapping[tuple[str, str], Callable[[], Run]],
        run_s: float | None = None,
    ) -> list[Row]:
        """Measure a case until it is steady for every system. Raises OutOfTimeError."""
        if self._cases and what not in self._cases:
            return []
        if self.is_measured(measurement, what, run_of):
            self.say(f"{measurement}: {what} is measured already")
            return []
        self.check_time()
        self.say(f"{measurement}: {what}")
        rule = self.amounts.rule if run_s is None else self.amounts.rule.with_run(run_s)
        lines = run_in_turns(rule, run_of, self._say_line)
        return [row for line in lines for row in line.rows(measurement, what)]

    def _say_line(self, line: SteadyLine) -> None:
        self.say(f"  {line.of[0]}: {line.state} after {len(line.runs)} runs")
        for metric in line.deciding:
            self.say(f"    {metric}: {', '.join(f'{value:.3g}' for value in line.values(metric))}")

    def is_measured(self, measurement: str, what: str, systems: Collection[tuple[str, str]]) -> bool:
        return bool(systems) and all((measurement, what, *of) in self._measured for of in systems)

    def is_measured_by_all(self, measurement: str) -> bool:
        """True if a measurement of rounds has rows of every system that can have them."""
        names = {system.name for system in self.systems if system.load == "kafka" or measurement not in KAFKA_ONLY}
        return names <= {line[2] for line in self._measured if line[0] == measurement}

    def check_time(self) -> None:
        """Raises OutOfTimeError."""
        if self._minutes is not None and time.monotonic() - self._started > 60 * self._minutes:
            raise OutOfTimeError(f"the {self._minutes:g} minutes are used up")

    def samples(self, measurement: str) -> Samples:
        """Return samples of rounds, for what has no steady state."""
        return Samples(measurement, State.QUICK if self.amounts.is_quick else State.ROUNDS)

    def rounds(self, text: str) -> Iterator[int]:
        """Yield round numbers."""
        self.say(text)
        yield from range(self.amounts.rounds)

    def topic(self) -> str:
        """Return a topic name that was not used before."""
        return f"bench-{next(self._names)}"

    @contextmanager
    def directory(self) -> Iterator[Path]:
        path = Path(tempfile.mkdtemp(dir=self._data))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def idle(self, system: System, variant: Variant) -> Iterator[Running]:
        """Yield a server that is not launched yet, and kill it at the end."""
        with self.directory() as directory:
            running = Running(system, variant, system.server(variant, directory), self.workers, directory)
            try:
                yield running
            finally:
                running.server.kill()

    @contextmanager
    def serving(self, pick: Callable[[System], Variant | None]) -> Iterator[list[Running]]:
        """Run one server of each system that has the picked variant, all at once; they take turns within a round."""
        with ExitStack() as stack:
            servers = []
            for system in self.systems:
                variant = pick(system)
                if variant is None:
                    continue
                self.say(f"starting {system.name} ({variant.settings.replace('`', '')})")
                running = stack.enter_context(self.idle(system, variant))
                running.server.launch()
                self.first_ack(running)
                servers.append(running)
            yield servers

    def first_ack(self, running: Running) -> Job:
        """Wait for a starting server, create a topic, and wait until one message is acknowledged."""
        job = running.job("bench-first")
        _wait_for_answer(running, job)
        running.call("create", job)
        running.call("wait_for_ack", job)
        return job

    def prime(self, running: Running, job: Job) -> tuple[int, float]:
        """Send the first messages to each partition of a new topic; return their number and duration.

        They can cost far more than later ones, which would dominate a short run: Kafka spends system time once per
        topic when its partitions pass 4 KiB. That work is done with the batch after the first 4 KiB, so messages are
        sent in two runs.
        """
        count = -(-_PRIME_BYTES // job.size) * job.partitions
        runs = [running.spend("produce", replace(job, count=count))[0] for _ in range(2)]
        return sum(run.messages for run in runs), sum(run.ended_s - run.started_s for run in runs)

    def settle(self, running: Running, share: float = _QUIET_SHARE) -> None:
        """Wait until the server is idle: some servers create and delete topics after they have answered.

        An idle server uses less than `share` of a core.
        """
        until = time.monotonic() + WAIT_S_MAX
        pause = Event()
        while time.monotonic() < until:
            before = running.server.cpu_s()
            pause.wait(_QUIET_S)
            if running.server.cpu_s() - before < share * _QUIET_S:
                return
        raise LoadError(f"{running.system.name} does not become idle within {WAIT_S_MAX:.0f} s")

    @contextmanager
    def created(self, running: Running, job: Job) -> Iterator[Job]:
        running.call("create", job)
        yield job
        running.call("delete", job)


def promised(promise: Promise) -> Callable[[System], Variant | None]:
    return lambda system: system.variants().get(promise)


def by_default(system: System) -> Variant:
    return system.default()


def load_processes(system: System) -> int:
    """Return the number of load processes: more than the system needs if there are spare cores."""
    return max(system.load_processes, min(4, (os.cpu_count() or 2) // 2))


def _wait_for_answer(running: Running, job: Job) -> None:
    load = load_named(running.system.load)
    until = time.monotonic() + WAIT_S_MAX
    pause = Event()
    while True:
        try:
            load.connect_and_ping(job).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise LoadError(f"{running.system.name} does not answer: {error}") from error
        pause.wait(RETRY_S)
