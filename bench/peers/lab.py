"""Where measurements happen: the systems that are here, the loads, a directory for data, and how much to do."""

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
from bench.peers.worker import load_named
from bench.peers.workers import Workers

_PRIME_BYTES = 6_000
_QUIET_S = 0.5
_QUIET_SHARE = 0.1


@dataclass(frozen=True)
class Amounts:
    """How much is done; `--quick` does less."""

    rounds: int = 5
    # How long one run of a throughput cell ought to take, of each system alike.
    throughput_s: float = 0.8
    # How long each server works before the first throughput and latency that count.
    warm_up_s: float = 8.0
    latency_s: float = 3.0
    log_gb: float = 10.0
    java_messages: int = 1_000_000
    memory_bytes: int = 256_000_000


QUICK = Amounts(
    rounds=2, throughput_s=0.2, warm_up_s=2.0, latency_s=1.0, log_gb=0.5, java_messages=200_000, memory_bytes=64_000_000
)


@dataclass
class Running:
    """A server that runs, and its clients."""

    system: System
    variant: Variant
    server: Server
    workers: Workers
    of: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.of = (self.system.name, self.variant.promise.value)

    def job(self, topic: str, **facts: Any) -> Job:
        return Job(self.server.address, topic, settings=dict(self.variant.topic_settings), **facts)

    def call(self, verb: str, job: Job) -> Any:
        return self.workers.call(self.system.load, verb, job)

    def spend(self, verb: str, job: Job, processes: int = 1) -> tuple[Spent, float]:
        """The load's time and cost, and the processor time of the server meanwhile."""
        share = -(-job.count // processes)
        before = self.server.cpu_s()
        spent = self.workers.spend(self.system.load, verb, [replace(job, count=share)] * processes)
        return spent, self.server.cpu_s() - before


class Lab:
    def __init__(self, systems: list[System], amounts: Amounts, data: Path, workers: Workers) -> None:
        self.systems = systems
        self.amounts = amounts
        self.workers = workers
        self._data = data
        self._names = count()
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Progress, on standard error."""
        took = time.monotonic() - self._started
        print(f"[{int(took) // 60:3d}:{int(took) % 60:02d}] {text}", file=sys.stderr, flush=True)

    def rounds(self, text: str, samples: Samples, warm_ups: int = 0) -> Iterator[int]:
        """The first ones warm up and do not count: a JVM has to have compiled what it runs."""
        self.say(text)
        for number in range(-warm_ups, self.amounts.rounds):
            samples.counts = number >= 0
            yield number

    def topic(self) -> str:
        """A name that was not used before."""
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
        """A server that was not launched; however it was left, it is ended."""
        with self.directory() as directory:
            running = Running(system, variant, system.server(variant, directory), self.workers)
            try:
                yield running
            finally:
                running.server.kill()

    @contextmanager
    def serving(self, pick: Callable[[System], Variant | None]) -> Iterator[list[Running]]:
        """One server of each system that has such a variant, all at once, and answering. They take turns in a round."""
        with ExitStack() as stack:
            everyone = []
            for system in self.systems:
                variant = pick(system)
                if variant is None:
                    continue
                self.say(f"starting {system.name} ({variant.settings.replace('`', '')})")
                running = stack.enter_context(self.idle(system, variant))
                running.server.launch()
                self.first_ack(running)
                everyone.append(running)
            yield everyone

    def first_ack(self, running: Running) -> Job:
        """Make a topic on a server that may still be starting, and have one message acknowledged."""
        job = running.job("bench-first")
        _wait_for_answer(running, job)
        running.call("create", job)
        running.call("wait_for_ack", job)
        return job

    def prime(self, running: Running, job: Job) -> tuple[int, float]:
        """The first messages to each partition of a new topic: how many, and how long they took.

        They can cost far more than those that follow (seen with Kafka, as system time, once for each topic, when its
        partitions pass 4 KiB), which a short run would take for the speed of the system. Two goes, as what is due after
        4 KiB comes with the batch after those.
        """
        each = -(-_PRIME_BYTES // job.size) * job.partitions
        goes = [running.spend("produce", replace(job, count=each))[0] for _ in range(2)]
        return sum(go.messages for go in goes), sum(go.ended_s - go.started_s for go in goes)

    def settle(self, running: Running) -> None:
        """Wait until it does nothing any more: some answer that a topic is made, or gone, and then begin with it."""
        until = time.monotonic() + WAIT_S_MAX
        pause = Event()
        while time.monotonic() < until:
            before = running.server.cpu_s()
            pause.wait(_QUIET_S)
            if running.server.cpu_s() - before < _QUIET_SHARE * _QUIET_S:
                return
        raise LoadError(f"{running.system.name} does not come to rest")

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
    """More than its own number where there are cores to spare: a server of one process cannot use them."""
    return max(system.load_processes, min(4, (os.cpu_count() or 2) // 2))


def _wait_for_answer(running: Running, job: Job) -> None:
    load = load_named(running.system.load)
    until = time.monotonic() + WAIT_S_MAX
    pause = Event()
    while True:
        try:
            load.greet(job).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise LoadError(f"{running.system.name} does not answer: {error}") from error
        pause.wait(RETRY_S)
