"""The test bed of a measurement: installed systems, worker processes, a data directory, and the amount of work."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

from bench.peers.load import RETRY_S, WAIT_S_MAX, Job, LoadError, Spent
from bench.peers.results import Samples
from bench.peers.system import Promise, Server, System, Variant
from bench.peers.workers import Workers, load_named

_PRIME_BYTES = 6_000
_QUIET_S = 0.5
_QUIET_SHARE = 0.1


@dataclass(frozen=True)
class Amounts:
    """The amount of work of a run; `--quick` uses `QUICK`."""

    rounds: int = 5
    # Target duration of one throughput run, the same for every system.
    throughput_s: float = 10.0
    # Longest load on each server before the first throughput or latency that counts.
    warm_up_s: float = 180.0
    latency_s: float = 3.0
    log_gb: float = 10.0
    java_messages: int = 1_000_000
    memory_bytes: int = 256_000_000
    # The bytes that a node of a cluster misses, and the rounds of measurements that take minutes.
    missed_bytes: int = 5_000_000_000
    long_rounds: int = 3
    failovers: int = 5


QUICK = Amounts(
    rounds=2,
    throughput_s=0.2,
    warm_up_s=2.0,
    latency_s=1.0,
    log_gb=0.5,
    java_messages=200_000,
    memory_bytes=64_000_000,
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
    def __init__(
        self, systems: list[System], amounts: Amounts, promises: list[Promise], data: Path, workers: Workers
    ) -> None:
        self.systems = systems
        self.promises = promises
        self.amounts = amounts
        self.workers = workers
        self._data = data
        self._names = count()
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print progress to standard error."""
        took = time.monotonic() - self._started
        print(f"[{int(took) // 60:3d}:{int(took) % 60:02d}] {text}", file=sys.stderr, flush=True)

    def rounds(self, text: str, samples: Samples, warm_ups: int = 0) -> Iterator[int]:
        """Yield round numbers. Warm-up rounds come first and do not count, so that the JVM can compile hot code."""
        self.say(text)
        for number in range(-warm_ups, self.amounts.rounds):
            samples.counts = number >= 0
            yield number

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
            running = Running(system, variant, system.server(variant, directory), self.workers)
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
