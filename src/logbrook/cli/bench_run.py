"""A run of a benchmark: its processes are started, listened to, and stopped."""

import multiprocessing
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from time import monotonic
from typing import NamedTuple

from logbrook.cli.bench_latency import Latencies
from logbrook.cli.bench_load import Load, Tally, consume, produce
from logbrook.cli.failures import sentence_of
from logbrook.model import LogbrookError

_REPORT_S = 0.2
# A consumer that has got nothing for so long will get no more of what was produced.
_QUIET_S = 3.0
_END_S = 5.0


class Report(NamedTuple):
    """What a worker did from one moment on, and when it did the last of it."""

    is_producer: bool
    from_s: float
    last_s: float
    records: int
    bytes: int
    counts: Mapping[int, int]
    max_us: int


class Ended(NamedTuple):
    """A worker's last word. `failure` is a sentence."""

    failure: str | None


@dataclass
class Side:
    """The sum of what all producers, or all consumers, have done."""

    records: int = 0
    bytes: int = 0
    latencies: Latencies = field(default_factory=Latencies)
    first_s: float | None = None
    last_s: float | None = None

    @property
    def seconds(self) -> float:
        """From the start of the first to the last thing done."""
        return 0.0 if self.first_s is None or self.last_s is None else self.last_s - self.first_s

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    def take(self, report: Report) -> None:
        self.first_s = report.from_s if self.first_s is None else min(self.first_s, report.from_s)
        if report.records:
            self.last_s = max(self.last_s or 0.0, report.last_s)
        self.records += report.records
        self.bytes += report.bytes
        self.latencies.merge(report.counts, report.max_us)


@dataclass
class Outcome:
    """The numbers so far."""

    produced: Side = field(default_factory=Side)
    consumed: Side = field(default_factory=Side)
    failure: str | None = None
    is_interrupted: bool = False


