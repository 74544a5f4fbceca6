"""Kills a driver that runs all scenarios, again and again, lets it finish, and compares every output with its oracle.

Input arrives while the driver runs. When every query has completed a micro-batch, some writers are ordered to stop at
their next commit (see `stops`), and when they have, the driver is killed with its JVM, so that it leaves uncommitted
data files, open transactions, and commits that Spark has not recorded. The other scenarios are hit at random moments.
Every fourth kill is at a random moment for all of them; then the Python workers are often left to notice that the JVM
is gone, which may be after their next write, as it would be on other machines.

The broker can be killed and started again, too: while all scenarios run, which must make progress after it, or while
writers are stopped.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum, auto
from functools import partial
from pathlib import Path
from random import Random
from signal import SIGKILL
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import monotonic

from logbrook.testing.exactly_once.campaign import StuckError
from logbrook.testing.exactly_once.campaign_broker import BrokerFactory, BrokerInProcess, create_topics
from logbrook.testing.exactly_once.control_files import VARIABLE
from logbrook.testing.exactly_once.driver import QUICK_JAVA
from logbrook.testing.exactly_once.leftovers import kill_processes_of, open_topics, processes_of, uncommitted_files
from logbrook.testing.exactly_once.scenario_driver import FINISH, RUN
from logbrook.testing.exactly_once.scenario_outcome import ScenarioOutcome, ScenarioPlan
from logbrook.testing.exactly_once.scenarios import SCENARIOS, InputRecord, KillScenario
from logbrook.testing.exactly_once.stops import StopOrders, StopPoint
from logbrook.testing.kill import clients
from logbrook.testing.processes import ChildProcess, pause, wait_until
from logbrook.testing.reaper import Reaper

_NUMBERS_PER_TICK = 10
_TICK_S = 0.1
_DELAY_S_MAX = 1.0
_OUTAGE_S_MAX = 3.0
_STUCK_S = 300.0
_STEP_S = 0.05
# Consecutive drivers that may end by themselves, such as for want of processor time.
_FAILURES_MAX = 3
# One of this number of kills is at a random moment for all scenarios.
_RANDOM_KILL_EVERY = 4


class _BrokerRestart(Enum):
    """Time of a broker kill and restart relative to the driver."""

    NEVER = auto()
    WHILE_RUNNING = auto()
    WHILE_STOPPED = auto()


# In turn.
_RESTARTS = (_BrokerRestart.WHILE_RUNNING, _BrokerRestart.NEVER, _BrokerRestart.WHILE_STOPPED, _BrokerRestart.NEVER)


class ScenarioCampaign:
    """A broker, the scenarios and their driver. Leaving its context removes everything it created."""

    def __init__(
        self,
        plan: ScenarioPlan,
        on_kill: Callable[[str], None] = lambda _text: None,
        broker: BrokerFactory = BrokerInProcess,
    ) -> None:
        self.plan = plan
        self.outcomes = {name: ScenarioOutcome(name) for name in plan.names}
        # Drivers that ended by themselves, by the last line of their log.
        self.failures: Counter[str] = Counter()
        self._on_kill = on_kill
        self._random = Random(plan.seed)
        self._kills = 0
        # Stops that were not ordered yet, by scenario.
        self._planned_stops: dict[str, list[tuple[str, StopPoint]]] = {}
        self._count = 0
        self._uncommitted: set[str] = set()
        self._directory = TemporaryDirectory(prefix="logbrook-once-")
        self._reaper = Reaper()
        (self._root / "broker").mkdir()
        self.broker = broker(self._root / "broker", self._reaper)
        self.scenarios: list[KillScenario] = []
        self._stops = StopOrders(self._root / "stops")
        self._cleanup = ExitStack()
        self._driver = ChildProcess(str(self._root / "log"), self._reaper)

    def __enter__(self) -> "ScenarioCampaign":
        self._reaper.watch_directory(self._directory.name)
        self._cleanup.callback(self._remove_directory)
        self._cleanup.callback(self._reaper.close)
        self._cleanup.callback(self.broker.kill)
        try:
            self.broker.start()
            servers = self.broker.bootstrap_servers
            self.scenarios = [SCENARIOS[name](servers, self._root, self.plan.parallelism) for name in self.plan.names]
            for scenario in self.scenarios:
                create_topics(servers, scenario.partitions)
            self._sender = clients.producer(servers, **{"enable.idempotence": True})
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def kill_all(self) -> None:
        """Start and kill drivers until the planned number of kills, or the time, is reached. Raises StuckError."""
        end_s = monotonic() + self.plan.seconds_max
        while self._kills < self.plan.kills and monotonic() < end_s:
            restart = _RESTARTS[self._kills % len(_RESTARTS)] if self.plan.restarts_broker else _BrokerRestart.NEVER
            self._repeat(partial(self._run_and_kill, self._next_stops(), restart))

    def kill_at(self, stops: Mapping[str, StopPoint]) -> None:
        """Run a driver until a writer of each target has stopped at its point, and kill it. Raises StuckError."""
        self._repeat(partial(self._stop_and_kill, stops))

    def finish(self) -> None:
        """Write the last input and let a driver process everything. Raises StuckError."""
        self.write_last_input()
        with self._running(FINISH):
            self._wait(lambda: False)
            if self._driver.exit_code:
                raise StuckError(f"the last driver failed: {self._driver.log_tail()}")

    def compare(self) -> list[ScenarioOutcome]:
        """Compare the rows of every table and topic with the oracle."""
        for scenario in self.scenarios:
            outcome = self.outcomes[scenario.name]
            outcome.rows = 0
            expected, actual = scenario.expected(self._count), scenario.actual()
            for target in sorted(expected.keys() | actual.keys()):
                outcome.compare(target, expected.get(target, Counter()), actual[target])
        return list(self.outcomes.values())

    def write_input(self, numbers: int) -> None:
        """Write the records of that many more numbers for every scenario."""
        added = range(self._count, self._count + numbers)
        self._produce(record for number in added for scenario in self.scenarios for record in scenario.records(number))
        self._count += numbers

    def write_last_input(self) -> None:
        self._produce(record for scenario in self.scenarios for record in scenario.last_records())

    def _produce(self, records: Iterable[InputRecord]) -> None:
        for record in records:
            self._sender.produce(record.topic, record.value, partition=record.partition)
        assert self._sender.flush(_STUCK_S) == 0, "the input was not acknowledged"

    @property
    def _root(self) -> Path:
        return Path(self._directory.name)

    def _remove_directory(self) -> None:
        with suppress(FileNotFoundError):
            self._directory.cleanup()

    def _next_stops(self) -> dict[str, StopPoint]:
        """Return a stop for each scenario, in random order until all had their turn; or none at all."""
        if self._kills % _RANDOM_KILL_EVERY == _RANDOM_KILL_EVERY - 1:
            return {}
        stops = {}
        for scenario in self.scenarios:
            planned = self._planned_stops.setdefault(scenario.name, [])
            if not planned:
                planned += [(target, point) for target in scenario.targets for point in StopPoint]
                self._random.shuffle(planned)
            target, point = planned.pop()
            stops[target] = point
        return stops

    def _repeat(self, run_and_kill: Callable[[], bool]) -> None:
        """Run drivers until one was killed. Raises StuckError if too many ended by themselves."""
        for _ in range(_FAILURES_MAX + 1):
            if run_and_kill():
                return
            self.failures[self._driver.log_tail().rpartition("\n")[2]] += 1
        raise StuckError(f"{_FAILURES_MAX + 1} drivers in a row ended by themselves: {self._driver.log_tail()}")

    def _run_and_kill(self, stops: Mapping[str, StopPoint], restart: _BrokerRestart) -> bool:
        """Run a driver, feed it, and kill it when the writers have stopped. Returns False if it ended before."""
        since = self._progress()
        with self._running(RUN) as temporary, self._feeding():
            if not self._wait(lambda: self._has_progressed(since)):
                return False
            if restart is _BrokerRestart.WHILE_RUNNING:
                self._restart_broker()
                since_restart = self._progress()
                if not self._wait(lambda: self._has_progressed(since_restart)):
                    return False
            self._stops.order(stops)
            if not self._wait(lambda: all(map(self._stops.has_stopped, stops))):
                return False
            if restart is _BrokerRestart.WHILE_STOPPED:
                self._restart_broker()
            pause(self._random.random() * _DELAY_S_MAX)
            if not self._driver.is_running:
                return False
            self._driver.signal(SIGKILL)
            if stops or self._random.random() < 0.5:
                kill_processes_of(temporary)
        self._count_kill(stops)
        return True

    def _stop_and_kill(self, stops: Mapping[str, StopPoint]) -> bool:
        """Run a driver whose first commits stop, and kill it. Returns False if it ended before."""
        self._stops.order(stops)
        with self._running(RUN) as temporary:
            if not self._wait(lambda: all(map(self._stops.has_stopped, stops))):
                return False
            self._driver.signal(SIGKILL)
            kill_processes_of(temporary)
        self._count_kill(stops)
        return True

    def _progress(self) -> dict[str, dict[str, int]]:
        return {scenario.name: scenario.progress() for scenario in self.scenarios}

    def _has_progressed(self, since: Mapping[str, Mapping[str, int]]) -> bool:
        return all(scenario.has_progressed(since[scenario.name]) for scenario in self.scenarios)

    def _restart_broker(self) -> None:
        self.broker.kill()
        pause(self._random.random() * _OUTAGE_S_MAX)
        self.broker.start()
        for outcome in self.outcomes.values():
            outcome.restarts += 1

    def _count_kill(self, stops: Mapping[str, StopPoint]) -> None:
        self._kills += 1
        topics = open_topics(self.broker.bootstrap_servers)
        texts = []
        for scenario in self.scenarios:
            after_commit = {target for target in scenario.targets if stops.get(target) is StopPoint.AFTER_COMMIT}
            hits = {
                "open transaction": any(scenario.topic(name) in topics for name in scenario.outputs),
                "uncommitted file": self._has_new_uncommitted_files(scenario, after_commit),
                "after a commit": bool(after_commit),
            }
            outcome = self.outcomes[scenario.name]
            outcome.kills += 1
            outcome.in_transaction += hits["open transaction"]
            outcome.in_table_commit += hits["uncommitted file"]
            outcome.after_commit += hits["after a commit"]
            text = ", ".join(hit for hit, is_hit in hits.items() if is_hit)
            texts.append(f"{scenario.name} ({text})" if text else scenario.name)
        self._on_kill(", ".join(texts))

    def _has_new_uncommitted_files(self, scenario: KillScenario, after_commit: set[str]) -> bool:
        """Return True if the last kill has left such files. Targets after their commit do not count.

        An upsert deletes the files of changes after its commit.
        """
        has_new = False
        for name in scenario.tables:
            new = uncommitted_files(scenario.table(name)) - self._uncommitted
            self._uncommitted |= new
            has_new |= bool(new) and scenario.topic(name) not in after_commit
        return has_new

    @contextmanager
    def _running(self, mode: str) -> Iterator[str]:
        """Run a driver during the block, and wait until its processes have ended. Yields its temporary directory."""
        module = "logbrook.testing.exactly_once.scenario_driver"
        command = [sys.executable, "-m", module, mode, self.broker.bootstrap_servers, str(self._root)]
        command += [str(self.plan.parallelism), *self.plan.names]
        with TemporaryDirectory(prefix="logbrook-spark-") as temporary:
            self._reaper.watch_directory(temporary)
            environment = {"JDK_JAVA_OPTIONS": " ".join(QUICK_JAVA)} | os.environ
            environment |= {"TMPDIR": temporary, VARIABLE: str(self._stops.directory)}
            self._driver.launch(command, env=environment)
            try:
                yield temporary
            finally:
                self._driver.end()
                if self._stops.has_orders:
                    # It may have ended by itself while writers are stopped.
                    kill_processes_of(temporary)
                if not wait_until(lambda: not processes_of(temporary), _STUCK_S, _STEP_S):
                    raise StuckError("a worker has outlived its driver")
                self._stops.withdraw()

    @contextmanager
    def _feeding(self) -> Iterator[None]:
        """Write input in the background."""
        stop = Event()

        def feed() -> None:
            while not stop.wait(_TICK_S):
                self.write_input(_NUMBERS_PER_TICK)

        thread = Thread(target=feed, name="input")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _wait(self, condition: Callable[[], bool]) -> bool:
        """Wait for the condition. Returns False if the driver ended first. Raises StuckError."""
        if not wait_until(lambda: condition() or not self._driver.is_running, _STUCK_S, _STEP_S):
            raise StuckError(f"no progress for {_STUCK_S:g} s: {self._driver.log_tail()}")
        return condition()