class Run:
    """`run` it once. Producers get their share of rate and count, consumers of the partitions."""

    def __init__(
        self,
        load: Load,
        offsets: Mapping[int, int],
        producers: int,
        consumers: int,
        duration_s: float | None,
        to_read: int,
    ) -> None:
        """Consumers read from `offsets` on. Where nothing is produced, `to_read` is how many records there are."""
        self.outcome = Outcome()
        self._load = load
        self._duration_s = duration_s
        self._to_read = to_read
        self._is_consume_only = not producers
        context = multiprocessing.get_context("fork")
        self._stop_producing: Event = context.Event()
        self._stop_consuming: Event = context.Event()
        self._workers: dict[Pipe, _Worker] = {}
        numbers = sorted(offsets)
        for number in range(consumers):
            own = {one: offsets[one] for one in numbers[number::consumers]}
            if own:
                work = _consumer(load, own, not self._is_consume_only, self._stop_consuming)
                self._add(context, work, False)
        for number in range(producers):
            share = replace(
                load,
                rate=None if load.rate is None else load.rate / producers,
                count=None if load.count is None else (load.count + number) // producers,
            )
            # Each begins with another partition.
            turned = numbers[number % len(numbers) :] + numbers[: number % len(numbers)]
            self._add(context, _producer(share, turned, self._stop_producing), True)

    def run(self, on_progress: Callable[[Outcome], None]) -> Outcome:
        """Until all is done, the time is up, or Ctrl-C. `on_progress` is called again and again."""
        try:
            try:
                self._listen(on_progress)
            except KeyboardInterrupt:
                self.outcome.is_interrupted = True
                self._drain()
        finally:
            for pipe, worker in self._workers.items():
                worker.process.terminate()
                worker.process.join()
                pipe.close()
        return self.outcome

    def start(self) -> None:
        """Before there is a thread in this process: the workers are copies of it."""
        sys.stdout.flush()
        sys.stderr.flush()
        for worker in self._workers.values():
            worker.process.start()

    def _add(self, context: "multiprocessing.context.ForkContext", work: "_Work", is_producer: bool) -> None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(theirs, is_producer, work), daemon=True)
        self._workers[ours] = _Worker(process, is_producer)

    def _listen(self, on_progress: Callable[[Outcome], None]) -> None:
        began_s = progressed_s = monotonic()
        working = dict(self._workers)
        while working:
            before = self.outcome.consumed.records
            self._take(working, _REPORT_S)
            now_s = monotonic()
            if self.outcome.failure or (self._duration_s is not None and now_s - began_s >= self._duration_s):
                self._stop_producing.set()
                if self._is_consume_only or self.outcome.failure:
                    self._stop_consuming.set()
            is_producing = any(worker.is_producer for worker in working.values())
            if is_producing or self.outcome.consumed.records > before:
                progressed_s = now_s
            if not is_producing and (self._has_read_all or now_s - progressed_s > _QUIET_S):
                self._stop_consuming.set()
            on_progress(self.outcome)

    def _drain(self) -> None:
        """Let workers finish what is under way."""
        self._stop_producing.set()
        self._stop_consuming.set()
        working = dict(self._workers)
        until_s = monotonic() + _END_S
        with suppress(KeyboardInterrupt):
            while working and monotonic() < until_s:
                self._take(working, _REPORT_S)

    @property
    def _has_read_all(self) -> bool:
        wanted = self._to_read if self._is_consume_only else self.outcome.produced.records
        if self._is_consume_only and self._load.count is not None:
            wanted = min(wanted, self._load.count)
        return self.outcome.consumed.records >= wanted

    def _take(self, working: "dict[Pipe, _Worker]", timeout_s: float) -> None:
        """What workers say. Those that have ended are not working any more."""
        # Whether they live is asked first: what they said before they died is then there to be read.
        dead = [pipe for pipe, worker in working.items() if not worker.process.is_alive()]
        for pipe in wait(list(working), timeout_s):
            assert isinstance(pipe, Pipe)
            message = pipe.recv()
            if isinstance(message, Ended):
                self.outcome.failure = self.outcome.failure or message.failure
                del working[pipe]
            else:
                side = self.outcome.produced if message.is_producer else self.outcome.consumed
                side.take(message)
        for pipe in dead:
            if pipe in working and not pipe.poll():
                del working[pipe]
                self.outcome.failure = self.outcome.failure or "a process of the benchmark was killed"


class _Worker(NamedTuple):
    process: BaseProcess
    is_producer: bool


_Work = Callable[[Callable[[], Tally]], None]


def _producer(load: Load, partitions: Sequence[int], stop: Event) -> _Work:
    return lambda tally: produce(load, partitions, tally, stop.is_set)


def _consumer(load: Load, offsets: Mapping[int, int], is_timed: bool, stop: Event) -> _Work:
    return lambda tally: consume(load, offsets, is_timed, tally, stop.is_set)


def _work(pipe: Pipe, is_producer: bool, work: _Work) -> None:
    """A worker's life. Ctrl-C is for the one who started it, who says stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reporter = _Reporter(pipe, is_producer)
    failure = None
    # Nobody listens any more when the other end is gone.
    with suppress(BrokenPipeError):
        try:
            work(reporter.tally)
        except LogbrookError as error:
            failure = sentence_of(error)
        except Exception as error:
            failure = f"a bug in the benchmark: {error!r}"
        reporter.report()
        pipe.send(Ended(failure))


class _Reporter:
    def __init__(self, pipe: Pipe, is_producer: bool) -> None:
        self._pipe = pipe
        self._is_producer = is_producer
        self._current = Tally()
        self._from_s = monotonic()

    def tally(self) -> Tally:
        """To be asked for whenever something is to be counted: now and then it is a new one."""
        if monotonic() - self._from_s >= _REPORT_S:
            self.report()
        return self._current

    def report(self) -> None:
        now_s, one = monotonic(), self._current
        counts, max_us = dict(one.latencies.counts), one.latencies.max_us
        self._pipe.send(Report(self._is_producer, self._from_s, one.last_s, one.records, one.bytes, counts, max_us))
        self._current, self._from_s = Tally(), now_s
